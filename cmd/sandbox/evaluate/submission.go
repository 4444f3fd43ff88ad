package evaluate

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/evaluate/submission"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
)

// submissionFlags name a submission and the sample to compare it with.
type submissionFlags struct {
	file, sample, idColumn string
	sameOrder              bool
}

// inspected is the JSON of `submission --json`.
type inspected struct {
	submission.File
	// Check is null without a sample.
	Check *submission.Check `json:"check"`
}

// NewSubmission returns the command `submission`.
func NewSubmission(a *cli.App) *cobra.Command {
	var f submissionFlags
	cmd := &cobra.Command{
		Use:   "submission WORKDIR",
		Short: "Look at the submission that a script left",
		Long: `Look at the file that a script left in final/ of its working directory: whether it is
there, its size and its rows. With --sample its header, its number of rows and its
IDs are compared with those of a sample; files of any size are read piece by piece.

Rows are lines that are not blank, less the header; with --sample records are compared,
of which one in quotes may have several lines.

The exit code is 1 when the file is missing or empty, or differs from the sample, and
125 when the working directory or the sample cannot be used.`,
		Example: "  sandbox submission work/svm\n  sandbox submission work/svm --sample data/sample_submission.csv",
		Args:    cobra.ExactArgs(1),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Check(cmd, cli.Needs("sample", "id-column", "same-order"))
		},
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			return inspect(ctx, a, s, args[0], f)
		}),
	}
	f.register(cmd)
	a.SettingFlags(cmd, "json")
	return cmd
}

// register gives a command the flags.
func (f *submissionFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.file, "file", submission.DefaultName, "`name` of the submission in final/")
	flags.StringVar(&f.sample, "sample", "", "CSV `file` with the right header, rows and IDs")
	flags.StringVar(&f.idColumn, "id-column", "", "`column` of the IDs (default: the sample's first)")
	flags.BoolVar(&f.sameOrder, "same-order", false, "demand the IDs in the order of the sample")
}

// rule is the comparison that the flags ask for; nil without a sample.
func (f submissionFlags) rule() *submission.Rule {
	if f.sample == "" {
		return nil
	}
	return &submission.Rule{Name: f.file, Sample: f.sample, IDColumn: f.idColumn, SameOrder: f.sameOrder}
}

func inspect(ctx context.Context, a *cli.App, s settings.Settings, dir string, f submissionFlags) error {
	a.FieldHints = fieldHints
	if err := evaluate.CheckWorkingFolder(dir); err != nil {
		return err
	}
	rule := f.rule()
	if rule != nil {
		if err := rule.CheckSample(); err != nil {
			return err
		}
	}
	info, err := submission.Info(dir, f.file)
	if err != nil {
		return err
	}
	seen := inspected{File: info}
	if rule != nil {
		check := rule.Check(ctx, dir)
		seen.Check = &check
		if check.Failure != "" {
			err = cmp.Or(context.Cause(ctx), errors.New("the submission was not checked: "+check.Failure))
			a.Code = cli.ExitCode(nil, err)
		}
	}
	if err == nil && (!info.Exists || info.SizeBytes == 0 || seen.Check != nil && !seen.Check.OK) {
		a.Code = cli.ExitProblem
	}
	if s.JSON {
		return errors.Join(a.PrintJSON(seen), err)
	}
	if err != nil {
		seen.Check.Failure = "" // the error says it
	}
	return errors.Join(a.Print("%s", render.Submission(info, seen.Check)), err)
}
