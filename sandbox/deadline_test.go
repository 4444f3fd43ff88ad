package sandbox

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestSoftTimeout: a program that finishes when it is asked to has a result like any other, and
// nobody is blamed for the signal. One that goes on runs into its time limit.
func TestSoftTimeout(t *testing.T) {
	const score = "Final Validation Performance: 0.5\n"
	for name, test := range map[string]struct {
		program    func(p *enginetest.Program) int
		signal     string
		status     result.Status
		deadline   result.Deadline
		code       int
		after      time.Duration
		unfinished bool
	}{
		"finishes": {func(p *enginetest.Program) int { <-p.Soft(); return 0 }, "",
			result.StatusExited, result.DeadlineSoft, 0, 8 * time.Second, false},
		"finishes by another signal": {func(p *enginetest.Program) int { <-p.Soft(); return 3 }, "SIGUSR1",
			result.StatusExited, result.DeadlineSoft, 3, 8 * time.Second, false},
		"takes its time": {func(p *enginetest.Program) int { <-p.Soft(); p.Sleep(time.Second); return 0 }, "SIGUSR2",
			result.StatusExited, result.DeadlineSoft, 0, 9 * time.Second, false},
		"has no handler": {func(p *enginetest.Program) int { <-p.Soft(); return enginetest.Died(15) }, "",
			result.StatusTimedOut, result.DeadlineSoft, -1, 8 * time.Second, true},
		"goes on": {func(p *enginetest.Program) int { p.Sleep(time.Hour); return 0 }, "",
			result.StatusTimedOut, result.DeadlineHard, -1, 15 * time.Second, true},
		"takes too much time": {func(p *enginetest.Program) int { <-p.Soft(); p.Sleep(3 * time.Second); return 0 }, "SIGUSR1",
			result.StatusTimedOut, result.DeadlineHard, -1, 11 * time.Second, true},
		"ends before": {func(p *enginetest.Program) int { return 0 }, "",
			result.StatusExited, result.DeadlineNone, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := enginetest.NewFake(func(p *enginetest.Program) int {
					p.Print(score)
					return test.program(p)
				})
				r := newFakeRunner(t, fake)
				req := command("train")
				req.Limits.Timeout, req.Limits.SoftTimeout, req.SoftSignal = 10*time.Second, 8*time.Second, test.signal
				began := time.Now()
				res, err := r.Run(t.Context(), req)
				require.NoError(t, err)
				require.Equal(t, test.after, time.Since(began))
				require.Equal(t, test.status, res.Status, res.Explanation)
				require.Equal(t, test.deadline, res.Deadline, res.Explanation)
				require.Equal(t, test.code, res.ExitCode)
				require.NotEqual(t, result.FaultOperator, res.Fault)
				require.Equal(t, test.status == result.StatusTimedOut, res.TimedOut)
				require.Equal(t, 0.5, *res.Score)
				require.Equal(t, test.unfinished, res.ScoreUnfinished)
				require.Equal(t, 8.0, res.Enforced.SoftTimeoutSeconds)
				require.NotEmpty(t, res.Enforced.SoftSignal)
				require.Empty(t, signals(fake), "nobody else asks")
				require.Empty(t, fake.Left())
			})
		})
	}
}

// TestUnfinishedScore: a score counts as unfinished unless its program ended by itself.
func TestUnfinishedScore(t *testing.T) {
	for name, test := range map[string]struct {
		change     func(f *enginetest.Fake)
		program    func(p *enginetest.Program) int
		cancel     bool
		status     result.Status
		unfinished bool
	}{
		"exits":         {program: func(*enginetest.Program) int { return 0 }, status: result.StatusExited},
		"fails":         {program: func(*enginetest.Program) int { return 1 }, status: result.StatusExited},
		"crashes":       {program: func(*enginetest.Program) int { return enginetest.Died(11) }, status: result.StatusSignaled},
		"out of memory": {change: func(f *enginetest.Fake) { f.OOMKilled = true }, program: func(*enginetest.Program) int { return enginetest.Died(9) }, status: result.StatusOutOfMemory, unfinished: true},
		"time limit":    {program: endsOnTerm, status: result.StatusTimedOut, unfinished: true},
		"canceled":      {program: endsOnTerm, cancel: true, status: result.StatusCanceled, unfinished: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := enginetest.NewFake(func(p *enginetest.Program) int {
					p.Print("Final Validation Performance: 0.25\nFinal Validation Performance: 0.5\n")
					return test.program(p)
				})
				if test.change != nil {
					test.change(fake)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.cancel {
					time.AfterFunc(time.Second, cancel)
				}
				req := command("train")
				req.Limits.Timeout = 10 * time.Second
				res, err := newFakeRunner(t, fake).Run(ctx, req)
				require.NoError(t, err)
				require.Equal(t, test.status, res.Status)
				require.Equal(t, 0.5, *res.Score)
				require.Equal(t, test.unfinished, res.ScoreUnfinished)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		req := command("train")
		req.Limits.Timeout = time.Second
		res, err := newFakeRunner(t, enginetest.NewFake(endsOnTerm)).Run(t.Context(), req)
		require.NoError(t, err)
		require.Nil(t, res.Score)
		require.False(t, res.ScoreUnfinished, "there is no score")
	})
}

// TestDeadlineVariable: it counts from the start of the program, not from that of its container.
func TestDeadlineVariable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given string
		var started time.Time
		fake := enginetest.NewFake(func(p *enginetest.Program) int {
			given, started = p.Env()["SANDBOX_DEADLINE"], time.Now()
			return 0
		})
		req := command("train")
		req.Limits.Timeout = time.Minute
		_, err := newFakeRunner(t, fake).Run(t.Context(), req, Hooks{Admit: func(context.Context) (func(), error) {
			time.Sleep(3 * time.Hour)
			return nil, nil
		}})
		require.NoError(t, err)
		deadline, err := strconv.ParseFloat(given, 64)
		require.NoError(t, err)
		require.InDelta(t, float64(started.Add(time.Minute).UnixMilli())/1000, deadline, 0.001)
	})
}

// TestOrphanLimitIsNotTheProgramsFault: a run that init ended for want of a controller was ended
// by us, and may be run again.
func TestOrphanLimitIsNotTheProgramsFault(t *testing.T) {
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		p.End(func(end *engine.End) { end.Cause = engine.ByOrphanLimit })
		return enginetest.Died(15)
	})
	res, err := newFakeRunner(t, fake).Run(t.Context(), command("train"))
	require.NoError(t, err)
	require.Equal(t, result.StatusCanceled, res.Status)
	require.Equal(t, result.FaultOperator, res.Fault)
	require.Contains(t, res.Explanation, "orphan limit")
}

func TestSoftSignalsHaveNames(t *testing.T) {
	for name, number := range spec.SoftSignals {
		require.Equal(t, name, result.SignalName(int(number)))
	}
}
