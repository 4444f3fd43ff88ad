package sandbox

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRunIsAdmitted: four containers are made, and at most two programs run at once;
// what a run waits for is no time of its own.
func TestRunIsAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		admit := Slots(2)
		var engines []*fakeEngine // one for each run: a fake has one run at a time
		var runs sync.WaitGroup
		for range 4 {
			engine := newFakeEngine(func(*fakeContainer) int {
				most.Store(max(most.Load(), running.Add(1)))
				time.Sleep(10 * time.Second)
				running.Add(-1)
				return 0
			})
			engines = append(engines, engine)
			r := newFakeRunner(t, engine)
			runs.Go(func() {
				req := command("x")
				req.Admit = admit
				res, err := r.Run(t.Context(), req)
				require.NoError(t, err)
				require.Less(t, res.SetupSeconds, 1.0)
			})
		}
		synctest.Wait()
		for _, engine := range engines {
			require.Len(t, engine.created, 1, "all are prepared")
		}
		require.EqualValues(t, 2, running.Load())
		runs.Wait()
		require.EqualValues(t, 2, most.Load())
		for _, engine := range engines {
			require.Empty(t, engine.containers)
		}
	})
}

// TestRunIsNotAdmitted: a run that may not start leaves nothing behind.
func TestRunIsNotAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newFakeEngine(func(*fakeContainer) int { panic("it ran") })
		r := newFakeRunner(t, engine)
		refused := errors.New("enough")
		req := command("x")
		req.Admit = func(context.Context) (func(), error) { return nil, refused }
		res, err := r.Run(t.Context(), req)
		require.ErrorIs(t, err, refused)
		require.Nil(t, res)
		require.Empty(t, leftBehind(t, r, engine))

		// The caller gives up while it waits.
		admit := Slots(1)
		release, err := admit(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		req.Admit = admit
		res, err = r.Run(ctx, req)
		require.ErrorIs(t, err, context.Canceled)
		require.Nil(t, res)
		require.Empty(t, leftBehind(t, r, engine))
		release()
		_, err = admit(ctx)
		require.ErrorIs(t, err, context.Canceled, "a slot is free, but nobody wants it any more")
	})
}
