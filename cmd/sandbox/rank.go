package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/text"
)

func newRankCommand(a *app) *cobra.Command {
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
		RunE: func(cmd *cobra.Command, args []string) error {
			d := evaluate.MetricDirection(direction)
			if d.Check() != nil {
				return usagef(cmd.CommandPath(), "rank: --direction must be maximize or minimize")
			}
			return a.rank(cmd.Context(), args[0], d)
		},
	}
	cmd.Flags().StringVar(&direction, "direction", "", "which scores are better: `maximize` or minimize")
	a.settingFlags(cmd, false, "json")
	return cmd
}

func (a *app) rank(ctx context.Context, path string, direction evaluate.MetricDirection) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	report, err := interruptibly(ctx, func() (evaluate.ReadReport, error) {
		return evaluate.ReadResults(path, evaluate.ReadOptions{Brief: !s.JSON})
	})
	if err != nil {
		return err
	}
	if report.Torn > 0 {
		a.warn(fmt.Sprintf("%s:%d: the line was cut and is left out", path, report.Torn))
	}
	latest, replaced := evaluate.Latest(report.Results)
	if text := render.Replaced(replaced); text != "" {
		a.warn(path + ": " + text)
	}
	if ids := evaluate.Competitions(latest); len(ids) > 1 {
		a.warn(fmt.Sprintf("%s: evaluations of %d competitions, whose scores cannot be compared: %s", path, len(ids), text.Fit(strings.Join(ids, ", "), text.Most)))
	}
	ranked, err := evaluate.RankResults(latest, direction)
	if err != nil {
		return err
	}
	if s.JSON {
		return a.printJSON(append([]evaluate.Result{}, ranked...))
	}
	if len(ranked) == 0 {
		a.say(path + " has no evaluations")
		return nil
	}
	return a.printLeaderboard(render.ResultsTitle(ranked, direction), ranked)
}

// printLeaderboard prints ranked evaluations as a table below its title.
func (a *app) printLeaderboard(title string, ranked []evaluate.Result) error {
	if err := a.print("%s\n", text.OneLine(title)); err != nil {
		return err
	}
	header, rows := render.Leaderboard(ranked)
	return a.printTable(header, rows)
}
