//go:build linux

package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// opens opens and reads files of the container, by their paths there.
func opens(p *enginetest.Program, insides ...string) {
	for _, inside := range insides {
		if _, err := os.ReadFile(p.Path(inside)); err != nil {
			panic(err)
		}
	}
}

func TestObserveFilesOfARun(t *testing.T) {
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		opens(p, spec.HoldDir+"/"+spec.WitnessFile) // the program may
		opens(p, "/root/.ssh/id_rsa")
		if entries, err := os.ReadDir(p.Path("/root/.ssh")); err != nil || len(entries) != 5 {
			return 1
		}
		return 0
	})
	fake.Ready = func(_ spec.Class, meta engine.Meta, _ *wire.Ready) {
		if _, err := os.ReadFile(meta.Sources[spec.NumberedRole(spec.RoleWatch, 0)]); err != nil { // the engine, to mount it
			panic(err)
		}
	}
	r := newFakeRunner(t, fake)
	req := command("true")
	started := 0
	hooks := Hooks{Started: func() { started++ }}
	req.Observe = &Observe{Canaries: []string{"/etc/shadow", "/root/.ssh"}, Required: true}
	res, err := r.Run(t.Context(), req, hooks)
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
	require.Equal(t, spec.HoldDir+"/"+spec.WitnessFile, fake.Created[0].Meta.Witness)
	require.Equal(t, &result.Observed{Watched: []string{"/etc/shadow", "/root/.ssh/"}, Opened: []string{"/root/.ssh/", "/root/.ssh/id_rsa"}}, res.Observed)
	require.Equal(t, 1, started)
	require.NoDirExists(t, filepath.Join(r.Store().RecordDir("r1"), record.HoldDir))
	require.NoDirExists(t, filepath.Join(r.Store().RecordDir("r1"), record.WatchDir))
}

// unwitnessed has containers whose init opens another file than ours.
type unwitnessed struct{ *enginetest.Fake }

func (e unwitnessed) Prepare(ctx context.Context, class spec.Class, meta engine.Meta) (engine.Container, error) {
	meta.Witness = ""
	return e.Fake.Prepare(ctx, class, meta)
}

// TestObserveIsTruthful: what cannot be observed has a reason, and stops the run if it is
// required, before the program starts.
func TestObserveIsTruthful(t *testing.T) {
	for name, test := range map[string]struct {
		change               func(f *enginetest.Fake, r *Runner)
		networkWhy, watchWhy string
	}{
		"no process": {func(*enginetest.Fake, *Runner) {}, "did not report the container's process", ""},
		"no answer": {func(f *enginetest.Fake, _ *Runner) {
			f.Process = func(string) (int, error) { return 0, ErrEngineUnavailable }
		}, "did not report the container's process: container engine unavailable", ""},
		"another process": {func(f *enginetest.Fake, _ *Runner) {
			f.Process = func(string) (int, error) { return os.Getpid(), nil }
		}, "is not that of the container", ""},
		"files that are not ours": {func(f *enginetest.Fake, r *Runner) {
			r.engine, r.observeWait = unwitnessed{f}, 1 // it was opened before, or never is
		}, "was not seen here", "was not seen here"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(func(p *enginetest.Program) int { opens(p, "/etc/shadow"); return 0 })
			r := newFakeRunner(t, fake)
			test.change(fake, r)
			req := command("true")
			req.Observe = &Observe{Network: true, Canaries: []string{"/etc/shadow"}}
			res, err := r.Run(t.Context(), req)
			require.NoError(t, err)
			require.Len(t, fake.Started, 1)
			require.Nil(t, res.Observed.NetworkAttempts)
			require.Contains(t, res.Observed.NetworkWhy, test.networkWhy)
			require.Contains(t, res.Observed.WatchWhy, test.watchWhy)
			if test.watchWhy == "" {
				require.Equal(t, []string{"/etc/shadow"}, res.Observed.Opened)
			}

			req.ID, req.Observe.Required = "r2", true
			hooks := Hooks{Started: func() { t.Error("the program was let go") }}
			res, err = r.Run(t.Context(), req, hooks)
			require.ErrorIs(t, err, ErrUnobserved)
			require.ErrorContains(t, err, test.networkWhy)
			require.Nil(t, res)
			require.Len(t, fake.Started, 1, "the program did not start")
			require.NoDirExists(t, r.Store().RecordDir("r2"))
			require.Empty(t, fake.Left())
		})
	}
}

