package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/handover"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// kept is a keeper in this process, and a runner that asks it.
type kept struct {
	fake           *enginetest.Fake
	keeper, runner *Runner
	ended          chan error
}

// keepFor is an idle time that no test reaches.
const keepFor = time.Hour

// keepPool starts a keeper, whose end the test checks.
func keepPool(t *testing.T, fake *enginetest.Fake, idle time.Duration, opts ...Option) *kept {
	t.Helper()
	k := &kept{fake: fake, keeper: newFakeRunner(t, fake, append(opts, WithPool(Pool{Size: 2}))...), ended: make(chan error, 1)}
	k.runner = newFakeRunner(t, fake, append(opts, WithStateDir(k.keeper.Store().Dir()), WithKeeper())...)
	k.runner.users.dir = k.keeper.users.dir
	ready := make(chan struct{})
	go func() {
		k.ended <- k.keeper.KeepPool(context.WithoutCancel(t.Context()), idle, func() { close(ready) })
	}()
	select {
	case <-ready:
	case err := <-k.ended:
		require.NoError(t, err, "the keeper was never ready")
	}
	return k
}

// stop ends the keeper, and checks that it leaves nothing.
func (k *kept) stop(t *testing.T) KeeperStatus {
	t.Helper()
	status, err := StopKeeper(k.keeper.Store())
	require.NoError(t, err)
	require.NoError(t, <-k.ended)
	k.leavesNothing(t)
	return status
}

func (k *kept) leavesNothing(t *testing.T) {
	t.Helper()
	require.Empty(t, k.fake.Left())
	left, err := os.ReadDir(k.keeper.Store().PoolDir())
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
	require.Empty(t, left)
	_, err = Keeper(k.keeper.Store())
	require.ErrorIs(t, err, ErrNoKeeper)
	// No user ID is lent any more: their files are empty.
	ids, _ := filepath.Glob(filepath.Join(k.keeper.users.dir, "*"))
	for _, id := range ids {
		info, err := os.Stat(id)
		require.NoError(t, err)
		require.Zero(t, info.Size(), id)
	}
}

// await waits until as many containers wait.
func (k *kept) await(t *testing.T, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		status, err := Keeper(k.keeper.Store())
		return err == nil && status.Waiting >= n
	}, time.Minute, time.Millisecond)
}

func job(words ...string) Request { return Request{Image: "debian", Command: words} }

func TestKeeperPassesContainersOn(t *testing.T) {
	k := keepPool(t, enginetest.NewFake(func(p *enginetest.Program) int {
		p.Print(p.Job.Command[0])
		return 3
	}), keepFor)
	cold, err := k.runner.Run(t.Context(), job("one"))
	require.NoError(t, err)
	require.False(t, cold.Pool.Waited)
	require.Equal(t, errNoneWaits, cold.Pool.Reason)
	for _, word := range []string{"two", "three", "four"} {
		k.await(t, 1)
		res, err := k.runner.Run(t.Context(), job(word))
		require.NoError(t, err)
		require.True(t, res.Pool.Waited, res.Pool.Reason)
		require.Equal(t, word, res.Stdout)
		require.Equal(t, 3, res.ExitCode)
		require.Equal(t, cold.Enforced.Isolation, res.Enforced.Isolation)
		require.Equal(t, cold.Enforced.Mounts, res.Enforced.Mounts)
		note, err := k.runner.Record(res.ID)
		require.NoError(t, err)
		require.NotNil(t, note.Result)
		require.False(t, k.runner.Store().IsOpen(res.ID))
	}
	k.await(t, 2)
	// Somebody who stops the keeper does not stop the runs.
	status := k.stop(t)
	require.Equal(t, 3, status.Taken)
	require.Equal(t, 1, status.Cold)
	require.Equal(t, os.Getpid(), status.PID)
	res, err := k.runner.Run(t.Context(), job("five"))
	require.NoError(t, err)
	require.Nil(t, res.Pool, "nobody keeps a pool any more")
	require.Empty(t, k.fake.Left())
}

func TestKeeperOfManyCallers(t *testing.T) {
	k := keepPool(t, enginetest.NewFake(nil), keepFor)
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			res, err := k.runner.Run(t.Context(), job("true", fmt.Sprint(i)))
			if assert.NoError(t, err) {
				assert.Zero(t, res.ExitCode)
			}
		})
	}
	all.Wait()
	var jobs []spec.Job
	k.fake.Do(func(f *enginetest.Fake) { jobs = f.Started })
	require.Len(t, jobs, 100)
	names := map[string]bool{}
	for _, j := range jobs {
		require.False(t, names[j.RunID], "two jobs in one container")
		names[j.RunID] = true
	}
	k.stop(t)
}

