package sandbox

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/outcome"
)

// TestRunIsAdmitted: four containers are made, and at most two programs run at once;
// what a run waits for is no time of its own.
func TestRunIsAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running, most atomic.Int64
		admit := Slots(2)
		fake := enginetest.NewFake(func(*enginetest.Program) int {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(10 * time.Second)
			running.Add(-1)
			return 0
		})
		r := newFakeRunner(t, fake)
		var runs sync.WaitGroup
		for i := range 4 {
			runs.Go(func() {
				req := command("x")
				req.ID = fmt.Sprint("r", i)
				hooks := Hooks{Admit: admit}
				res, err := r.Run(t.Context(), req, hooks)
				require.NoError(t, err)
				require.Less(t, res.SetupSeconds, 1.0)
			})
		}
		synctest.Wait()
		require.Len(t, fake.Containers(), 4, "all are prepared")
		require.EqualValues(t, 2, running.Load())
		runs.Wait()
		require.EqualValues(t, 2, most.Load())
		require.Empty(t, fake.Left())
	})
}

// TestDeadlineOfARunThatWaited: the wait for others is over when the program starts, and does not
// count any more.
func TestDeadlineOfARunThatWaited(t *testing.T) {
	for name, hooks := range map[string]Hooks{
		"at once": {},
		"later":   {Admit: func(context.Context) (func(), error) { time.Sleep(5 * time.Hour); return nil, nil }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRunner(t, enginetest.NewFake(nil))
				var deadline, started time.Time
				hooks := hooks
				hooks.Started = func() {
					note, err := r.store.Journal("r1")
					require.NoError(t, err)
					deadline, started = note.Deadline, time.Now()
				}
				req := command("x")
				req.Limits.Timeout, req.Limits.Grace = time.Minute, time.Second
				_, err := r.Run(t.Context(), req, hooks)
				require.NoError(t, err)
				require.WithinDuration(t, started.Add(time.Minute+time.Second+deadlineSlack), deadline, time.Second)
			})
		})
	}
}

// TestRunThatMayNotBegin: the last word of the caller comes after the wait, and gives the place of
// the run to others.
func TestRunThatMayNotBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(func(*enginetest.Program) int { panic("it ran") })
		r := newFakeRunner(t, fake)
		admitted, released, refused := false, false, errors.New("enough")
		hooks := Hooks{
			Admit: func(context.Context) (func(), error) { admitted = true; return func() { released = true }, nil },
			Begin: func(string) error { require.True(t, admitted); return refused },
		}
		res, err := r.Run(t.Context(), command("x"), hooks)
		require.ErrorIs(t, err, refused)
		require.ErrorIs(t, err, outcome.ErrCanceled)
		require.Nil(t, res)
		require.True(t, released)
		require.Empty(t, leftBehind(t, r, fake))
	})
}

// TestRunIsNotAdmitted: a run that may not start leaves nothing behind.
func TestRunIsNotAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(func(*enginetest.Program) int { panic("it ran") })
		r := newFakeRunner(t, fake)
		refused := errors.New("enough")
		req := command("x")
		hooks := Hooks{Admit: func(context.Context) (func(), error) { return nil, refused }}
		res, err := r.Run(t.Context(), req, hooks)
		require.ErrorIs(t, err, refused)
		require.Nil(t, res)
		require.Empty(t, leftBehind(t, r, fake))

		// The caller gives up while it waits.
		admit := Slots(1)
		release, err := admit(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		hooks.Admit = admit
		res, err = r.Run(ctx, req, hooks)
		require.ErrorIs(t, err, context.Canceled)
		require.Nil(t, res)
		require.Empty(t, leftBehind(t, r, fake))
		release()
		_, err = admit(ctx)
		require.ErrorIs(t, err, context.Canceled, "a slot is free, but nobody wants it any more")
	})
}
