//go:build linux

package sandbox

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// TestAPoolPreparesForTheRunsThatFollow: nothing is prepared for nobody.
func TestAPoolPreparesForTheRunsThatFollow(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newPoolRunner(t, fake, Pool{Size: 2})
	for i, waits := range []int{2, 2, 2, 1, 0} { // after each of them
		left := 4 - i
		res, err := r.Run(t.Context(), some("true"), Hooks{More: func() int { return left }})
		require.NoError(t, err)
		require.Equal(t, i > 0, res.Pool.Waited)
		settle(t, r)
		require.Equal(t, waits, r.PoolStatus().Waiting, "run %d", i)
	}
	fake.Do(func(f *enginetest.Fake) { require.Len(t, f.Created, 5) })
}

// TestARunTakesTheContainerThatIsBeingPrepared: one of two runs waits for it, which takes less time than
// to prepare another one.
func TestARunTakesTheContainerThatIsBeingPrepared(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newPoolRunner(t, fake, Pool{Size: 1})
	preparing, goOn := make(chan struct{}), make(chan struct{})
	calls := 0
	fake.Do(func(f *enginetest.Fake) {
		f.Hook = func(call, _ string) error {
			var second bool
			if call == "Prepare" {
				f.Do(func(*enginetest.Fake) { calls++; second = calls == 2 })
			}
			if second {
				close(preparing)
				<-goOn
			}
			return nil
		}
	})
	cold(t, r, some("true"))
	<-preparing

	awaited := func() bool {
		r.pool.mu.Lock()
		defer r.pool.mu.Unlock()
		return r.pool.awaited
	}
	waits := make(chan *result.Result)
	go func() {
		res, err := r.Run(context.Background(), some("true"))
		if err != nil {
			res = &result.Result{Explanation: err.Error()}
		}
		waits <- res
	}()
	require.Eventually(t, awaited, time.Minute, time.Millisecond)
	cold(t, r, some("true"))
	close(goOn)
	res := <-waits
	require.Equal(t, &result.Pool{Waited: true}, res.Pool, res.Explanation)
	settle(t, r)
	require.Equal(t, 1, r.PoolStatus().Waiting)
}

// TestACanceledRunDoesNotWaitForAContainer that is being prepared.
func TestACanceledRunDoesNotWaitForAContainer(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newPoolRunner(t, fake, Pool{Size: 1})
	cold(t, r, some("true"))
	settle(t, r)
	preparing, goOn := make(chan struct{}), make(chan struct{})
	fake.Do(func(f *enginetest.Fake) {
		f.Hook = func(call, _ string) error {
			if call == "Prepare" {
				close(preparing)
				<-goOn
			}
			return nil
		}
	})
	waited(t, r, some("true"))
	<-preparing
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error)
	go func() {
		_, err := r.Run(ctx, some("true"))
		ended <- err
	}()
	require.Eventually(t, func() bool {
		r.pool.mu.Lock()
		defer r.pool.mu.Unlock()
		return r.pool.awaited
	}, time.Minute, time.Millisecond)
	cancel(context.Canceled)
	require.ErrorIs(t, <-ended, context.Canceled)
	close(goOn)
	settle(t, r)
}
