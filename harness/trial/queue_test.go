package trial_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/trial"
)

func TestQueueRunsJobsInTheirOrder(t *testing.T) {
	h := &fake{}
	var events []string
	q := trial.Queue{Emit: func(e trial.Event) error {
		require.Equal(t, trial.EventSchemaV1, e.Schema)
		require.False(t, e.Time.IsZero())
		events = append(events, string(e.Kind))
		if e.Kind == trial.EventEnded {
			require.Equal(t, e.Job, e.Result.Job.ID)
			require.Equal(t, trial.ResultSchemaV1, e.Result.Schema)
			require.Equal(t, "fake", e.Result.Job.Kind)
			require.Equal(t, 1, e.Result.Job.Attempt)
		}
		return nil
	}}
	summary, err := q.Run(t.Context(), h, jobs(3))
	require.NoError(t, err)
	require.Equal(t, []string{"0", "1", "2"}, h.runs)
	require.Equal(t, []string{"started", "ended", "started", "ended", "started", "ended"}, events)
	require.Equal(t, trial.Summary{Jobs: 3, Passed: 3, Usage: trial.Usage{Runs: 3}}, summary)

	summary, err = trial.Queue{Parallel: 4}.Run(t.Context(), h, jobs(0))
	require.NoError(t, err)
	require.Zero(t, summary)
}

func TestQueueIDsAreUniqueAndSorted(t *testing.T) {
	var ids []string
	for range 1000 {
		ids = append(ids, trial.NewID())
	}
	require.True(t, slices.IsSorted(ids))
	require.Len(t, slices.Compact(ids), 1000)
}

func TestQueueRunsSeveralAtOnce(t *testing.T) {
	const parallel = 4
	var all sync.WaitGroup
	all.Add(parallel)
	h := &fake{run: func(context.Context, trial.Job, func(trial.Event)) (trial.Result, error) {
		all.Done()
		all.Wait() // ends only if all run at the same time
		return passed, nil
	}}
	summary, err := trial.Queue{Parallel: parallel}.Run(t.Context(), h, jobs(parallel))
	require.NoError(t, err)
	require.Equal(t, parallel, summary.Passed)
}

// TestInOrder: programs are admitted in the order of their jobs, whichever is ready first.
func TestInOrder(t *testing.T) {
	for range 20 {
		var admitted []string // admit makes one append after the other
		next := make(chan struct{}, 1)
		next <- struct{}{}
		admit := trial.InOrder(func(ctx context.Context) (func(), error) {
			<-next
			admitted = append(admitted, ctx.Value(nameKey{}).(string))
			next <- struct{}{}
			return func() {}, nil
		})
		h := &fake{run: func(ctx context.Context, job trial.Job, _ func(trial.Event)) (trial.Result, error) {
			if job.Name == "2" {
				return failed, nil // ends without being admitted
			}
			_, err := admit(context.WithValue(ctx, nameKey{}, job.Name))
			return passed, err
		}}
		_, err := trial.Queue{Parallel: 4}.Run(t.Context(), h, jobs(8))
		require.NoError(t, err)
		require.Equal(t, []string{"0", "1", "3", "4", "5", "6", "7"}, admitted)
	}

	// The second job is at the admission before the first one is.
	second := make(chan struct{})
	var order []string
	var mu sync.Mutex
	admit := trial.InOrder(func(ctx context.Context) (func(), error) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, ctx.Value(nameKey{}).(string))
		return func() {}, nil
	})
	h := &fake{run: func(ctx context.Context, job trial.Job, _ func(trial.Event)) (trial.Result, error) {
		ctx = context.WithValue(ctx, nameKey{}, job.Name)
		if job.Name == "1" {
			close(second)
		} else {
			<-second
		}
		_, err := admit(ctx)
		if err == nil && job.Name == "0" {
			_, err = admit(ctx) // a grader does not wait
		}
		return passed, err
	}}
	_, err := trial.Queue{Parallel: 2}.Run(t.Context(), h, jobs(2))
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"0", "0", "1"}, order)
	require.Equal(t, "0", order[0])

	_, err = admit(context.WithValue(t.Context(), nameKey{}, "outside"))
	require.NoError(t, err, "a run outside of a queue")
	require.Contains(t, order, "outside")
}