// TestKeeperTakesBackWhatNobodyTook ends the conversation at each of its steps.
func TestKeeperTakesBackWhatNobodyTook(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, conn *handover.Conn, r *Runner){
		"after the request": func(t *testing.T, _ *handover.Conn, r *Runner) {
			require.Eventually(t, func() bool {
				status, err := Keeper(r.Store())
				return err == nil && status.Taken == 1
			}, time.Minute, time.Millisecond)
		},
		"after the answer": func(t *testing.T, conn *handover.Conn, _ *Runner) {
			var answer keeperAnswer
			files, err := conn.Receive(&answer, time.Time{})
			require.NoError(t, err)
			require.NotEmpty(t, answer.ID, answer.Reason)
			for _, f := range files {
				require.NoError(t, f.Close())
			}
		},
		"after the note of the new owner": func(t *testing.T, conn *handover.Conn, r *Runner) {
			var answer keeperAnswer
			files, err := conn.Receive(&answer, time.Time{})
			require.NoError(t, err)
			require.NoError(t, r.Store().Own(answer.ID))
			for _, f := range files {
				require.NoError(t, f.Close())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := keepPool(t, enginetest.NewFake(nil), keepFor)
			_, err := k.runner.Run(t.Context(), job("true"))
			require.NoError(t, err)
			k.await(t, 2)
			conn, err := handover.Dial(filepath.Join(k.keeper.Store().Dir(), keeperSocket))
			require.NoError(t, err)
			require.NoError(t, conn.Send(k.request(t)))
			end(t, conn, k.runner)
			require.NoError(t, conn.Close())
			k.await(t, 2) // in its place
			k.stop(t)
		})
	}
}

// request asks for a container of the class of a job.
func (k *kept) request(t *testing.T) keeperRequest {
	t.Helper()
	plan, err := k.runner.plan(t.Context(), job("true"))
	require.NoError(t, err)
	return keeperRequest{Do: keeperTake, Version: keeperVersion(), Class: engine.ClassHash(plan.spec.Class), Spec: plan.spec,
		Engine: plan.info.ID, UIDs: k.runner.users.pool(plan.info).String(), Limit: time.Minute}
}

func TestKeeperRefusals(t *testing.T) {
	k := keepPool(t, enginetest.NewFake(nil), keepFor)
	for name, c := range map[string]struct {
		change func(r *keeperRequest)
		want   string
	}{
		"version":                               {func(r *keeperRequest) { r.Version = "99" }, "another version of sandbox keeps the pool"},
		"a part of the class that is not known": {func(r *keeperRequest) { r.Class = "other" }, "another version of sandbox keeps the pool"},
		"engine":                                {func(r *keeperRequest) { r.Engine = "another" }, "another engine"},
		"uids":                                  {func(r *keeperRequest) { r.UIDs = "1-2" }, "another uid_range"},
		"none":                                  {func(*keeperRequest) {}, errNoneWaits},
		"input":                                 {func(r *keeperRequest) { r.Spec.Job.Input = "/gone/away" }, "no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			request := k.request(t)
			c.change(&request)
			conn, err := handover.Dial(filepath.Join(k.keeper.Store().Dir(), keeperSocket))
			require.NoError(t, err)
			defer conn.Close()
			require.NoError(t, conn.Send(request))
			var answer keeperAnswer
			files, err := conn.Receive(&answer, time.Time{})
			require.NoError(t, err)
			require.Empty(t, files)
			require.Contains(t, answer.Reason, c.want)
		})
	}
	t.Run("garbage", func(t *testing.T) {
		conn, err := handover.Dial(filepath.Join(k.keeper.Store().Dir(), keeperSocket))
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.Send("not a request"))
		_, err = conn.Receive(new(keeperAnswer), time.Time{})
		require.Error(t, err, "the keeper hangs up")
	})
	other := newFakeRunner(t, k.fake, WithStateDir(k.keeper.Store().Dir()), WithPool(Pool{Size: 1}))
	require.ErrorIs(t, other.KeepPool(t.Context(), keepFor, func() {}), ErrKept)
	k.stop(t)
	require.ErrorContains(t, k.runner.KeepPool(t.Context(), keepFor, func() {}), "has no pool")
	require.ErrorContains(t, k.keeper.KeepPool(t.Context(), -1, func() {}), "negative")
}

