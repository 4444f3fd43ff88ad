package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/evaluate"
)

// submissionFlags say what to look at and what to compare it with.
type submissionFlags struct {
	file, sample, idColumn string
	sameOrder              bool
}

// inspected is what `submission --json` prints.
type inspected struct {
	evaluate.Submission
	// Check is null without a sample.
	Check *evaluate.SubmissionCheck `json:"check"`
}

func newSubmissionCommand(a *app) *cobra.Command {
	var f submissionFlags
	cmd := &cobra.Command{
		Use:   "submission WORKDIR",
		Short: "Look at the submission that a script left",
		Long: `Look at the file that a script left in final/ of its working folder: whether it is
there, its size and its rows. With --sample its header, its number of rows and its
IDs are compared with those of a sample; files of any size are read piece by piece.

The exit code is 1 when the file is missing or empty, or differs from the sample.`,
		Example: "  sandbox submission work/svm\n  sandbox submission work/svm --sample data/sample_submission.csv",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return a.submission(cmd.Context(), args[0], f) },
	}
	f.register(cmd)
	a.settingFlags(cmd, false, "json")
	return cmd
}

// register gives a command the flags.
func (f *submissionFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&f.file, "file", evaluate.DefaultSubmission, "`name` of the submission in final/")
	flags.StringVar(&f.sample, "sample", "", "CSV `file` with the right header, rows and IDs")
	flags.StringVar(&f.idColumn, "id-column", "", "`column` of the IDs (default: the sample's first)")
	flags.BoolVar(&f.sameOrder, "same-order", false, "demand the IDs in the order of the sample")
}

// rule is the comparison that the flags ask for; nil without a sample.
func (f submissionFlags) rule() *evaluate.SubmissionRule {
	if f.sample == "" {
		return nil
	}
	return &evaluate.SubmissionRule{Name: f.file, Sample: f.sample, IDColumn: f.idColumn, SameOrder: f.sameOrder}
}

func (a *app) submission(ctx context.Context, dir string, f submissionFlags) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	info, err := evaluate.SubmissionInfo(dir, f.file)
	if err != nil {
		return err
	}
	seen := inspected{Submission: info}
	if rule := f.rule(); rule != nil {
		check := rule.Check(ctx, dir)
		seen.Check = &check
	}
	if !info.Exists || info.SizeBytes == 0 || seen.Check != nil && !seen.Check.OK {
		a.code = exitProblem
	}
	if s.JSON {
		return a.printJSON(seen)
	}
	text := fmt.Sprintf("%s: missing\n", info.Path)
	if info.Exists {
		text = fmt.Sprintf("%s: %s, %d rows\n", info.Path, formatSize(info.SizeBytes), *info.RowCount)
	}
	return a.print("%s", text+checkText(seen.Check))
}

// checkText are the lines on a comparison.
func checkText(check *evaluate.SubmissionCheck) string {
	if check == nil {
		return ""
	}
	text := ""
	for _, problem := range check.Problems {
		text += "problem: " + problem + "\n"
	}
	for _, note := range check.Notes {
		text += "note: " + note + "\n"
	}
	if check.OK {
		text += "as the sample\n"
	}
	return text
}
