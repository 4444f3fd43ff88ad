package sandbox

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/tree"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// readable is a directory with files that every user may read.
func readable(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "dir")
	require.NoError(t, os.Mkdir(dir, 0o755))
	treetest.Write(t, dir, files)
	return dir
}

// treeRequest is a run with a tree of dir, and do what its program does to the copy.
func treeRun(t *testing.T, way, dir string, do func(copy string) error) (*Runner, *enginetest.Fake, Request) {
	t.Helper()
	var r *Runner
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		dir := filepath.Join(r.store.RunsDir(), "r1")
		for _, name := range []string{record.JournalFile, record.SpecFile, "trees/0.jsonl"} {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				p.PrintErr(err.Error())
				return 2
			}
		}
		if err := do(p.Path("/repo")); err != nil {
			p.PrintErr(err.Error())
			return 1
		}
		return 0
	})
	r = newFakeRunner(t, fake)
	req := command("make")
	req.Transfer = way
	req.Trees = []Tree{{Source: dir, Target: "/repo"}}
	return r, fake, req
}

func TestTreesInBothWays(t *testing.T) {
	for _, way := range []string{spec.TransferBind, spec.TransferCopy} {
		t.Run(way, func(t *testing.T) {
			dir := readable(t, map[string]string{"a": "A", "b": "B", "sub/c": "C", "sub/d": "D"})
			require.NoError(t, os.Symlink("a", filepath.Join(dir, "link")))
			r, fake, req := treeRun(t, way, dir, func(copied string) error {
				return errors.Join(
					os.WriteFile(filepath.Join(copied, "a"), []byte("changed"), 0o644),
					os.WriteFile(filepath.Join(copied, "sub/new"), []byte("new"), 0o600),
					os.Mkdir(filepath.Join(copied, "empty"), 0o755),
					os.Symlink("/etc/passwd", filepath.Join(copied, "evil")),
					os.Remove(filepath.Join(copied, "b")))
			})
			res, err := r.Run(t.Context(), req)
			require.NoError(t, err)
			require.Zero(t, res.ExitCode, res.Stderr)
			require.Len(t, res.Trees, 1)
			changed := res.Trees[0]
			require.Equal(t, "/repo", changed.Target)
			require.True(t, changed.Complete, res.Warnings)
			require.Equal(t, 6, changed.Entries)
			require.EqualValues(t, 4, changed.SizeBytes)
			require.Equal(t, []string{"empty", "sub/new"}, []string{changed.Created[0].Path, changed.Created[1].Path})
			require.Equal(t, "0600", changed.Created[1].Mode)
			require.Len(t, changed.Changed, 1)
			require.Equal(t, "a", changed.Changed[0].Path)
			require.Len(t, changed.Deleted, 1)
			require.Equal(t, "b", changed.Deleted[0].Path)
			require.Len(t, changed.Skipped, 1)
			require.Equal(t, "evil", changed.Skipped[0].Path)

			record, err := r.Store().Get("r1")
			require.NoError(t, err)
			require.Equal(t, []uint32{uint32(os.Geteuid()), uint32(os.Geteuid()), uint32(os.Geteuid())}, treetest.Owners(t,
				filepath.Join(record.Dir, "trees/0/a"), filepath.Join(record.Dir, "trees/0/sub"), filepath.Join(record.Dir, "trees/0/sub/new")),
				"the program's user keeps nothing")
			require.NoFileExists(t, filepath.Join(record.Dir, "trees/0/sub/c"), "what did not change is not kept")
			left, err := os.ReadDir(filepath.Join(record.Dir, "live"))
			require.NoError(t, err)
			require.Empty(t, left)
			require.Empty(t, fake.Left())

			report, err := r.ApplyTree(t.Context(), "r1", "/repo", tree.ApplyOptions{Deny: []string{"sub"}})
			require.NoError(t, err)
			require.Equal(t, 3, report.Count(tree.Applied))
			require.Equal(t, 1, report.Count(tree.Skipped))
			require.Equal(t, dir, report.Source)
			text, err := os.ReadFile(filepath.Join(dir, "a"))
			require.NoError(t, err)
			require.Equal(t, "changed", string(text))
			require.NoFileExists(t, filepath.Join(dir, "sub/new"))
			report, err = r.ApplyTree(t.Context(), "r1", "/repo", tree.ApplyOptions{})
			require.NoError(t, err)
			require.Equal(t, 4, report.Count(tree.Applied))
			require.FileExists(t, filepath.Join(dir, "sub/new"))
		})
	}
}