// TestKeeperOfAnotherUser: who may change the state directory may listen there, and would get the job
// and its secrets.
func TestKeeperOfAnotherUser(t *testing.T) {
	k := keepPool(t, enginetest.NewFake(nil), keepFor)
	_, err := k.runner.Run(t.Context(), job("true"))
	require.NoError(t, err)
	k.await(t, 2)
	dir := k.keeper.Store().Dir()
	require.NoError(t, os.Chmod(dir, 0o777))
	_, err = k.runner.Run(t.Context(), job("true"))
	require.ErrorContains(t, err, "other users may change")
	_, err = Keeper(k.keeper.Store())
	require.ErrorContains(t, err, "other users may change")
	require.NoError(t, os.Chmod(dir, 0o700))
	require.Zero(t, k.stop(t).Taken, "nobody asked the keeper")
}

// TestKeeperYieldsUserIDs: a run that finds no user ID gets that of a container that waits.
func TestKeeperYieldsUserIDs(t *testing.T) {
	fake := enginetest.NewFake(nil)
	k := keepPool(t, fake, keepFor, WithUIDs("1900000000-1900000001"))
	for _, image := range []string{"debian", "debian", "alpine"} {
		res, err := k.runner.Run(t.Context(), Request{Image: image, Command: []string{"true"}})
		require.NoError(t, err)
		require.Zero(t, res.ExitCode)
		k.await(t, 1)
	}
	k.stop(t)
}

func TestKeeperOfAnEngineElsewhere(t *testing.T) {
	fake := enginetest.NewFake(nil)
	fake.Facts.Local = false
	r := newFakeRunner(t, fake, WithPool(Pool{Size: 1}))
	require.ErrorContains(t, r.KeepPool(t.Context(), keepFor, func() {}), "an engine on this machine")
}

// TestRunThatCannotUseItsContainer gets a container that ends on the way: the run makes another one.
func TestRunThatCannotUseItsContainer(t *testing.T) {
	for name, breakIt := range map[string]func(f *enginetest.Fake){
		"not passed":   func(f *enginetest.Fake) { f.Fail.Pass = errors.New("not a socket") },
		"not received": func(f *enginetest.Fake) { f.Hook = failing("Receive") },
		"not looked":   func(f *enginetest.Fake) { f.Hook = failing("Look") },
	} {
		t.Run(name, func(t *testing.T) {
			k := keepPool(t, enginetest.NewFake(nil), keepFor)
			_, err := k.runner.Run(t.Context(), job("true"))
			require.NoError(t, err)
			k.await(t, 2)
			k.fake.Do(breakIt)
			res, err := k.runner.Run(t.Context(), job("true"))
			require.NoError(t, err)
			require.False(t, res.Pool.Waited)
			require.NotEmpty(t, res.Pool.Reason)
			k.fake.Do(func(f *enginetest.Fake) { f.Fail.Pass, f.Hook = nil, nil })
			k.stop(t)
		})
	}
}

func failing(what string) func(call, name string) error {
	return func(call, _ string) error {
		if call == what {
			return engine.ErrNoContainer
		}
		return nil
	}
}

func TestKeeperEndsByItself(t *testing.T) {
	t.Run("idle", func(t *testing.T) {
		k := keepPool(t, enginetest.NewFake(nil), 20*time.Millisecond)
		require.NoError(t, <-k.ended)
		k.leavesNothing(t)
	})
	t.Run("its directory is gone", func(t *testing.T) {
		k := keepPool(t, enginetest.NewFake(nil), keepFor)
		require.NoError(t, os.RemoveAll(k.keeper.Store().Dir()))
		require.NoError(t, <-k.ended)
	})
}

func TestKeeperOfALongPath(t *testing.T) {
	fake := enginetest.NewFake(nil)
	long := filepath.Join(t.TempDir(), "a-directory-with-a-name-that-is-long-enough-for-a-socket-to-be-refused-because-of-it-by-every-kernel")
	r := newFakeRunner(t, fake, WithStateDir(long), WithPool(Pool{Size: 1}))
	require.ErrorContains(t, r.KeepPool(t.Context(), keepFor, func() {}), "choose a shorter state directory")
	runner := newFakeRunner(t, fake, WithStateDir(long), WithKeeper())
	res, err := runner.Run(t.Context(), job("true"))
	require.NoError(t, err)
	require.Nil(t, res.Pool)
}