type nameKey struct{}

func TestQueueBudgets(t *testing.T) {
	verdicts := func(all string) func(context.Context, trial.Job, func(trial.Event)) (trial.Result, error) {
		return func(_ context.Context, job trial.Job, _ func(trial.Event)) (trial.Result, error) {
			res := passed
			switch all[job.Name[0]-'0'] {
			case 'f':
				res = failed
			case 'r':
				res = trial.Result{Verdict: trial.Refused}
			case 'i':
				res = unclear
			}
			res.Usage.GPUSeconds = 1.5
			return res, nil
		}
	}
	for name, test := range map[string]struct {
		budget trial.Budget
		all    string
		ran    int
		want   *trial.BudgetError
	}{
		"failures":               {trial.Budget{Failures: 2}, "pfprpp", 4, &trial.BudgetError{Budget: "failures", Limit: "2"}},
		"inconclusive ones too":  {trial.Budget{Failures: 1}, "pippp", 2, &trial.BudgetError{Budget: "failures", Limit: "1"}},
		"not so many":            {trial.Budget{Failures: 3}, "pfpr", 4, nil},
		"in a row":               {trial.Budget{FailuresInARow: 2}, "fpfpffp", 6, &trial.BudgetError{Budget: "failures in a row", Limit: "2"}},
		"runs":                   {trial.Budget{Runs: 3}, "ppppp", 3, &trial.BudgetError{Budget: "runs", Limit: "3"}},
		"runs of a refused one":  {trial.Budget{Runs: 2}, "rrpp", 4, &trial.BudgetError{Budget: "runs", Limit: "2"}},
		"GPU seconds":            {trial.Budget{GPUSeconds: 4}, "ppppp", 3, &trial.BudgetError{Budget: "GPU seconds", Limit: "4"}},
		"used up by the last":    {trial.Budget{Runs: 2}, "pp", 2, &trial.BudgetError{Budget: "runs", Limit: "2"}},
		"nothing bounds nothing": {trial.Budget{}, "ffff", 4, nil},
	} {
		t.Run(name, func(t *testing.T) {
			h := &fake{run: verdicts(test.all)}
			summary, err := trial.Queue{Budget: test.budget}.Run(t.Context(), h, jobs(len(test.all)))
			require.Len(t, h.runs, test.ran)
			require.Equal(t, test.ran, summary.Jobs)
			if test.want == nil {
				require.NoError(t, err)
				require.Zero(t, summary.NotStarted)
				return
			}
			require.Equal(t, test.want, err)
			require.Equal(t, -1, summary.NotStarted)
		})
	}
}

// TestQueueLetsRunningJobsEnd: a budget of failures does not cancel what runs.
func TestQueueLetsRunningJobsEnd(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	first := make(chan struct{})
	h := &fake{run: func(ctx context.Context, job trial.Job, _ func(trial.Event)) (trial.Result, error) {
		both.Done()
		both.Wait()
		if job.Name == "0" {
			return failed, nil
		}
		<-first
		return passed, ctx.Err()
	}}
	q := trial.Queue{Parallel: 2, Budget: trial.Budget{Failures: 1}, Emit: func(e trial.Event) error {
		if e.Kind == trial.EventEnded && e.Result.Verdict == trial.Failed {
			close(first)
		}
		return nil
	}}
	summary, err := q.Run(t.Context(), h, jobs(10))
	require.ErrorAs(t, err, new(*trial.BudgetError))
	require.Equal(t, 1, summary.Passed)
	require.Equal(t, 2, summary.Jobs)
}