func TestApplyTreeRefuses(t *testing.T) {
	dir := readable(t, map[string]string{"a": "A"})
	r, _, req := treeRun(t, spec.TransferBind, dir, func(string) error { return nil })
	req.Trees = append(req.Trees, Tree{Target: "/work/out"})
	_, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	for target, want := range map[string]string{"/repo/x": "has no such tree", "/work/out": "was no copy of a directory"} {
		_, err := r.ApplyTree(t.Context(), "r1", target, tree.ApplyOptions{})
		require.ErrorContains(t, err, want)
	}
	_, err = r.ApplyTree(t.Context(), "r2", "/repo", tree.ApplyOptions{})
	require.ErrorIs(t, err, record.ErrNoRecord)
	_, err = r.ApplyTree(t.Context(), "r1", "/repo", tree.ApplyOptions{Deny: []string{"../x"}})
	require.ErrorContains(t, err, "must be a path below")
	require.NoError(t, os.Rename(dir, dir+"-moved"))
	_, err = r.ApplyTree(t.Context(), "r1", "/repo", tree.ApplyOptions{})
	require.Error(t, err)
	require.NoError(t, os.Symlink(dir+"-moved", dir))
	_, err = r.ApplyTree(t.Context(), "r1", "/repo", tree.ApplyOptions{})
	require.ErrorContains(t, err, "was replaced by a link")
}

