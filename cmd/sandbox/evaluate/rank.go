package evaluate

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/text"
)

// NewRank returns the command `rank`.
func NewRank(a *cli.App) *cobra.Command {
	var direction string
	cmd := &cobra.Command{
		Use:   "rank RESULTS.jsonl --direction maximize|minimize",
		Short: "Order the evaluations of a results file, best first",
		Long: `Order the evaluations of a results file: valid scores first, best first; then
scripts without a score; then those that ended in an error. Where a grader was
used, only its scores count. Of several evaluations of one name and seed one counts:
of the last version of the script the last conclusive one.

A last line that was cut, as a crash does, is left out with a warning.`,
		Example: "  sandbox rank results.jsonl --direction maximize\n  sandbox rank results.jsonl --direction minimize --json",
		Args:    cobra.ExactArgs(1),
		PreRunE: func(cmd *cobra.Command, _ []string) error {
			return cli.Check(cmd, cli.Wrong(evaluate.MetricDirection(direction).Check() != nil, "--direction must be maximize or minimize"))
		},
		RunE: a.With(func(ctx context.Context, s settings.Settings, args []string) error {
			return rank(ctx, a, s, args[0], evaluate.MetricDirection(direction))
		}),
	}
	cmd.Flags().StringVar(&direction, "direction", "", "which scores are better: `maximize` or minimize")
	a.SettingFlags(cmd, "json")
	return cmd
}

func rank(ctx context.Context, a *cli.App, s settings.Settings, path string, direction evaluate.MetricDirection) error {
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
	ranked, err := evaluate.RankResults(latest, direction)
	if err != nil {
		return err
	}
	if s.JSON {
		return a.PrintJSON(append([]evaluate.Result{}, ranked...))
	}
	if len(ranked) == 0 {
		a.Say("%s", path+" has no evaluations")
		return nil
	}
	return printLeaderboard(a, render.ResultsTitle(ranked, direction), ranked)
}

// printLeaderboard prints ranked evaluations as a table below its title.
func printLeaderboard(a *cli.App, title string, ranked []evaluate.Result) error {
	if err := a.Print("%s\n", text.OneLine(title)); err != nil {
		return err
	}
	header, rows := render.Leaderboard(ranked)
	return a.PrintTable(header, rows)
}