// TestQueueWallTime: what runs when the time is up is canceled, and reported.
func TestQueueWallTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &fake{run: func(ctx context.Context, job trial.Job, _ func(trial.Event)) (trial.Result, error) {
			select {
			case <-time.After(40 * time.Minute):
				return passed, nil
			case <-ctx.Done():
				if job.Name == "1" {
					return unclear, nil
				}
				return trial.Result{}, context.Cause(ctx) // had not started
			}
		}}
		var ended []string
		q := trial.Queue{Budget: trial.Budget{Wall: time.Hour}, Parallel: 1, Retry: trial.Retry{Max: 5}, Emit: func(e trial.Event) error {
			if e.Kind == trial.EventEnded {
				ended = append(ended, string(e.Result.Verdict))
			}
			return nil
		}}
		began := time.Now()
		summary, err := q.Run(t.Context(), h, jobs(10))
		require.Equal(t, time.Hour, time.Since(began))
		var budget *trial.BudgetError
		require.ErrorAs(t, err, &budget)
		require.Equal(t, trial.BudgetError{Budget: "wall time", Limit: "1h0m0s"}, *budget)
		require.Equal(t, []string{"passed", "inconclusive"}, ended, "a canceled job is not tried again")
		require.Equal(t, -1, summary.NotStarted)

		q.Parallel, h.runs = 20, nil
		h.run = func(ctx context.Context, _ trial.Job, _ func(trial.Event)) (trial.Result, error) {
			<-ctx.Done()
			return trial.Result{}, context.Cause(ctx)
		}
		summary, err = q.Run(t.Context(), h, jobs(10))
		require.ErrorAs(t, err, &budget)
		require.Equal(t, trial.Summary{NotStarted: 10}, summary)
	})
}

func TestQueueRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := errors.New("the engine is down")
		var at []time.Duration
		began := time.Now()
		h := &fake{run: func(_ context.Context, job trial.Job, _ func(trial.Event)) (trial.Result, error) {
			at = append(at, time.Since(began))
			require.Equal(t, len(at), job.Attempt)
			switch len(at) {
			case 1:
				return unclear, nil
			case 5:
				return passed, nil
			}
			return trial.Result{}, down
		}}
		log := openLog(t, t.TempDir())
		var why []string
		q := trial.Queue{Log: log, Retry: trial.Retry{Max: 9, Wait: 20 * time.Second}, Emit: func(e trial.Event) error {
			if e.Kind == trial.EventRetry {
				why = append(why, e.Text)
			}
			return nil
		}}
		summary, err := q.Run(t.Context(), h, jobs(1))
		require.NoError(t, err)
		require.Equal(t, []time.Duration{0, 20 * time.Second, time.Minute, 2 * time.Minute, 3 * time.Minute}, at)
		require.Equal(t, []string{"engine_lost", down.Error(), down.Error(), down.Error()}, why)
		require.Equal(t, trial.Summary{Jobs: 1, Passed: 1, Usage: trial.Usage{Runs: 2}}, summary)
		listed := collect(t, log.List())
		require.Len(t, listed, 1)
		require.Equal(t, 5, listed[0].Job.Attempt)
		require.Len(t, listed[0].Runs, 2, "the runs of all tries")
	})
}

func TestQueueRetriesByReason(t *testing.T) {
	for name, test := range map[string]struct {
		retry trial.Retry
		res   trial.Result
		runs  int
	}{
		"none":                   {trial.Retry{}, unclear, 1},
		"failed is an answer":    {trial.Retry{Max: 2}, failed, 1},
		"inconclusive":           {trial.Retry{Max: 2}, unclear, 3},
		"by reason":              {trial.Retry{Max: 2, If: func(r trial.Result) bool { return r.Reason == "timed_out" }}, failed, 3},
		"by another reason":      {trial.Retry{Max: 2, If: func(r trial.Result) bool { return r.Reason == "timed_out" }}, unclear, 1},
		"until a budget is used": {trial.Retry{Max: 9}, unclear, 4},
	} {
		t.Run(name, func(t *testing.T) {
			h := &fake{run: func(context.Context, trial.Job, func(trial.Event)) (trial.Result, error) { return test.res, nil }}
			_, err := trial.Queue{Retry: test.retry, Budget: trial.Budget{Runs: 4}}.Run(t.Context(), h, jobs(1))
			require.Equal(t, test.runs == 4, err != nil)
			require.Len(t, h.runs, test.runs)
		})
	}
}

