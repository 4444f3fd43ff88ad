package evaluate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/evaluate/submission"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
)

// checkedScript is one script as `check --json` prints it.
type checkedScript struct {
	Script string `json:"script"`
	OK     bool   `json:"ok"`
	// Problems are why an evaluation refuses the script or, with --syntax, why Python does.
	// Warnings are where it hides errors.
	Problems []evaluate.Violation `json:"problems"`
	Warnings []evaluate.Masking   `json:"warnings"`
	// Failure is why the script cannot be read, and nothing else is known of it;
	// empty when it was read.
	Failure string `json:"failure"`

	text string
}

// NewCheck returns the command `check`.
func NewCheck(a *cli.App) *cobra.Command {
	var syntax bool
	cmd := &cobra.Command{
		Use:   "check SCRIPT.py...",
		Short: "Check scripts without running them",
		Long: `Check scripts as an evaluation does before it runs them. Refused are: an empty
script, one that is not UTF-8, and a call of exit, sys.exit, os._exit or quit
anywhere in the text, comments and strings included. Pointed out are clauses that
hide errors: "except:", and "except Exception:" with only pass in it. A directory
stands for the *.py files in it.

With --syntax the Python of the image compiles the scripts in a container, and runs
none of them. Otherwise no container is involved, and the syntax is not checked.

The exit code is 1 when a script is refused, and 125 when one cannot be read.`,
		Example: "  sandbox check train.py\n  sandbox check --syntax solutions\n  sandbox check --json solutions/*.py",
		Args:    cobra.MinimumNArgs(1),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Check(cmd, cli.Needs("syntax", "image", "allow-unlocked"))
		},
		RunE: a.With(func(ctx context.Context, s settings.Settings, paths []string) error {
			return check(ctx, a, s, paths, syntax)
		}),
	}
	cmd.Flags().BoolVar(&syntax, "syntax", false, "also compile the scripts with the Python of the image")
	a.SettingFlags(cmd, "json", "image", "allow_unlocked")
	return cmd
}

