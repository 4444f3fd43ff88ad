//go:build linux

package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// TestAPoolPreparesForTheRunsThatFollow: no container is prepared in vain.
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

// TestClassesWithoutRunsHaveNoShare of the pool.
func TestClassesWithoutRunsHaveNoShare(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newPoolRunner(t, fake, Pool{Size: 2})
	cold(t, r, some("true"))
	for class := range 3 {
		req := some("true")
		req.Limits.Memory = policy.Size(64+class) * policy.MiB
		_, err := r.Run(t.Context(), req, Hooks{More: func() int { return 0 }})
		require.NoError(t, err)
	}
	settle(t, r)
	require.Equal(t, 2, r.PoolStatus().Waiting)
	waited(t, r, some("true"))
	waited(t, r, some("true"))
}

// TestAContainerOfAnotherDirectory: somebody puts another directory in the place of the input before a
// container of the class is prepared. A keeper gets no verified paths.
func TestAContainerOfAnotherDirectory(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newPoolRunner(t, fake, Pool{Size: 1})
	parent := filepath.Join(t.TempDir(), "parent")
	require.NoError(t, errors.Join(os.MkdirAll(filepath.Join(parent, "input"), 0o755), os.MkdirAll(filepath.Join(parent+".bad", "input"), 0o755)))
	req := some("true")
	req.Input = filepath.Join(parent, "input")
	plan, err := r.plan(t.Context(), req)
	require.NoError(t, err)
	key, err := poolKey(plan)
	require.NoError(t, err)
	require.NoError(t, errors.Join(os.Rename(parent, parent+".good"), os.Symlink(parent+".bad", parent)))
	_, err = r.prepareWaiting(t.Context(), key, planned{spec: plan.spec, info: plan.info}, time.Minute)
	require.ErrorContains(t, err, "a directory that is mounted was replaced")
	require.Empty(t, fake.Left())
}

// TestWarmUp: a file of the run is never started before the run.
func TestWarmUp(t *testing.T) {
	for _, test := range []struct {
		driver  string
		command []string
		warm    bool
	}{
		{"fuse-overlayfs", []string{"python3", "a.py"}, true},
		{"overlay2", []string{"python3", "a.py"}, false},
		{"fuse-overlayfs", []string{"/work/input/bin/python3", "a.py"}, false},
		{"fuse-overlayfs", []string{"input/python3"}, false},
		{"fuse-overlayfs", []string{"ls"}, false},
		{"fuse-overlayfs", nil, false},
	} {
		p := planned{}
		p.info.StorageDriver, p.spec.Job.Command = test.driver, test.command
		require.Equal(t, test.warm, warmUp(p) != nil, test)
	}
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