// A job that its neighbours disturbed is tried again when all of them have ended, and alone.
func TestQueueRetriesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, ended atomic.Int32
		h := &fake{run: func(_ context.Context, job trial.Job, _ func(trial.Event)) (trial.Result, error) {
			defer ended.Add(1)
			defer running.Add(-1)
			running.Add(1)
			if job.Name == "4" { // the last one that began
				time.Sleep(time.Hour)
				return passed, nil
			}
			switch {
			case job.Attempt == 1 && job.Name != "2":
				return unclear, nil
			case job.Attempt > 1:
				require.Equal(t, int32(1), running.Load())
				require.GreaterOrEqual(t, ended.Load(), int32(5))
				if job.Name == "3" {
					return unclear, nil
				}
			}
			return passed, nil
		}}
		log := openLog(t, t.TempDir())
		q := trial.Queue{Parallel: 2, Log: log, Retry: trial.Retry{Max: 2, Alone: true}, Budget: trial.Budget{Failures: 2}}
		summary, err := q.Run(t.Context(), h, jobs(5))
		require.NoError(t, err)
		require.Equal(t, 4, summary.Passed)
		require.Equal(t, 1, summary.Inconclusive)
		require.Len(t, h.runs, 5+4, "the first try of all, a second one of three, and a third one")
		listed := collect(t, log.List())
		require.Len(t, listed, 5, "one result each")
		// The results are listed in the order in which their jobs first ended.
		at := slices.IndexFunc(listed, func(r trial.Result) bool { return r.Job.Name == "3" })
		require.GreaterOrEqual(t, at, 0)
		last := listed[at]
		require.Equal(t, 3, last.Job.Attempt)
		require.Len(t, last.Runs, 3)
	})
}

func TestQueueErrorsOfTheHarness(t *testing.T) {
	ours := errors.New("no such image")
	h := &fake{run: func(_ context.Context, job trial.Job, _ func(trial.Event)) (trial.Result, error) {
		switch job.Name {
		case "1":
			return trial.Result{}, ours
		case "3":
			return trial.Result{Verdict: "splendid"}, nil
		}
		return passed, nil
	}}
	log := openLog(t, t.TempDir())
	_, err := trial.Queue{Log: log}.Run(t.Context(), h, jobs(5))
	require.ErrorIs(t, err, ours)
	require.Equal(t, []string{"0", "1"}, h.runs)
	listed := collect(t, log.List())
	require.Equal(t, trial.Inconclusive, listed[1].Verdict)
	whole, err := log.Get(listed[1].Job.ID)
	require.NoError(t, err)
	require.Equal(t, []trial.Problem{{Rule: "no such image"}}, whole.Problems)
	require.Equal(t, -1, whole.ExitCode)

	// The caller decides which error ends the queue.
	var reported []string
	enough := errors.New("enough")
	h.runs = nil
	summary, err := trial.Queue{Failed: func(job trial.Job, err error) error {
		reported = append(reported, job.Name+": "+err.Error())
		if !errors.Is(err, ours) {
			return enough
		}
		return nil
	}}.Run(t.Context(), h, jobs(5))
	require.Equal(t, enough, err)
	require.Equal(t, []string{"0", "1", "2", "3"}, h.runs)
	require.Equal(t, []string{"1: no such image", `3: the harness fake returned the verdict "splendid", which does not exist`}, reported)
	require.Equal(t, 2, summary.Inconclusive)
}

