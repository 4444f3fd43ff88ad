package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// swap replaces name with a link to other.
func swap(t *testing.T, name, other string) {
	t.Helper()
	require.NoError(t, os.Rename(name, name+".old"))
	require.NoError(t, os.Symlink(other, name))
}

// TestReplacedMountsAreRefused: the program gets the files that were checked, or it does
// not start, no matter how long it waits.
func TestReplacedMountsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		ask     func(req *Request, dir string)
		replace string
		field   string
	}{
		"mount":               {func(r *Request, dir string) { r.Mounts = []Mount{{Source: dir + "/sub", Target: "/repo"}} }, "sub", "mount"},
		"mounted file":        {func(r *Request, dir string) { r.Mounts = []Mount{{Source: dir + "/sub/f", Target: "/repo/f"}} }, "sub/f", "mount"},
		"enclosing directory": {func(r *Request, dir string) { r.Mounts = []Mount{{Source: dir + "/sub/in", Target: "/repo"}} }, "sub", "mount"},
		"input":               {func(r *Request, dir string) { r.Input = dir + "/sub" }, "sub", "input"},
		"hidden file": {func(r *Request, dir string) {
			r.Mounts, r.Masks = []Mount{{Source: dir + "/sub", Target: "/repo"}}, []string{"/repo/f"}
		}, "sub/f", "mask"},
	} {
		t.Run(name, func(t *testing.T) {
			for when, hook := range map[string]func(hooks *Hooks, f *enginetest.Fake, do func()){
				"while it is prepared": func(_ *Hooks, f *enginetest.Fake, do func()) { f.Hook = atPrepare(do) },
				"while it waits": func(hooks *Hooks, _ *enginetest.Fake, do func()) {
					hooks.Admit = func(context.Context) (func(), error) { do(); return nil, nil }
				},
			} {
				dir := readable(t, map[string]string{"sub/f": "mine", "sub/in/f": "mine", "other/f": "stranger's", "other/in/f": "stranger's"})
				real, err := filepath.EvalSymlinks(dir)
				require.NoError(t, err)
				fake := enginetest.NewFake(func(*enginetest.Program) int { panic("it ran") })
				r := newFakeRunner(t, fake)
				req := command("x")
				c.ask(&req, real)
				other := filepath.Join(real, "other")
				if info, err := os.Stat(filepath.Join(real, c.replace)); err == nil && !info.IsDir() {
					other = filepath.Join(other, "f")
				}
				var hooks Hooks
				hook(&hooks, fake, func() { swap(t, filepath.Join(real, c.replace), other) })
				res, err := r.Run(t.Context(), req, hooks)
				var path *PathError
				require.ErrorAs(t, err, &path, when)
				require.Equal(t, c.field, path.Field)
				require.ErrorContains(t, err, "was replaced while the run was prepared")
				require.Nil(t, res)
				require.Empty(t, leftBehind(t, r, fake))
				require.Len(t, fake.Created, 1, "it is not retried with another transfer")
			}
		})
	}
}

// atPrepare calls a function when the engine is asked for a container.
func atPrepare(do func()) func(call, name string) error {
	return func(call, _ string) error {
		if call == "Prepare" {
			do()
		}
		return nil
	}
}