func TestTreesOfRunsThatNeverStarted(t *testing.T) {
	for _, way := range []string{spec.TransferBind, spec.TransferCopy} {
		t.Run(way, func(t *testing.T) {
			dir := readable(t, map[string]string{"a": "12345678"})
			r, fake, req := treeRun(t, way, dir, func(string) error { return nil })
			req.Limits.Disk = 4096
			require.NoError(t, os.WriteFile(filepath.Join(dir, "big"), make([]byte, 5000), 0o644))
			_, err := r.Run(t.Context(), req)
			require.ErrorContains(t, err, "at most 4096 bytes may be copied (all trees together: disk limit 4KiB)")
			require.Empty(t, leftBehind(t, r, fake))

			require.NoError(t, os.Remove(filepath.Join(dir, "big")))
			fake.Fail.Prepare = errors.New("no")
			_, err = r.Run(t.Context(), req)
			require.Error(t, err)
			require.Empty(t, leftBehind(t, r, fake))

			fake.Fail.Prepare = nil
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err = r.Run(ctx, req)
			require.ErrorIs(t, err, context.Canceled)
			require.Empty(t, leftBehind(t, r, fake))

			fake.Fail.Start = errors.New("refused")
			res, err := r.Run(t.Context(), req)
			require.Error(t, err)
			require.Equal(t, result.StatusStartFailed, res.Status)
			require.Empty(t, res.Trees)
			record, err := r.Store().Get("r1")
			require.NoError(t, err)
			left, err := os.ReadDir(filepath.Join(record.Dir, "live"))
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

func TestRequestsWithMountsThatCannotBe(t *testing.T) {
	dir := readable(t, map[string]string{"a": "A", "sub/b": "B"})
	require.NoError(t, os.Symlink("sub", filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "out")))
	sock := readable(t, map[string]string{"docker.sock": ""})
	closed := readable(t, map[string]string{"f": ""})
	require.NoError(t, os.Chmod(filepath.Join(closed, "f"), 0o000))
	for name, test := range map[string]struct {
		change func(req *Request, r *Runner)
		want   string
	}{
		"missing":             {func(q *Request, _ *Runner) { q.Mounts[0].Source += "/none" }, "does not exist"},
		"kernel":              {func(q *Request, _ *Runner) { q.Mounts[0].Source = "/proc" }, "of the kernel or of running services"},
		"run":                 {func(q *Request, _ *Runner) { q.Trees = []Tree{{Source: "/run", Target: "/repo/sub"}} }, "of the kernel or of running services"},
		"a device":            {func(q *Request, _ *Runner) { q.Mounts[0].Source = "/dev/zero" }, "neither a directory nor a regular file"},
		"root":                {func(q *Request, _ *Runner) { q.Mounts[0].Source = "/" }, "root of a file system"},
		"state":               {func(q *Request, r *Runner) { q.Mounts[0].Source = filepath.Dir(r.Store().Dir()) }, "is or holds the state directory"},
		"another's record":    {func(q *Request, r *Runner) { q.Mounts[0].Source = filepath.Join(r.Store().Dir(), "runs/x") }, "lies in the state directory"},
		"the engine's socket": {func(q *Request, _ *Runner) { q.Mounts[0].Source = sock }, "docker.sock"},
		"a tree of a file":    {func(q *Request, _ *Runner) { q.Trees = []Tree{{Source: filepath.Join(dir, "a"), Target: "/work/t"}} }, "is not a directory"},
		"no such mount point": {func(q *Request, _ *Runner) { q.Mounts = append(q.Mounts, Mount{Source: dir, Target: "/repo/none"}) }, "must be there for /repo/none"},
		"point over a link":   {func(q *Request, _ *Runner) { q.Mounts = append(q.Mounts, Mount{Source: dir, Target: "/repo/link"}) }, "leads over a link"},
		"folder on a file":    {func(q *Request, _ *Runner) { q.Mounts = append(q.Mounts, Mount{Source: dir, Target: "/repo/a"}) }, "a directory can be mounted on a directory only"},
		"in a file": {func(q *Request, _ *Runner) {
			q.Mounts = []Mount{{Source: filepath.Join(dir, "a"), Target: "/repo"}, {Source: dir, Target: "/repo/x"}}
		}, "which is a file"},
		"mask out of the mounts": {func(q *Request, _ *Runner) { q.Masks = []string{"/repo/out"} }, "leads out of the mounts"},
		"mask by a parent":       {func(q *Request, _ *Runner) { q.Masks = []string{"/repo/../etc"} }, "clean absolute path"},
		"start in nothing":       {func(q *Request, _ *Runner) { q.WorkDir = "/repo/none" }, "is not a directory of"},
		"start in a file":        {func(q *Request, _ *Runner) { q.WorkDir = "/repo/a" }, "is not a directory of"},
		"start out of the mount": {func(q *Request, _ *Runner) { q.WorkDir = "/repo/out" }, "is not a directory of"},
		"unreadable for the program": {func(q *Request, _ *Runner) { q.Mounts[0].Source = filepath.Join(closed, "f") },
			"cannot be read by user"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(nil)
			r := newFakeRunner(t, fake)
			require.NoError(t, os.MkdirAll(filepath.Join(r.Store().Dir(), "runs/x/program"), 0o755))
			req := command("true")
			req.Mounts = []Mount{{Source: dir, Target: "/repo"}}
			test.change(&req, r)
			_, err := r.Run(t.Context(), req)
			require.ErrorContains(t, err, test.want)
			require.Empty(t, fake.Containers())
		})
	}
}

func TestTreesNeedTheProgramsUser(t *testing.T) {
	if os.Geteuid() == 0 {
		dir := readable(t, map[string]string{"a": "A"})
		r, _, req := treeRun(t, spec.TransferBind, dir, func(copied string) error {
			info, err := os.Stat(filepath.Join(copied, "a"))
			if uid, _, _ := fsx.OwnerOf(info); err == nil && uid != 1234 {
				err = errors.New("not given to the program")
			}
			return err
		})
		req.User = "1234:1234"
		res, err := r.Run(t.Context(), req)
		require.NoError(t, err)
		require.Zero(t, res.ExitCode, res.Stderr)
		return
	}
	r, _, req := treeRun(t, spec.TransferBind, readable(t, nil), func(string) error { return nil })
	req.User = "1234:1234"
	_, err := r.Run(t.Context(), req)
	var field *policy.FieldError
	require.ErrorAs(t, err, &field)
}