// TestObserveOfARunThatNeverStarts: a container that ends before its program could be let
// go, and a command that is not there.
func TestObserveOfARunThatNeverStarts(t *testing.T) {
	for name, test := range map[string]struct {
		change func(f *enginetest.Fake)
		failed bool
		want   *result.Observed
	}{
		"the container is gone": {func(f *enginetest.Fake) { f.Fail.Start = engine.ErrNoContainer }, true,
			&result.Observed{NetworkWhy: "did not report the container's process", WatchWhy: "the program never started"}},
		"the command is not there": {func(f *enginetest.Fake) { f.Launch = enginetest.NotFound }, false,
			&result.Observed{NetworkWhy: "did not report the container's process", Watched: []string{"/etc/shadow"}, Opened: []string{}}},
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(func(*enginetest.Program) int { panic("it ran") })
			test.change(fake)
			r := newFakeRunner(t, fake)
			req := command("true")
			req.Observe = &Observe{Canaries: []string{"/etc/shadow"}}
			res, err := r.Run(t.Context(), req)
			require.Equal(t, test.failed, err != nil, "%v", err)
			require.Equal(t, result.StatusStartFailed, res.Status)
			require.Equal(t, test.want.WatchWhy, res.Observed.WatchWhy)
			require.ElementsMatch(t, test.want.Watched, res.Observed.Watched)
			require.Empty(t, res.Observed.Opened)
			require.Empty(t, fake.Left())
			require.NoDirExists(t, filepath.Join(r.Store().RecordDir("r1"), record.HoldDir))
		})
	}
}

// TestObserveOfAnEndThatWasNotSeen: what was opened until then is told, and that it may
// not be all.
func TestObserveOfAnEndThatWasNotSeen(t *testing.T) {
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		opens(p, "/etc/shadow")
		p.KillInit()
		return 0
	})
	r := newFakeRunner(t, fake)
	req := command("true")
	req.Observe = &Observe{Canaries: []string{"/etc/shadow"}}
	res, err := r.Run(t.Context(), req)
	require.ErrorIs(t, err, outcome.ErrInitKilled)
	require.Equal(t, result.StatusEngineLost, res.Status)
	require.Equal(t, "the end of the program was not seen", res.Observed.WatchWhy)
	require.Equal(t, []string{"/etc/shadow"}, res.Observed.Opened)
}

// TestObserveCanceledWhileHeld: whoever gives up while the program is held back ends a run
// that never started.
func TestObserveCanceledWhileHeld(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	fake := enginetest.NewFake(func(*enginetest.Program) int { panic("it ran") })
	r := newFakeRunner(t, fake)
	r.engine, r.observeWait = unwitnessed{fake}, time.Hour
	req := command("true")
	var hooks Hooks
	hooks.Admit = func(context.Context) (func(), error) {
		time.AfterFunc(50*time.Millisecond, cancel) // likely while its witness is waited for
		return nil, nil
	}
	hooks.Started = func() { t.Error("the program was let go") }
	req.Observe = &Observe{Canaries: []string{"/etc/shadow"}}
	res, err := r.Run(ctx, req, hooks)
	require.ErrorIs(t, err, outcome.ErrCanceled)
	require.ErrorIs(t, err, context.Canceled)
	require.Nil(t, res)
	require.Empty(t, leftBehind(t, r, fake))
	require.NoDirExists(t, r.Store().RecordDir("r1"))
}
