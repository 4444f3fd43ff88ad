package trial_test

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"testing"

	"github.com/evalbox/evalbox/harness/trial"
)

// fake is a harness whose runs are a function; nil passes.
type fake struct {
	run func(ctx context.Context, job trial.Job, emit func(trial.Event)) (trial.Result, error)

	mu   sync.Mutex
	runs []string // names, in the order in which they began
}

func (f *fake) Kind() string   { return "fake" }
func (f *fake) Schema() []byte { return []byte("{}") }

func (f *fake) Plan(context.Context, trial.Job) (trial.Plan, error) { return trial.Plan{}, nil }

func (f *fake) Run(ctx context.Context, job trial.Job, emit func(trial.Event)) (trial.Result, error) {
	f.mu.Lock()
	f.runs = append(f.runs, job.Name)
	f.mu.Unlock()
	if f.run == nil {
		return passed, nil
	}
	return f.run(ctx, job, emit)
}

var (
	passed  = trial.Result{Verdict: trial.Passed, Runs: []trial.RunRef{{ID: "r1", Role: "program"}}}
	failed  = trial.Result{Verdict: trial.Failed, Reason: "timed_out", Runs: []trial.RunRef{{ID: "r1", Role: "program"}}}
	unclear = trial.Result{Verdict: trial.Inconclusive, Reason: "engine_lost", Runs: []trial.RunRef{{ID: "r1", Role: "program"}}}
)

// jobs returns jobs with the names and keys 0 to n-1.
func jobs(n int) iter.Seq[trial.Job] {
	return func(yield func(trial.Job) bool) {
		for i := range n {
			name := fmt.Sprint(i)
			if !yield(trial.Job{Name: name, Key: "key-" + name}) {
				return
			}
		}
	}
}

func openLog(tb testing.TB, dir string) *trial.Log {
	tb.Helper()
	log, err := trial.OpenLog(dir)
	if err != nil {
		tb.Fatal(err)
	}
	return log
}

func collect[T any](tb testing.TB, all iter.Seq2[T, error]) []T {
	tb.Helper()
	var list []T
	for v, err := range all {
		if err != nil {
			tb.Fatal(err)
		}
		list = append(list, v)
	}
	return list
}
