package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/gpu"
)

func TestBatchCode(t *testing.T) {
	require.Equal(t, 0, batchCode(nil, 0))
	require.Equal(t, exitSandbox, batchCode(nil, 1))
	require.Equal(t, exitProblem, batchCode(&failuresError{1}, 3))
	require.Equal(t, exitTimeLimit, batchCode(errBudget, 3))
	require.Equal(t, exitInterrupted, batchCode(interruption{Signal: os.Interrupt}, 3))
	require.Equal(t, exitInterrupted, batchCode(errors.Join(nil, interruption{Signal: os.Interrupt}), 3))
	require.Equal(t, exitSandbox, batchCode(errEngine, 3))
}

// Runs of a batch wait for each other's GPUs, and never without end.
func TestBatchGPUWait(t *testing.T) {
	s := settings.Settings{GPUWait: time.Minute, Limits: policy.Limits{Timeout: time.Hour}}
	parallel := 4
	require.Equal(t, time.Minute, gpuWait(s, parallel, s.Timeout()), "no GPUs")
	s.GPUs = "1"
	require.Equal(t, 4*(time.Hour+10*time.Minute), gpuWait(s, parallel, s.Timeout()))
	s.GPUWait = 24 * time.Hour
	require.Equal(t, 24*time.Hour, gpuWait(s, parallel, s.Timeout()))
	s.Limits.Timeout = 1<<62 - 1
	require.EqualValues(t, 1<<62, gpuWait(s, parallel, s.Timeout()), "no overflow")
	parallel = 1
	require.Equal(t, 24*time.Hour, gpuWait(s, parallel, s.Timeout()), "nothing to wait for but others")
}

// Next to N programs that run some containers are made, unless that would cost.
func TestBatchInFlight(t *testing.T) {
	for want, f := range map[int]batchFlags{
		2: {parallel: 1}, 4: {parallel: 2}, 12: {parallel: 8}, 3: {parallel: 3, maxFailures: 1}, 5: {parallel: 5, gpus: true},
		6: {parallel: 6, evaluateFlags: evaluateFlags{debugCommand: "x"}},
	} {
		require.Equal(t, want, f.inFlight())
	}
}

func TestGPUKind(t *testing.T) {
	device := func(name string, mib int64) gpu.Listed {
		return gpu.Listed{Device: gpu.Device{Name: name, TotalBytes: mib << 20}, State: gpu.StateFree}
	}
	sick := device("T4", 1)
	sick.State = gpu.StateQuarantined
	for name, test := range map[string]struct {
		listed     []gpu.Listed
		gpus, want string
		err        string
	}{
		"one kind":      {[]gpu.Listed{device("H200", 2), device("H200", 2)}, "1", "H200, 2 MiB", ""},
		"all":           {[]gpu.Listed{device("H200", 2), device("H200", 2)}, "all", "2 × H200, 2 MiB", ""},
		"sick ones":     {[]gpu.Listed{device("H200", 2), sick}, "all", "1 × H200, 2 MiB", ""},
		"two kinds":     {[]gpu.Listed{device("H200", 2), device("T4", 1)}, "1", "", "several kinds (H200, 2 MiB; T4, 1 MiB)"},
		"other memory":  {[]gpu.Listed{device("A100", 40), device("A100", 80)}, "1", "", "several kinds"},
		"nobody knows":  {[]gpu.Listed{device("", -1)}, "1", "", "is not known"},
		"there is none": {nil, "1", "", "is not known"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := gpuKind(test.listed, test.gpus)
			require.Equal(t, test.want, got)
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.err)
			}
		})
	}
}

// TestProgressKeepsTheBest: of graded scores, as soon as there is one; of valid runs.
func TestProgressKeepsTheBest(t *testing.T) {
	scored := func(name string, score float64, change func(e *evaluate.Evaluation)) evaluate.Evaluation {
		e := evaluate.Evaluation{Name: name, Run: &evaluate.RunFacts{Status: result.StatusExited},
			EvaluationResult: evaluate.EvaluationResult{Score: &score, DurationSeconds: 1}}
		if change != nil {
			change(&e)
		}
		return e
	}
	graded := func(score float64) func(e *evaluate.Evaluation) {
		return func(e *evaluate.Evaluation) { e.Grading, e.GradedScore = &evaluate.Grading{}, &score }
	}
	var stderr bytes.Buffer
	var p progress
	p.start(&app{streams: Streams{Err: &stderr}}, false, evaluate.Minimize, 10, 5)
	require.Equal(t, "0 running", p.describe())
	p.end(scored("a", 3, nil))
	p.end(scored("b\x1b[2J", 5, nil))
	p.end(scored("c", 1, func(e *evaluate.Evaluation) { e.IsError = true }))
	require.Equal(t, "0 running · best 3", p.describe())
	p.end(scored("d", 1, graded(8)))
	p.end(scored("e", 1, nil))
	_, _ = p.admitted(func() {}, nil)
	require.Equal(t, "1 running · best 8", p.describe())
	p.once("waiting: a")
	p.once("waiting: b")
	p.stop()
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	require.Len(t, lines, 6)
	require.Equal(t, "sandbox: 6/10 a · exited 0 · score 3 · 1.00s", lines[0])
	require.NotContains(t, stderr.String(), "\x1b")
	require.Equal(t, "sandbox: waiting: a", lines[5])
}

