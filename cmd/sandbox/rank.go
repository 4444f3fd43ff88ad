package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/evalbox/evalbox/harness/evaluate"
)

func newRankCommand(a *app) *cobra.Command {
	var direction string
	cmd := &cobra.Command{
		Use:   "rank RESULTS.jsonl --direction maximize|minimize",
		Short: "Order the evaluations of a results file, best first",
		Long: `Order the evaluations of a results file: valid scores first, best first; then
scripts without a score; then those that ended in an error. Where a grader was
used, only its scores count. Of several evaluations of one script and seed the last
one counts.

A last line that was cut, as a crash does, is left out with a warning.`,
		Example: "  sandbox rank results.jsonl --direction maximize\n  sandbox rank results.jsonl --direction minimize --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			d := evaluate.MetricDirection(direction)
			if d.Check() != nil {
				return usagef(cmd.CommandPath(), "rank: --direction must be maximize or minimize")
			}
			return a.rank(args[0], d)
		},
	}
	cmd.Flags().StringVar(&direction, "direction", "", "which scores are better: `maximize` or minimize")
	a.settingFlags(cmd, false, "json")
	return cmd
}

func (a *app) rank(path string, direction evaluate.MetricDirection) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	report, err := evaluate.ReadResults(path)
	if err != nil {
		return err
	}
	if report.Torn > 0 {
		a.warn(fmt.Sprintf("%s:%d: the line was cut and is left out", path, report.Torn))
	}
	latest, replaced := evaluate.Latest(report.Evaluations)
	if replaced > 0 {
		a.warn(fmt.Sprintf("%s: %d evaluations were replaced by later ones of the same script", path, replaced))
	}
	ranked, err := evaluate.RankEvaluations(latest, direction)
	if err != nil {
		return err
	}
	if s.JSON {
		return a.printJSON(append([]evaluate.Evaluation{}, ranked...))
	}
	return a.printLeaderboard(ranked)
}

// printLeaderboard prints ranked evaluations as a table.
func (a *app) printLeaderboard(ranked []evaluate.Evaluation) error {
	var rows [][]string
	for i, e := range ranked {
		graded := ""
		if e.Grading != nil {
			graded = "failed"
		}
		if e.GradedScore != nil {
			graded = formatScore(*e.GradedScore)
		}
		run := ""
		if e.Run != nil {
			run = e.Run.ID
		}
		rows = append(rows, []string{strconv.Itoa(i + 1), e.Name, graded, scoreText(e.Score), short(evaluationStatus(e), 60),
			formatSeconds(e.DurationSeconds), run})
	}
	return a.printTable([]string{"RANK", "NAME", "GRADED", "SCORE", "STATUS", "DURATION", "RUN"}, rows)
}

// evaluationStatus says in a few words how an evaluation ended.
func evaluationStatus(e evaluate.Evaluation) string {
	status := ""
	switch {
	case e.Failure != "":
		status = "failed: " + e.Failure
	case e.ErrorReason == evaluate.ErrorReasonRejected:
		status = "refused"
	case e.Run != nil && e.Run.Status.String() == "exited":
		status = "exited " + strconv.Itoa(e.ExitCode)
		if e.ExitCode == 0 && e.IsError {
			status += " with a traceback"
		}
	case e.Run != nil:
		status = e.Run.Status.String()
	}
	if e.Cached {
		status += " (cached)"
	}
	return status
}