// TestMountsThatWereReplacedForAMoment: the path cannot show that the engine mounted
// something else; the container's init can.
func TestMountsThatWereReplacedForAMoment(t *testing.T) {
	for name, way := range map[string]string{"files are sent": spec.TransferAuto, "files are not sent": spec.TransferBind} {
		t.Run(name, func(t *testing.T) {
			dir := readable(t, map[string]string{"sub/f": "mine", "other/f": "stranger's"})
			real, err := filepath.EvalSymlinks(dir)
			require.NoError(t, err)
			sub := filepath.Join(real, "sub")
			fake := enginetest.NewFake(func(p *enginetest.Program) int {
				text, err := os.ReadFile(p.Path("/repo/f"))
				if err != nil {
					return 1
				}
				p.Print(string(text))
				return 0
			})
			fake.Hook = atPrepare(func() {
				fake.Hook = nil
				require.NoError(t, os.Rename(sub, sub+".old"))
				require.NoError(t, os.Rename(filepath.Join(real, "other"), sub))
			})
			fake.Ready = func(spec.Class, engine.Meta, *wire.Ready) {
				if _, err := os.Stat(sub + ".old"); err == nil {
					require.NoError(t, os.Rename(sub, filepath.Join(real, "other")))
					require.NoError(t, os.Rename(sub+".old", sub))
				}
			}
			r := newFakeRunner(t, fake)
			req := command("x")
			req.Transfer, req.Mounts = way, []Mount{{Source: sub, Target: "/repo"}}
			res, err := r.Run(t.Context(), req)
			if way == spec.TransferBind {
				var field *policy.FieldError
				require.ErrorAs(t, err, &field)
				require.Equal(t, "transfer", field.Field)
				require.Nil(t, res)
				require.Empty(t, leftBehind(t, r, fake))
				require.Empty(t, fake.Started)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "mine", res.Stdout)
			require.Equal(t, spec.TransferCopy, res.Enforced.Transfer)
			require.Empty(t, fake.Left())
		})
	}
}

// TestChangedMountsAreNotReplaced: a change inside a directory is not a replacement of
// it.
func TestChangedMountsAreNotReplaced(t *testing.T) {
	dir := readable(t, map[string]string{"f": "1"})
	fake := enginetest.NewFake(nil)
	req := command("x")
	req.Mounts = []Mount{{Source: dir, Target: "/repo"}}
	var hooks Hooks
	hooks.Admit = func(context.Context) (func(), error) {
		return nil, os.WriteFile(filepath.Join(dir, "new"), nil, 0o600)
	}
	res, err := newFakeRunner(t, fake).Run(t.Context(), req, hooks)
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
}

// TestReplacedSourcesAreNotCopied: only files that were checked are copied.
func TestReplacedSourcesAreNotCopied(t *testing.T) {
	for name, c := range map[string]struct {
		ask func(req *Request, dir string)
		way string
	}{
		"tree":                {func(r *Request, dir string) { r.Trees = []Tree{{Source: dir + "/sub", Target: "/repo"}} }, spec.TransferBind},
		"tree sent":           {func(r *Request, dir string) { r.Trees = []Tree{{Source: dir + "/sub", Target: "/repo"}} }, spec.TransferCopy},
		"input sent":          {func(r *Request, dir string) { r.Input = dir + "/sub" }, spec.TransferCopy},
		"mount sent":          {func(r *Request, dir string) { r.Mounts = []Mount{{Source: dir + "/sub", Target: "/repo"}} }, spec.TransferCopy},
		"file in a directory": {func(r *Request, dir string) { r.Mounts = []Mount{{Source: dir + "/sub/f", Target: "/repo/f"}} }, spec.TransferCopy},
		"folder in that tree": {func(r *Request, dir string) { r.Trees = []Tree{{Source: dir + "/sub/in", Target: "/repo"}} }, spec.TransferBind},
	} {
		t.Run(name, func(t *testing.T) {
			dir := readable(t, map[string]string{"sub/f": "mine", "sub/in/f": "mine", "other/f": "stranger's", "other/in/f": "stranger's"})
			real, err := filepath.EvalSymlinks(dir)
			require.NoError(t, err)
			fake := enginetest.NewFake(nil)
			r := newFakeRunner(t, fake)
			req := command("x")
			req.Transfer = c.way
			c.ask(&req, real)
			prepared, err := r.plan(t.Context(), req)
			require.NoError(t, err)
			swap(t, filepath.Join(real, "sub"), filepath.Join(real, "other"))
			a := newRun(r, prepared, runOptions{}, time.Now())
			require.NoError(t, a.leaseUID(t.Context(), time.Now().Add(time.Hour), nil))
			defer a.releaseUID()
			require.NoError(t, a.openStage(t.Context()))
			err = a.prepare(t.Context())
			require.ErrorContains(t, err, "was replaced while the run was prepared")
			require.NoError(t, a.abandon(t.Context()))
			require.Empty(t, leftBehind(t, r, fake))
		})
	}
}