// A grader that fails counts as a failure, and the line says why; nobody is blamed for
// what the caller ended.
func TestBatchCountsFailures(t *testing.T) {
	failed := evaluated("f", func(e *evaluate.Evaluation) {
		e.Grading = &evaluate.Grading{Failure: "no module\nnamed x", Ended: true}
	})
	ended := evaluated("e", func(e *evaluate.Evaluation) { e.Run.Status = result.StatusCanceled })
	stopped := evaluated("s", func(e *evaluate.Evaluation) { e.Grading = &evaluate.Grading{Failure: "canceled", Canceled: true} })
	b := &batchRun{flags: batchFlags{maxFailures: 1}}
	for _, e := range []evaluate.Evaluation{ended, stopped, evaluated("w", nil)} {
		require.NoError(t, b.enough(evaluate.BatchItem{Evaluation: e}), e.Name)
	}
	require.Equal(t, &failuresError{1}, b.enough(evaluate.BatchItem{Evaluation: failed}))
	require.Equal(t, "f · exited 0 · no score · not graded: no module named x · 1.00s", render.EvaluationEnd(failed))

	wrong := evaluated("w", func(e *evaluate.Evaluation) {
		e.Submission = &evaluate.SubmissionCheck{Problems: []string{"1 rows, the sample has 2", "more"}}
	})
	require.Equal(t, "w · exited 0 · no score · submission: 1 rows, the sample has 2 · 1.00s", render.EvaluationEnd(wrong))
	wrong.Submission.Failure = "canceled"
	require.Equal(t, "w · exited 0 · no score · submission not checked: canceled · 1.00s", render.EvaluationEnd(wrong))

	b.all = []*evaluate.Evaluation{&failed, &ended, new(evaluated("w", nil))}
	b.flags.results = "r"
	require.Equal(t, "batch of 3: 1 ended well, 1 failed, 1 without a conclusive result · results in r; the same command goes on from there", b.sum(0, 1))
	b.debugged.Add(2)
	require.Contains(t, b.sum(0, 1), " · 2 debug commands failed · results in r")
}

// Each script's first warning is told, however many there are.
func TestBatchWarnings(t *testing.T) {
	var stderr bytes.Buffer
	var p progress
	p.start(&app{streams: Streams{Err: &stderr}}, false, evaluate.Maximize, 2, 2)
	warned := evaluated("w", func(e *evaluate.Evaluation) {
		e.Warnings = []string{"retry 1: the debugger failed:\nno " + strings.Repeat("x", 300), "b", "c"}
	})
	p.end(warned)
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	require.Len(t, lines, 2)
	require.True(t, strings.HasPrefix(lines[1], "sandbox: warning: w: retry 1: the debugger failed: no xxx"), lines[1])
	require.True(t, strings.HasSuffix(lines[1], "x… (and 2 more)"), lines[1])
	require.Less(t, len(lines[1]), 300)
	require.Equal(t, "w: one", render.EvaluationWarning(evaluated("w", func(e *evaluate.Evaluation) { e.Warnings = []string{"one"} })))
	require.Empty(t, render.EvaluationWarning(evaluated("w", nil)))

	require.Equal(t, "10s, 10s left", p.times(10*time.Second))
	p.repair(1)
	require.Equal(t, "0 running, 1 in repair", p.describe())
	p.repair(-1)
	require.Equal(t, "0 running", p.describe())
}

// A result that cannot be written down is kept for the end all the same.
func TestBatchKeepsWhatItCannotWrite(t *testing.T) {
	b := &batchRun{all: make([]*evaluate.Evaluation, 1)}
	b.ended(t.Context(), 0, evaluate.BatchItem{Evaluation: evaluated("a", nil)})
	require.Equal(t, "a", b.all[0].Name)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b.all[0] = nil
	b.ended(ctx, 0, evaluate.BatchItem{Evaluation: evaluate.Evaluation{Name: "never begun"}})
	require.Nil(t, b.all[0])
}