// check shows the problems of the scripts that can be read, and then reports the scripts
// that cannot.
func check(ctx context.Context, a *cli.App, s settings.Settings, args []string, syntax bool) error {
	all := struct {
		Schema string          `json:"schema"`
		Checks []checkedScript `json:"checks"`
	}{"evalbox/checks/v1", []checkedScript{}}
	paths, err := scriptPaths(args)
	unreadable := []error{}
	if err != nil {
		unreadable = append(unreadable, err)
	}
	for _, path := range paths {
		c := checkedScript{Script: path, Problems: []evaluate.Violation{}, Warnings: []evaluate.Masking{}}
		if c.text, err = evaluate.ReadScript(path); err != nil {
			unreadable = append(unreadable, err)
			c.Failure = err.Error()
		} else {
			c.Problems = append(c.Problems, evaluate.ValidateScript(c.text)...)
			c.Warnings = append(c.Warnings, evaluate.DetectErrorMasking(c.text)...)
		}
		all.Checks = append(all.Checks, c)
	}
	if syntax {
		if err := checkSyntax(ctx, a, s, all.Checks); err != nil {
			return errors.Join(append(unreadable, err)...)
		}
	}
	for i, c := range all.Checks {
		all.Checks[i].OK = c.Failure == "" && len(c.Problems) == 0
		if len(c.Problems) > 0 {
			a.Code = cli.ExitProblem
		}
	}
	if len(unreadable) > 0 {
		a.Code = cli.ExitSandbox
	}
	err = a.Show(s, all, func() error {
		for _, c := range all.Checks {
			if c.Failure != "" {
				continue
			}
			text := "" // a line for each thing, in the form that editors know
			for _, p := range c.Problems {
				text += fmt.Sprintf("%s:%d: error: %s\n", c.Script, max(p.Line, 1), p.Rule)
			}
			for _, w := range c.Warnings {
				_, rule, _ := strings.Cut(w.String(), ": ") // the line is named already
				text += fmt.Sprintf("%s:%d: warning: %s\n", c.Script, w.Line, rule)
			}
			if err := a.Print("%s", cmp.Or(text, c.Script+": ok\n")); err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(append(unreadable, err)...)
}

// checkSyntax adds the errors of the syntax to scripts that were read.
func checkSyntax(ctx context.Context, a *cli.App, s settings.Settings, checks []checkedScript) error {
	var texts []string
	var of []*checkedScript
	for i := range checks {
		if c := &checks[i]; c.Failure == "" {
			texts, of = append(texts, c.text), append(of, c)
		}
	}
	if len(texts) == 0 {
		return nil
	}
	x, err := a.Begin(ctx, s, cli.Hidden)
	if err != nil {
		return err
	}
	defer x.Close()
	found, err := evaluate.CheckSyntax(ctx, x.Box, s.Request(), texts)
	for i, violation := range found {
		if violation != nil {
			of[i].Problems = append(of[i].Problems, *violation)
		}
	}
	return errors.Join(err, x.Ended())
}

// NewParse returns the command `parse`.
func NewParse(a *cli.App) *cobra.Command {
	var stdout, stderr string
	var exitCode int
	var timedOut bool
	var duration time.Duration
	cmd := &cobra.Command{
		Use:   "parse --stdout FILE --stderr FILE --exit-code N [--timed-out]",
		Short: "Evaluate output that was produced elsewhere",
		Long: `Find the score, the error and the traceback in the output of a script that was run
elsewhere, and print them as JSON. No container is involved.

FILE is - for stdin. Bytes that are not UTF-8 are replaced. With --timed-out the
exit code is -1 unless given.`,
		Example: `  sandbox parse --stdout out.log --stderr err.log --exit-code 1
  sandbox parse --stdout - --stderr /dev/null --exit-code 0 < out.log`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			required := []string{"stdout", "stderr", "exit-code"}
			if timedOut {
				required = required[:2]
			}
			if err := cli.Check(cmd, cli.Required(required...),
				cli.Wrong(stdout == "-" && stderr == "-", "only one of --stdout and --stderr can be -")); err != nil {
				return err
			}
			printed, err := a.ReadStream(stdout)
			if err != nil {
				return err
			}
			failed, err := a.ReadStream(stderr)
			if err != nil {
				return err
			}
			return a.PrintJSON(struct {
				Schema string `json:"schema"`
				result.EvaluationResult
			}{"evalbox/parsed/v1", result.BuildEvaluation(result.ExecutionRawResult{
				Stdout: result.DecodeUTF8(printed), Stderr: result.DecodeUTF8(failed),
				ExitCode: exitCode, DurationSeconds: duration.Seconds(), TimedOut: timedOut,
			})})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&stdout, "stdout", "", "`file` with what the script printed")
	flags.StringVar(&stderr, "stderr", "", "`file` with its errors")
	flags.IntVar(&exitCode, "exit-code", -1, "its exit code")
	flags.BoolVar(&timedOut, "timed-out", false, "a time limit ended it")
	flags.Var(cli.Duration(&duration), "duration", "how long it ran, such as 1.5s; a bare number is seconds")
	return cmd
}

// rankFlags are the flags of `rank`.
type rankFlags struct {
	direction evaluate.MetricDirection
	task      string
	top       int
}

// NewRank returns the command `rank`.
func NewRank(a *cli.App) *cobra.Command {
	var f rankFlags
	cmd := &cobra.Command{
		Use:   "rank RESULTS.jsonl [--task TASK.yaml] [--direction maximize|minimize]",
		Short: "Order the evaluations of a results file, best first",
		Long: `Order the evaluations of a results file: valid scores first, best first; then
scripts without a score; then those that ended in an error. Equal scores have the same
rank. Where a grader was used, only its scores count. Of several evaluations of one
name and seed one counts: of the last version of the script the last conclusive one.

The direction and the baseline are those of the results, or of the task with --task.
Results of an older version have none.

WHY says why a script has no score that counts. "!" marks a score that a script
reported of itself and that is far better than its graded one: by more than 10 % of
the graded score and by more than 0.05.

A last line that was cut, as a crash does, is left out with a warning.`,
		Example: "  sandbox rank results.jsonl\n  sandbox rank results.jsonl --top 10\n  sandbox rank results.jsonl --direction minimize --json",
		Args:    cobra.ExactArgs(1),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			given := cmd.Flags().Changed
			return cli.Check(cmd,
				cli.Wrong(given("direction") && f.direction.Check() != nil, "--direction must be maximize or minimize"),
				cli.Wrong(given("top") && f.top < 1, "--top %d: must be at least 1", f.top))
		},
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			return rank(ctx, a, s, args[0], f)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar((*string)(&f.direction), "direction", "", "which scores are better: `maximize` or minimize (default: as the results or the task say)")
	flags.StringVar(&f.task, "task", "", "YAML `file` of the task, for the direction and the baseline")
	flags.IntVar(&f.top, "top", 0, "show the first `N` only")
	cli.Choices(cmd, "direction", "maximize\thigher scores are better", "minimize\tlower scores are better")
	a.SettingFlags(cmd, "json")
	return cmd
}

func rank(ctx context.Context, a *cli.App, s settings.Settings, path string, f rankFlags) error {
	report, err := cli.Interruptibly(ctx, func() (evaluate.ReadReport, error) {
		return evaluate.ReadResults(path, evaluate.ReadOptions{Brief: !s.JSON})
	})
	if err != nil {
		return err
	}
	if report.Torn > 0 {
		a.Warn("%s:%d: the line was cut and is left out", path, report.Torn)
	}
	latest, replaced := evaluate.Latest(report.Results)
	if text := render.Replaced(replaced); text != "" {
		a.Warn("%s", path+": "+text)
	}
	if ids := evaluate.Competitions(latest); len(ids) > 1 {
		a.Warn("%s: evaluations of %d competitions, whose scores cannot be compared: %s", path, len(ids), text.Fit(strings.Join(ids, ", "), text.Most))
	}
	direction, baseline, err := f.scale(a, latest)
	if err != nil {
		return err
	}
	ranked, err := evaluate.RankResults(latest, direction)
	if err != nil {
		return err
	}
	board := render.Board{Ranked: ranked, Direction: direction, Baseline: baseline, Top: f.top}
	if s.JSON {
		return printRanking(a, board)
	}
	if len(ranked) == 0 {
		a.Say("%s", path+" has no evaluations")
		return nil
	}
	return printLeaderboard(a, render.ResultsTitle(ranked, direction, baseline), board)
}

// scale returns which scores are better, and the score to beat, if one is known: those of the flags,
// of the task or of the results.
func (f rankFlags) scale(a *cli.App, results []evaluate.Result) (evaluate.MetricDirection, *float64, error) {
	direction := f.direction
	if f.task != "" {
		task, err := evaluate.ReadTask(f.task)
		return cmp.Or(direction, task.MetricDirection), task.BaselineValue, err
	}
	var baseline *float64
	known := map[evaluate.MetricDirection]bool{}
	for _, r := range results {
		if r.MetricDirection != "" {
			known[r.MetricDirection] = true
		}
		if len(evaluate.Competitions(results)) == 1 {
			baseline = cmp.Or(baseline, r.BaselineValue)
		}
	}
	switch {
	case direction != "":
	case len(known) == 1:
		for direction = range known {
		}
	case len(results) == 0:
		direction = evaluate.Maximize
	default:
		return "", nil, cli.Usagef(a.Command, "give --direction or --task: the results do not say which scores are better")
	}
	return direction, baseline, nil
}

// printRanking prints ranked evaluations as JSON.
func printRanking(a *cli.App, b render.Board) error {
	ranks, ranked := evaluate.Ranks(b.Ranked), append([]evaluate.Result{}, b.Ranked...)
	if b.Top > 0 {
		n := min(b.Top, len(ranked))
		ranks, ranked = ranks[:n], ranked[:n]
	}
	return a.PrintJSON(struct {
		Schema    string                   `json:"schema"`
		Direction evaluate.MetricDirection `json:"metric_direction"`
		Baseline  *float64                 `json:"baseline_value"`
		// Ranks are those of the evaluations, in their order; 0 is one without a score that counts.
		Ranks       []int             `json:"ranks"`
		Evaluations []evaluate.Result `json:"evaluations"`
	}{"evalbox/evaluations/v1", b.Direction, b.Baseline, ranks, ranked})
}

// printLeaderboard prints a leaderboard as a table below its title.
func printLeaderboard(a *cli.App, title string, board render.Board) error {
	if err := a.Print("%s\n", text.OneLine(title)); err != nil {
		return err
	}
	board.Width = a.OutWidth()
	header, rows, notes := board.Table()
	for i, note := range notes {
		if board.Width > 0 {
			notes[i] = text.Fit(note, board.Width)
		}
	}
	return errors.Join(a.PrintTable(header, rows), a.PrintAll(notes))
}

// submissionFlags name a submission and the sample to compare it with.
type submissionFlags struct{ submission.Rule }

// inspected is the JSON of `submission --json`.
type inspected struct {
	Schema string `json:"schema"`
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

Notes are about values that are missing (such as nan), infinite or not a number where the
sample has numbers. A sample with one column has no IDs, unless --id-column names it.

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

func (f *submissionFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.Name, "file", submission.DefaultName, "`name` of the submission in final/")
	flags.StringVar(&f.Sample, "sample", "", "CSV `file` with the right header, rows and IDs")
	flags.StringVar(&f.IDColumn, "id-column", "", "`column` of the IDs (default: the sample's first)")
	flags.BoolVar(&f.SameOrder, "same-order", false, "demand the IDs in the order of the sample")
}

// rule is the comparison that the flags ask for; nil without a sample.
func (f submissionFlags) rule() *submission.Rule {
	if f.Sample == "" {
		return nil
	}
	return &f.Rule
}

func inspect(ctx context.Context, a *cli.App, s settings.Settings, dir string, f submissionFlags) error {
	a.FieldHints = fieldHints
	if err := evaluate.CheckWorkingDirectory(dir); err != nil {
		return err
	}
	rule := f.rule()
	if rule != nil {
		if err := rule.CheckSample(); err != nil {
			return err
		}
	}
	info, err := submission.Info(dir, f.Name)
	if err != nil {
		return err
	}
	seen := inspected{Schema: "evalbox/submission/v1", File: info}
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