// TestQueueEndsWithItsContext: what runs is canceled, and reported; an error of Emit does
// the same.
func TestQueueEndsWithItsContext(t *testing.T) {
	stop := errors.New("stop")
	wait := func(ctx context.Context, _ trial.Job, _ func(trial.Event)) (trial.Result, error) {
		<-ctx.Done()
		res := unclear
		res.Reason = context.Cause(ctx).Error()
		return res, nil
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	var reasons []string
	q := trial.Queue{Parallel: 2, Emit: func(e trial.Event) error {
		switch e.Kind {
		case trial.EventStarted:
			cancel(stop)
		case trial.EventEnded:
			reasons = append(reasons, e.Result.Reason)
		default:
		}
		return nil
	}}
	_, err := q.Run(ctx, &fake{run: wait}, jobs(10))
	require.ErrorIs(t, err, stop)
	require.NotEmpty(t, reasons)
	require.Equal(t, "stop", reasons[0])

	calls := 0
	q.Emit = func(trial.Event) error {
		calls++
		return stop
	}
	summary, err := q.Run(t.Context(), &fake{run: wait}, jobs(10))
	require.Equal(t, stop, err)
	require.Equal(t, 1, calls, "nothing is emitted after an error")
	require.LessOrEqual(t, summary.Jobs, 2)
}

func TestQueueEventsOfTheHarness(t *testing.T) {
	h := &fake{run: func(_ context.Context, _ trial.Job, emit func(trial.Event)) (trial.Result, error) {
		var both sync.WaitGroup
		both.Go(func() { emit(trial.Event{Kind: trial.EventWaiting, Text: "for GPU 0"}) })
		both.Go(func() { emit(trial.Event{Kind: trial.EventStarted, Run: "r1", Role: "program"}) })
		both.Wait()
		return passed, nil
	}}
	log := openLog(t, t.TempDir())
	var running atomic.Int64
	var emitted []trial.Event
	q := trial.Queue{Parallel: 3, Log: log, Emit: func(e trial.Event) error {
		if running.Add(1) != 1 {
			return errors.New("two calls at the same time")
		}
		defer running.Add(-1)
		emitted = append(emitted, e)
		if e.Kind == trial.EventEnded {
			_, err := log.Get(e.Job)
			return err
		}
		return nil
	}}
	_, err := q.Run(t.Context(), h, jobs(20))
	require.NoError(t, err)
	require.Len(t, emitted, 80)
	var kinds []string
	for _, e := range collect(t, log.Events(emitted[0].Job)) {
		kinds = append(kinds, fmt.Sprint(e.Kind, e.Run, e.Text))
	}
	require.ElementsMatch(t, []string{"started", "waitingfor GPU 0", "startedr1", "ended"}, kinds)
}

func TestQueueKnownJobsDoNotRun(t *testing.T) {
	log := openLog(t, t.TempDir())
	h := &fake{run: func(_ context.Context, job trial.Job, _ func(trial.Event)) (trial.Result, error) {
		switch job.Name {
		case "1":
			return failed, nil
		case "2":
			return unclear, nil
		}
		return passed, nil
	}}
	q := trial.Queue{Log: log, Known: log.Known, Budget: trial.Budget{Failures: 3}}
	_, err := q.Run(t.Context(), h, jobs(4))
	require.NoError(t, err)
	h.runs = nil
	var known []string
	q.Budget.Failures = 2
	q.Emit = func(e trial.Event) error {
		if e.Kind == trial.EventKnown {
			require.Equal(t, e.Job, e.Result.Job.ID)
			known = append(known, e.Result.Job.Name)
		}
		return nil
	}
	summary, err := q.Run(t.Context(), h, jobs(6))
	require.NoError(t, err, "known failures do not count")
	require.Equal(t, []string{"0", "1", "3"}, known)
	require.Equal(t, []string{"2", "4", "5"}, h.runs, "what was inconclusive runs again")
	require.Equal(t, trial.Summary{Jobs: 6, Known: 3, Passed: 4, Failed: 1, Inconclusive: 1, Usage: trial.Usage{Runs: 3}}, summary)

	// Another process sees them too, and a job of the same ID without a key.
	id := collect(t, log.List())[0].Job.ID
	_, ok := openLog(t, t.TempDir()).Known(trial.Job{ID: id})
	require.False(t, ok)
	_, ok = log.Known(trial.Job{ID: id})
	require.True(t, ok)
	_, ok = log.Known(trial.Job{Name: "0"})
	require.False(t, ok)
}

func TestLabels(t *testing.T) {
	require.Equal(t, map[string]string{"trial.id": "j1", "trial.kind": "gate", "trial.parent": "b1", "trial.role": "probe"},
		trial.Job{ID: "j1", Kind: "gate", Parent: "b1"}.Labels("probe"))
	require.Equal(t, map[string]string{"trial.id": "j1"}, trial.Job{ID: "j1"}.Labels(""))
	require.Empty(t, trial.Job{Kind: "gate"}.Labels("probe"), "a run outside of a queue")
}
