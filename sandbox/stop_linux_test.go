package sandbox

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/outcome"
)

// TestStopRequest: another process ends one run, and the result says so. Its caller's context
// lives on.
func TestStopRequest(t *testing.T) {
	for name, now := range map[string]bool{"with grace": false, "at once": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := enginetest.NewFake(outlasts)
				r := newFakeRunner(t, fake)
				req := command("sleep")
				req.ID = "r1"
				time.AfterFunc(time.Second, func() { require.NoError(t, r.store.RequestStop("r1", now)) })
				began := time.Now()
				res, err := r.Run(t.Context(), req)
				require.NoError(t, err)
				require.Equal(t, result.StatusCanceled, res.Status)
				require.Equal(t, result.FaultOperator, res.Fault)
				require.Contains(t, res.Explanation, "Another process asked to stop the run (sandbox stop).")
				require.Equal(t, now, time.Since(began) < 2*time.Second)
				require.Contains(t, signals(fake), map[bool]engine.Signal{true: engine.Kill, false: engine.Stop}[now])
				note, err := r.store.Journal("r1")
				require.NoError(t, err)
				require.Equal(t, int(outcome.StopRequested), note.Stop)
				require.Empty(t, fake.Left())
			})
		})
	}
}

// TestStopBeforeTheStart: nothing runs, nothing is left, and the error says why.
func TestStopBeforeTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(outlasts)
		r := newFakeRunner(t, fake)
		req := command("sleep")
		req.ID = "r1"
		hooks := Hooks{Begin: func(id string) error {
			require.NoError(t, r.store.RequestStop(id, false))
			time.Sleep(time.Second)
			return nil
		}}
		res, err := r.Run(t.Context(), req, hooks)
		require.ErrorIs(t, err, outcome.ErrStopped)
		require.ErrorIs(t, err, outcome.ErrCanceled)
		require.Nil(t, res)
		require.NoDirExists(t, r.store.RecordDir("r1"))
		require.Empty(t, fake.Left())
	})
}

// TestStopWithoutAnOwner: the request waits for the process that adopts the run.
func TestStopWithoutAnOwner(t *testing.T) {
	w := newWorker()
	fake := enginetest.NewFake(w.program)
	r := dieAt(t, fake, "accepted", command("train"))
	require.NoError(t, r.store.RequestStop("r1", false))
	res, err := r.Adopt(t.Context(), "r1")
	require.NoError(t, err)
	require.Equal(t, result.StatusCanceled, res.Status)
	require.True(t, res.Recovered)
	require.Contains(t, res.Explanation, "Another process asked")
}
