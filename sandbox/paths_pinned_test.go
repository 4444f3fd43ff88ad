package sandbox

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// swap puts a link to another folder, or another file, in the place of name.
func swap(t *testing.T, name, other string) {
	t.Helper()
	require.NoError(t, os.Rename(name, name+".old"))
	require.NoError(t, os.Symlink(other, name))
}

// TestReplacedMountsAreRefused: what was checked is what the program gets, or it gets
// nothing, however long it waits for its start.
func TestReplacedMountsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		ask     func(req *Request, dir string)
		replace string
		field   string
	}{
		"mount":            {func(r *Request, dir string) { r.Mounts = []Mount{{Source: dir + "/sub", Target: "/repo"}} }, "sub", "mount"},
		"mounted file":     {func(r *Request, dir string) { r.Mounts = []Mount{{Source: dir + "/sub/f", Target: "/repo/f"}} }, "sub/f", "mount"},
		"enclosing folder": {func(r *Request, dir string) { r.Mounts = []Mount{{Source: dir + "/sub/in", Target: "/repo"}} }, "sub", "mount"},
		"input":            {func(r *Request, dir string) { r.Input = dir + "/sub" }, "sub", "input"},
		"hidden file": {func(r *Request, dir string) {
			r.Mounts, r.Masks = []Mount{{Source: dir + "/sub", Target: "/repo"}}, []string{"/repo/f"}
		}, "sub/f", "mask"},
	} {
		t.Run(name, func(t *testing.T) {
			for when, hook := range map[string]func(req *Request, do func()){
				"while it waits": func(req *Request, do func()) {
					req.Admit = func(context.Context) (func(), error) { do(); return nil, nil }
				},
				"while it starts": func(req *Request, do func()) { req.Started = do },
			} {
				dir := readable(t, map[string]string{"sub/f": "mine", "sub/in/f": "mine", "other/f": "stranger's", "other/in/f": "stranger's"})
				real, err := filepath.EvalSymlinks(dir)
				require.NoError(t, err)
				engine := newFakeEngine(func(c *fakeContainer) int { c.print("SECRET"); return 0 })
				r := newFakeRunner(t, engine)
				req := command("x")
				c.ask(&req, real)
				other := filepath.Join(real, "other")
				if info, err := os.Stat(filepath.Join(real, c.replace)); err == nil && !info.IsDir() {
					other = filepath.Join(other, "f")
				}
				hook(&req, func() { swap(t, filepath.Join(real, c.replace), other) })
				res, err := r.Run(t.Context(), req)
				var path *PathError
				require.ErrorAs(t, err, &path, when)
				require.Equal(t, c.field, path.Field)
				require.ErrorContains(t, err, "was replaced while the run was prepared")
				require.Nil(t, res)
				require.Empty(t, leftBehind(t, r, engine))
			}
		})
	}
}

// Nothing that is done in a folder takes it for another one.
func TestChangedMountsAreNotReplaced(t *testing.T) {
	dir := readable(t, map[string]string{"f": "1"})
	engine := newFakeEngine(func(*fakeContainer) int { return 0 })
	req := command("x")
	req.Mounts = []Mount{{Source: dir, Target: "/repo"}}
	req.Admit = func(context.Context) (func(), error) {
		return nil, os.WriteFile(filepath.Join(dir, "new"), nil, 0o600)
	}
	res, err := newFakeRunner(t, engine).Run(t.Context(), req)
	require.NoError(t, err)
	require.Zero(t, res.ExitCode)
}

// TestReplacedSourcesAreNotCopied: a copy is of what was checked as well.
func TestReplacedSourcesAreNotCopied(t *testing.T) {
	for name, c := range map[string]struct {
		ask func(req *Request, dir string)
		way string
	}{
		"tree":                {func(r *Request, dir string) { r.Trees = []Tree{{Source: dir + "/sub", Target: "/repo"}} }, TransferBind},
		"tree sent":           {func(r *Request, dir string) { r.Trees = []Tree{{Source: dir + "/sub", Target: "/repo"}} }, TransferCopy},
		"input sent":          {func(r *Request, dir string) { r.Input = dir + "/sub" }, TransferCopy},
		"mount sent":          {func(r *Request, dir string) { r.Mounts = []Mount{{Source: dir + "/sub", Target: "/repo"}} }, TransferCopy},
		"file in a folder":    {func(r *Request, dir string) { r.Mounts = []Mount{{Source: dir + "/sub/f", Target: "/repo/f"}} }, TransferCopy},
		"folder in that tree": {func(r *Request, dir string) { r.Trees = []Tree{{Source: dir + "/sub/in", Target: "/repo"}} }, TransferBind},
	} {
		t.Run(name, func(t *testing.T) {
			dir := readable(t, map[string]string{"sub/f": "mine", "sub/in/f": "mine", "other/f": "stranger's", "other/in/f": "stranger's"})
			real, err := filepath.EvalSymlinks(dir)
			require.NoError(t, err)
			engine := newFakeEngine(func(*fakeContainer) int { return 0 })
			r := newFakeRunner(t, engine)
			req := command("x")
			req.Transfer = c.way
			c.ask(&req, real)
			prepared, err := r.plan(t.Context(), req)
			require.NoError(t, err)
			swap(t, filepath.Join(real, "sub"), filepath.Join(real, "other"))
			a := &attempt{runner: r, req: prepared.request, spec: prepared.spec, info: prepared.info, pinned: prepared.pinned, log: r.log}
			a.work, err = openWorkspace(r.store, a.spec)
			require.NoError(t, err)
			err = a.create(t.Context())
			require.ErrorContains(t, err, "was replaced while the run was prepared")
			require.NoError(t, a.abandon(t.Context()))
			require.Empty(t, leftBehind(t, r, engine))
		})
	}
}
