package evaluate

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/evaluate/submission"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

func TestBatchCode(t *testing.T) {
	require.Equal(t, 0, batchCode(nil, 0))
	require.Equal(t, cli.ExitSandbox, batchCode(nil, 1))
	require.Equal(t, cli.ExitProblem, batchCode(&evaluate.FailuresError{Count: 1}, 3))
	require.Equal(t, cli.ExitTimeLimit, batchCode(evaluate.ErrBudget, 3))
	require.Equal(t, cli.ExitInterrupted, batchCode(cli.SignalError{Signal: os.Interrupt}, 3))
	require.Equal(t, cli.ExitInterrupted, batchCode(errors.Join(nil, cli.SignalError{Signal: os.Interrupt}), 3))
	require.Equal(t, cli.ExitSandbox, batchCode(evaluate.ErrEngine, 3))
}

// Runs of a batch wait for each other's GPUs, and never without end.
func TestBatchGPUWait(t *testing.T) {
	s := settings.Settings{GPUWait: time.Minute, Limits: policy.Limits{Timeout: time.Hour}}
	parallel := 4
	require.Equal(t, time.Minute, cli.GPUWait(s, parallel, s.Timeout()), "no GPUs")
	s.GPUs = "1"
	require.Equal(t, 4*(time.Hour+10*time.Minute), cli.GPUWait(s, parallel, s.Timeout()))
	s.GPUWait = 24 * time.Hour
	require.Equal(t, 24*time.Hour, cli.GPUWait(s, parallel, s.Timeout()))
	s.Limits.Timeout = 1<<62 - 1
	require.EqualValues(t, 1<<62, cli.GPUWait(s, parallel, s.Timeout()), "no overflow")
	parallel = 1
	require.Equal(t, 24*time.Hour, cli.GPUWait(s, parallel, s.Timeout()), "nothing to wait for but others")
}

// TestProgressKeepsTheBest: of graded scores, as soon as there is one; of valid runs.
func TestProgressKeepsTheBest(t *testing.T) {
	scored := func(name string, score float64, change func(e *evaluate.Result)) evaluate.Result {
		e := evaluate.Result{Name: name, Run: &evaluate.RunFacts{Status: result.StatusExited},
			EvaluationResult: evaluate.EvaluationResult{Score: &score, DurationSeconds: 1}}
		if change != nil {
			change(&e)
		}
		return e
	}
	graded := func(score float64) func(e *evaluate.Result) {
		return func(e *evaluate.Result) { e.Grading, e.GradedScore = &evaluate.Grading{}, &score }
	}
	var stderr bytes.Buffer
	var p progress
	p.direction = evaluate.Minimize
	p.Start(&cli.App{Streams: cli.Streams{Err: &stderr}}, false, 10, 5)
	require.Empty(t, p.more())
	p.ended(scored("a", 3, nil))
	p.ended(scored("b\x1b[2J", 5, nil))
	p.ended(scored("c", 1, func(e *evaluate.Result) { e.IsError = true }))
	require.Equal(t, " · best 3", p.more())
	p.ended(scored("d", 1, graded(8)))
	p.ended(scored("e", 1, nil))
	p.Running(1)
	p.best = new(0.1 + 0.11)
	require.Equal(t, " · best 0.21", p.more())
	p.best = new(8.0)
	require.Equal(t, " · best 8", p.more())
	p.Once("waiting: a")
	p.Once("waiting: b")
	p.Stop()
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	require.Len(t, lines, 6)
	require.Equal(t, "sandbox: 6/10 a · exited 0 · score 3 · 1.00s", lines[0])
	require.NotContains(t, stderr.String(), "\x1b")
	require.Equal(t, "sandbox: waiting: a", lines[5])
}

// A grader that fails counts as a failure, and the line says why; nobody is blamed for
// what the caller ended.
func TestBatchCountsFailures(t *testing.T) {
	failed := evaluated("f", func(e *evaluate.Result) {
		e.Grading = &evaluate.Grading{Failure: "no module\nnamed x", Ended: true}
	})
	ended := evaluated("e", func(e *evaluate.Result) { e.Run.Status, e.Run.Fault = result.StatusCanceled, result.FaultOperator })
	stopped := evaluated("s", func(e *evaluate.Result) { e.Grading = &evaluate.Grading{Failure: "canceled", Canceled: true} })
	require.False(t, failed.EndedWell())
	require.True(t, stopped.EndedWell())
	require.Equal(t, "f · exited 0 · no score · not graded: no module named x · 1.00s", render.EvaluationEnd(failed))

	wrong := evaluated("w", func(e *evaluate.Result) {
		e.Submission = &submission.Check{Problems: []string{"1 rows, the sample has 2", "more"}}
	})
	require.Equal(t, "w · exited 0 · no score · submission: 1 rows, the sample has 2 · 1.00s", render.EvaluationEnd(wrong))
	wrong.Submission.Failure = "canceled"
	require.Equal(t, "w · exited 0 · no score · submission not checked: canceled · 1.00s", render.EvaluationEnd(wrong))

	sum := render.BatchSum([]*evaluate.Result{&failed, &ended, new(evaluated("w", nil)), nil})
	require.Equal(t, "batch of 4: 1 ended well, 1 failed, 1 without a conclusive result, 1 not started · results in r; the same command continues from there", sum.Text("r", 0))
	rule := evaluated("b", func(e *evaluate.Result) { e.IsError, e.Run.Status = true, result.StatusStoppedByRule })
	starved := failed
	starved.Run = &evaluate.RunFacts{Status: result.StatusTimedOut, Fault: result.FaultEnvironment}
	sum = render.BatchSum([]*evaluate.Result{&starved})
	require.Equal(t, [2]int{1, 1}, [2]int{sum.Inconclusive, sum.Starved})
	require.Contains(t, sum.Text("r", 0), "1 without a conclusive result (1 timed out because other work had starved them) · results in r; the same command runs those again")
	require.Contains(t, render.BatchSum([]*evaluate.Result{&failed, &rule}).Text("r", 0), "batch of 2: 0 ended well, 2 failed (1 by a stop rule) · ")
	require.Contains(t, sum.Text("r", 2), " · 2 debug commands failed · results in r")
}

// Each script's first warning is shown, however many there are.
func TestBatchWarnings(t *testing.T) {
	var stderr bytes.Buffer
	var p progress
	p.direction = evaluate.Maximize
	p.Start(&cli.App{Streams: cli.Streams{Err: &stderr}}, false, 2, 2)
	warned := evaluated("w", func(e *evaluate.Result) {
		e.Warnings = []string{"retry 1: the debugger failed:\nno " + strings.Repeat("x", 300), "b", "c"}
	})
	p.ended(warned)
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	require.Len(t, lines, 2)
	require.True(t, strings.HasPrefix(lines[1], "sandbox: warning: w: retry 1: the debugger failed: no xxx"), lines[1])
	require.True(t, strings.HasSuffix(lines[1], "x… (and 2 more)"), lines[1])
	require.Less(t, len(lines[1]), 300)
	require.Equal(t, "w: one", render.EvaluationWarning(evaluated("w", func(e *evaluate.Result) { e.Warnings = []string{"one"} })))
	require.Empty(t, render.EvaluationWarning(evaluated("w", nil)))

	p.repairing++
	require.Equal(t, ", 1 in repair", p.more())
	p.repairing--
	require.Empty(t, p.more())
}
