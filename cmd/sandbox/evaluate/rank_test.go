package evaluate

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/result"
)

// evaluated is an evaluation of a run that exited with 0.
func evaluated(name string, change func(e *evaluate.Result)) evaluate.Result {
	e := evaluate.Result{Name: name, Run: &evaluate.RunFacts{ID: "run-" + name, Status: result.StatusExited, Fault: result.FaultNone},
		EvaluationResult: evaluate.EvaluationResult{DurationSeconds: 1}}
	if change != nil {
		change(&e)
	}
	return e
}

func TestLeaderboard(t *testing.T) {
	ranked := []evaluate.Result{
		evaluated("best", func(e *evaluate.Result) {
			e.Seed, e.Score, e.GradedScore, e.Grading = new(uint32(7)), new(0.003081700565274459), new(1.23456789123e+08), &evaluate.Grading{Run: &evaluate.RunFacts{}}
		}),
		evaluated(strings.Repeat("é", 60), func(e *evaluate.Result) {
			e.Score, e.Grading = new(0.5), &evaluate.Grading{Failure: "it crashed"}
		}),
		evaluated("stopped", func(e *evaluate.Result) {
			e.Score, e.Grading = new(0.5), &evaluate.Grading{Failure: "ended", Canceled: true}
		}),
		evaluated("crash", func(e *evaluate.Result) {
			e.IsError, e.ExitCode, e.Grading, e.ErrorTraceback = true, 3, &evaluate.Grading{Failure: "the script failed"}, new("Traceback\nValueError: x\n")
		}),
		{Name: "lost", Failure: strings.Repeat("x", 100), EvaluationResult: evaluate.EvaluationResult{ExitCode: -1}},
	}
	var out bytes.Buffer
	a := &cli.App{Streams: cli.Streams{Out: &out}}
	require.NoError(t, printLeaderboard(a, "c · m, maximize", render.Board{Ranked: ranked, Direction: evaluate.Maximize}))
	name := strings.Repeat("é", 60)
	require.Equal(t, []string{
		"c · m, maximize",
		"RANK NAME SEED GRADED SCORE STATUS DURATION RUN WHY",
		"1 best 7 1.23457e+08 0.0030817 exited 0 1.00s run-best -",
		"- " + name + " - failed 0.5 exited 0 1.00s run-" + name + " not graded: it crashed",
		"- stopped - canceled 0.5 exited 0 1.00s run-stopped not graded: interrupted",
		"- crash - - - exited 3 1.00s run-crash ValueError: x",
		"- lost - - - failed - - " + strings.Repeat("x", 100),
	}, collapsed(out.String()))
	require.Contains(t, out.String(), "       7  1.23457e+08  0.0030817  exited 0", "numbers are on the right")

	// Columns without a use are left out, and nothing ends in blanks.
	out.Reset()
	require.NoError(t, printLeaderboard(a, "t", render.Board{Ranked: []evaluate.Result{evaluated("a", func(e *evaluate.Result) { e.Score = new(1.0) })}}))
	require.Equal(t, "t\nRANK  NAME  SCORE  STATUS    DURATION  RUN\n1     a         1  exited 0     1.00s  run-a\n", out.String())
}

// collapsed are lines whose columns are one blank apart.
func collapsed(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}
