//go:build linux

package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// newPoolRunner is a runner with a pool on a fake engine. At the end of the test nothing may be left
// of what waited.
func newPoolRunner(t *testing.T, fake *enginetest.Fake, bounds Pool, opts ...Option) *Runner {
	t.Helper()
	r := newFakeRunner(t, fake, append(opts, WithPool(bounds))...)
	t.Cleanup(func() {
		require.NoError(t, r.Close())
		requireNothingWaits(t, r)
		require.Empty(t, fake.Left())
		require.Empty(t, heldUIDs(t, r))
	})
	return r
}

func requireNothingWaits(t *testing.T, r *Runner) {
	t.Helper()
	entries, err := os.ReadDir(r.store.PoolDir())
	if !errors.Is(err, os.ErrNotExist) {
		require.NoError(t, err)
	}
	require.Empty(t, entries)
}

// settle waits until the pool needs no more containers.
func settle(t *testing.T, r *Runner) {
	t.Helper()
	require.NoError(t, r.pool.settle(t.Context(), func() (bool, error) { return false, nil }))
}

// some is a request that a waiting container can have.
func some(words ...string) Request { return Request{Image: "debian", Command: words} }

// waited runs a request, and checks that its container had waited.
func waited(t *testing.T, r *Runner, req Request) *result.Result {
	t.Helper()
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, &result.Pool{Waited: true}, res.Pool)
	require.Equal(t, result.StatusExited, res.Status, res.Explanation)
	return res
}

// cold runs a request, and checks that its container had not waited.
func cold(t *testing.T, r *Runner, req Request) *result.Result {
	t.Helper()
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.NotNil(t, res.Pool)
	require.False(t, res.Pool.Waited)
	require.NotEmpty(t, res.Pool.Reason)
	require.Equal(t, result.StatusExited, res.Status, res.Explanation)
	return res
}

// comparable is a result without what differs between two runs of one program.
func comparable(t *testing.T, res *result.Result) map[string]any {
	t.Helper()
	text, err := json.Marshal(res)
	require.NoError(t, err)
	var all map[string]any
	require.NoError(t, json.Unmarshal(text, &all))
	for _, name := range []string{"id", "started_at", "finished_at", "duration_seconds", "setup_seconds", "teardown_seconds", "metrics", "pool"} {
		delete(all, name)
	}
	return all
}

// TestAWaitingContainerGivesTheSameResult: all that the caller sees is the same as without a pool.
func TestAWaitingContainerGivesTheSameResult(t *testing.T) {
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		text, err := os.ReadFile(p.Meta.Sources[spec.RoleProgram])
		if err != nil {
			return 99
		}
		p.Print(string(text) + "Final Validation Performance: 0.5\n")
		if err := os.WriteFile(p.Final("model.bin"), []byte("weights"), 0o600); err != nil {
			return 98
		}
		return 3
	})
	dir := t.TempDir()
	script, out := filepath.Join(dir, "main.py"), filepath.Join(dir, "out")
	require.NoError(t, os.WriteFile(script, []byte("print(1)\n"), 0o644))
	require.NoError(t, os.Mkdir(out, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(out, "mine"), []byte("precious"), 0o600))
	req := Request{Image: "debian", Script: script, Final: out, Args: []string{"-v"}, Name: "one", Labels: map[string]string{"team": "blue"},
		Env: map[string]string{"A": "1"}, Limits: policy.Limits{Timeout: time.Minute}}
	r := newPoolRunner(t, fake, Pool{Size: 2})

	first, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.False(t, first.Pool.Waited)
	require.Equal(t, 3, first.ExitCode)
	require.NoError(t, os.RemoveAll(out))
	require.NoError(t, os.Mkdir(out, 0o750))
	require.NoError(t, os.Chmod(out, 0o750|os.ModeSetgid))
	require.NoError(t, os.WriteFile(filepath.Join(out, "mine"), []byte("precious"), 0o600))
	coldPlan, err := r.Record(first.ID)
	require.NoError(t, err)

	settle(t, r)
	second, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.True(t, second.Pool.Waited, second.Pool.Reason)
	one, two := comparable(t, first), comparable(t, second)
	one["warnings"], two["warnings"] = len(first.Warnings), len(second.Warnings) // they name a directory of the run
	require.Equal(t, one["enforced"].(map[string]any)["limits"], two["enforced"].(map[string]any)["limits"])
	delete(one["enforced"].(map[string]any), "user")
	delete(two["enforced"].(map[string]any), "user")
	require.Equal(t, one, two)
	info, err := os.Stat(out)
	require.NoError(t, err)
	require.Equal(t, 0o750|os.ModeSetgid|os.ModeDir, info.Mode())
	require.FileExists(t, filepath.Join(out+".before-"+second.ID, "mine"))
	require.Equal(t, second.ID, r.LeftBy(t.Context(), out))

	kept, err := r.Record(second.ID)
	require.NoError(t, err)
	require.Equal(t, record.Finished, kept.State)
	coldPlan.Spec.Job.RunID, coldPlan.Spec.Class.User = kept.Spec.Job.RunID, kept.Spec.Class.User
	require.Equal(t, coldPlan.Spec, kept.Spec)
	text, err := os.ReadFile(kept.ProgramPath())
	require.NoError(t, err)
	require.Equal(t, "print(1)\n", string(text))
	before, err := os.ReadDir(coldPlan.Dir)
	require.NoError(t, err)
	after, err := os.ReadDir(kept.Dir)
	require.NoError(t, err)
	require.Equal(t, names(before), names(after))
	require.False(t, r.store.IsOpen(second.ID))

	settle(t, r)
	fake.Do(func(f *enginetest.Fake) { f.Program = nil })
	req.Final = ""
	third := waited(t, r, req)
	require.NotEqual(t, second.ID, third.ID)
	require.Equal(t, PoolStatus{Taken: 2, Cold: 1}, counts(r))
}

func counts(r *Runner) PoolStatus {
	s := r.PoolStatus()
	return PoolStatus{Taken: s.Taken, Cold: s.Cold}
}

func names(entries []os.DirEntry) (all []string) {
	for _, entry := range entries {
		all = append(all, entry.Name())
	}
	return all
}

// TestClassesOfAPool: what is fixed when a container is created separates classes, and nothing else.
func TestClassesOfAPool(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"input", "other", "data"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, "file"), nil, 0o644))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, "secret"), nil, 0o644))
	}
	for _, name := range []string{"a.py", "b.py"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("pass"), 0o644))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "sub", "a.py"), []byte("1"), 0o644))
	fake := enginetest.NewFake(nil)
	fake.Facts.Host.Runtimes = []string{"runc", "runsc"}
	imageID := ""
	fake.Image = func(ref string, image *images.Resolved) { image.ID = "sha256:" + ref + imageID }
	r := newPoolRunner(t, fake, Pool{Size: 1}, WithPolicy(policy.Policy{AllowNetwork: true}))
	base := func() Request {
		return Request{Image: "debian", Script: filepath.Join(dir, "a.py"), Input: filepath.Join(dir, "input"),
			Mounts: []Mount{{Source: filepath.Join(dir, "data"), Target: "/host/data"}}}
	}
	key := func(req Request) string {
		plan, err := r.plan(t.Context(), req)
		require.NoError(t, err)
		key, err := poolKey(plan)
		require.NoError(t, err)
		return key
	}
	original := key(base())
	for name, test := range map[string]struct {
		change func(*Request)
		same   bool
	}{
		"nothing":           {func(*Request) {}, true},
		"labels":            {func(req *Request) { req.Labels = map[string]string{"a": "b"} }, true},
		"name":              {func(req *Request) { req.Name = "x" }, true},
		"arguments":         {func(req *Request) { req.Args = []string{"-v"} }, true},
		"environment":       {func(req *Request) { req.Env = map[string]string{"A": "b"} }, true},
		"time limit":        {func(req *Request) { req.Limits.Timeout = 7 * time.Second }, true},
		"output limit":      {func(req *Request) { req.Limits.Output = 7 * policy.MiB }, true},
		"final":             {func(req *Request) { req.Final = filepath.Join(dir, "out") }, true},
		"directory of a.py": {func(req *Request) { req.Script = filepath.Join(dir, "sub", "a.py") }, true},
		"stdin":             {func(req *Request) { req.Stdin = true }, true},
		"script name":       {func(req *Request) { req.Script = filepath.Join(dir, "b.py") }, false},
		"command":           {func(req *Request) { req.Script, req.Command = "", []string{"true"} }, false},
		"image":             {func(req *Request) { req.Image = "alpine" }, false},
		"input":             {func(req *Request) { req.Input = filepath.Join(dir, "other") }, false},
		"no input":          {func(req *Request) { req.Input = "" }, false},
		"source of a mount": {func(req *Request) { req.Mounts[0].Source = filepath.Join(dir, "other") }, false},
		"target of a mount": {func(req *Request) { req.Mounts[0].Target = "/host/data2" }, false},
		"one mount more": {func(req *Request) {
			req.Mounts = append(req.Mounts, Mount{Source: filepath.Join(dir, "other"), Target: "/host/other"})
		}, false},
		"mask":               {func(req *Request) { req.Masks = []string{"/host/data/secret"} }, false},
		"user":               {func(req *Request) { req.User = "1234:1234" }, false},
		"network":            {func(req *Request) { req.Network = "bridge" }, false},
		"runtime":            {func(req *Request) { req.Runtime = "runsc" }, false},
		"memory":             {func(req *Request) { req.Limits.Memory = 77 * policy.MiB }, false},
		"processors":         {func(req *Request) { req.Limits.CPUs = 0.5 }, false},
		"processes":          {func(req *Request) { req.Limits.PIDs = 77 }, false},
		"temporary files":    {func(req *Request) { req.Limits.Tmp = 7 * policy.MiB }, false},
		"image under a name": {func(*Request) { imageID = "new" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() { imageID = "" }()
			req := base()
			test.change(&req)
			if test.same {
				require.Equal(t, original, key(req))
			} else {
				require.NotEqual(t, original, key(req))
			}
		})
	}
	t.Run("another directory under its name", func(t *testing.T) {
		for _, name := range []string{"input", "data"} {
			before := key(base())
			require.NoError(t, os.Rename(filepath.Join(dir, name), filepath.Join(dir, "old-"+name)))
			require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
			require.NotEqual(t, before, key(base()), name)
		}
	})
}

// TestADirectoryThatIsReplacedWhileAContainerWaits: the run sees the new one.
func TestADirectoryThatIsReplacedWhileAContainerWaits(t *testing.T) {
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		if _, err := os.Stat(filepath.Join(p.Meta.Sources[spec.RoleInput], "new")); err != nil {
			return 1
		}
		return 0
	})
	r := newPoolRunner(t, fake, Pool{Size: 2})
	input := filepath.Join(t.TempDir(), "input")
	require.NoError(t, os.Mkdir(input, 0o755))
	req := some("true")
	req.Input = input
	require.NoError(t, r.Warm(t.Context(), req, 2))
	require.NoError(t, os.Rename(input, input+".old"))
	require.NoError(t, os.Mkdir(input, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(input, "new"), nil, 0o644))
	require.Zero(t, cold(t, r, req).ExitCode)
	settle(t, r)
	require.Zero(t, waited(t, r, req).ExitCode)
}

// TestADirectoryThatIsGoneWhileAContainerIsPrepared says nothing about the engine: later runs have their
// files mounted, and a pool.
func TestADirectoryThatIsGoneWhileAContainerIsPrepared(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newPoolRunner(t, fake, Pool{Size: 1})
	req := some("true")
	req.Input = filepath.Join(t.TempDir(), "input")
	require.NoError(t, os.Mkdir(req.Input, 0o755))
	fake.Hook = func(call, _ string) error {
		if call == "Prepare" {
			return os.RemoveAll(req.Input)
		}
		return nil
	}
	require.Error(t, r.Warm(t.Context(), req, 1))
	fake.Do(func(f *enginetest.Fake) { f.Hook = nil })
	require.NoError(t, r.Warm(t.Context(), some("true"), 1))
	waited(t, r, some("true"))
}

// TestContainersWaitForCopiedFiles where the engine can write into what they have mounted: each run has
// its own files there, also those of another input.
func TestContainersWaitForCopiedFiles(t *testing.T) {
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		text, err := os.ReadFile(filepath.Join(p.Meta.Sources[spec.RoleInput], "sub", "data"))
		if err != nil {
			return 1
		}
		p.Print(string(text))
		return writes(map[string]string{"a": "A"})(p)
	})
	fake.Do(func(f *enginetest.Fake) { f.Facts.Refills = true })
	r := newPoolRunner(t, fake, Pool{Size: 2})
	req := copied(t)
	req.ID = ""
	require.NoError(t, r.Warm(t.Context(), req, 2))
	for _, text := range []string{"first", "the second"} {
		req.Input = filepath.Join(t.TempDir(), "input")
		require.NoError(t, os.MkdirAll(filepath.Join(req.Input, "sub"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(req.Input, "sub", "data"), []byte(text), 0o644))
		res := waited(t, r, req)
		require.Equal(t, text, res.Stdout)
		require.Equal(t, []string{"a"}, paths(res))
		require.NoError(t, r.Warm(t.Context(), req, 1))
	}
	req.Limits.Disk = 100 * policy.MiB
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Equal(t, errNoneWaits, res.Pool.Reason, "its volume has another size")
}

// TestRunsThatNoContainerCanWaitFor have their own, and the result says why.
func TestRunsThatNoContainerCanWaitFor(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newPoolRunner(t, fake, Pool{Size: 1})
	tree := t.TempDir()
	for name, test := range map[string]struct {
		change func(*Request)
		reason string
	}{
		"copied files":         {func(req *Request) { req.Transfer = spec.TransferCopy }, "its files are copied to the engine"},
		"working copy":         {func(req *Request) { req.Trees = []Tree{{Source: tree, Target: "/repo"}} }, "it has working copies"},
		"kept":                 {func(req *Request) { req.Keep = true }, "its container is kept"},
		"named":                {func(req *Request) { req.ID = "mine" }, "its ID was chosen by the caller"},
		"another file system":  {nil, "its ./final is on another mount than the state directory"},
		"not in the pool":      {func(*Request) {}, errNoneWaits},
		"also not in the pool": {func(req *Request) { req.Name = "x" }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			req := some("true", name)
			req.User = fmt.Sprintf("%d:%d", 1000+len(name), 1000) // a class of its own
			if test.change == nil {
				req.Final = filepath.Join(otherFileSystem(t), "out")
			} else {
				test.change(&req)
			}
			res, err := r.Run(t.Context(), req)
			require.NoError(t, err)
			require.False(t, res.Pool.Waited)
			if test.reason == "" {
				return
			}
			require.Equal(t, test.reason, res.Pool.Reason)
			if test.reason != errNoneWaits && req.ID == "" {
				require.ErrorContains(t, r.Warm(t.Context(), req, 1), test.reason)
			}
			if req.Keep {
				require.NoError(t, fake.Remove(t.Context(), spec.Job{RunID: res.ID}.ContainerName()))
			}
		})
	}
	without := newFakeRunner(t, enginetest.NewFake(nil))
	res, err := without.Run(t.Context(), some("true"))
	require.NoError(t, err)
	require.Nil(t, res.Pool)
	require.ErrorContains(t, without.Warm(t.Context(), some("true"), 1), "WithPool")
}

// otherFileSystem is a directory on a file system of its own.
func otherFileSystem(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("evalbox-test", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skip("a file system cannot be mounted here: ", err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

// TestAWaitingContainerThatWasChanged gets no job: the run has another container, and nothing is left
// of the one that was changed.
func TestAWaitingContainerThatWasChanged(t *testing.T) {
	ready := func(change func(*wire.Ready)) func(*testing.T, *enginetest.Fake) {
		return func(_ *testing.T, f *enginetest.Fake) {
			old := f.Containers()
			f.Do(func(f *enginetest.Fake) {
				f.Ready = func(_ spec.Class, meta engine.Meta, ready *wire.Ready) {
					if slices.Contains(old, meta.Name) {
						change(ready)
					}
				}
			})
		}
	}
	for name, change := range map[string]func(t *testing.T, f *enginetest.Fake){
		"removed": func(t *testing.T, f *enginetest.Fake) {
			for _, c := range f.Containers() {
				require.NoError(t, f.Remove(t.Context(), c))
			}
		},
		"killed":           func(_ *testing.T, f *enginetest.Fake) { f.Die() },
		"engine restarted": func(_ *testing.T, f *enginetest.Fake) { f.Break(); f.Die(); f.Restore() },
		"more memory":      ready(func(ready *wire.Ready) { ready.Cgroup.MemoryBytes++ }),
		"less memory":      ready(func(ready *wire.Ready) { ready.Cgroup.MemoryBytes /= 2 }),
		"fewer processors": ready(func(ready *wire.Ready) { ready.Cgroup.CPUs /= 2 }),
		"a network":        ready(func(ready *wire.Ready) { ready.Interfaces = append(ready.Interfaces, "eth0") }),
		"a mount less":     ready(func(ready *wire.Ready) { ready.Mounts = ready.Mounts[:len(ready.Mounts)-1] }),
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(nil)
			r := newPoolRunner(t, fake, Pool{Size: 3})
			require.NoError(t, r.Warm(t.Context(), some("true"), 3))
			settle(t, r)
			old := fake.Containers()
			require.Len(t, old, 3)
			change(t, fake)
			// It makes its own, or waits for the one that the pool is just preparing.
			res, err := r.Run(t.Context(), some("true"))
			require.NoError(t, err)
			require.Equal(t, result.StatusExited, res.Status, res.Explanation)
			require.NotContains(t, old, spec.Job{RunID: res.ID}.ContainerName())
			settle(t, r)
			for _, c := range old {
				require.NotContains(t, fake.Containers(), c)
			}
			waited(t, r, some("true"))
		})
	}
}

// TestPausedContainersCostOneLook: a run does not wait for each of them.
func TestPausedContainersCostOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(nil)
		r := newPoolRunner(t, fake, Pool{Size: 4})
		require.NoError(t, r.Warm(t.Context(), some("true"), 4))
		settle(t, r)
		fake.Do(func(f *enginetest.Fake) { f.Paused = true })
		began := time.Now()
		cold(t, r, some("true"))
		require.Equal(t, lookPatience, time.Since(began))
	})
}

// TestACanceledRunLeavesThePoolAlone, except for the container that it was about to take.
func TestACanceledRunLeavesThePoolAlone(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newPoolRunner(t, fake, Pool{Size: 3})
	require.NoError(t, r.Warm(t.Context(), some("true"), 3))
	settle(t, r)
	old := fake.Containers()
	ctx, cancel := context.WithCancel(t.Context())
	fake.Do(func(f *enginetest.Fake) {
		f.Hook = func(call, _ string) error {
			if call == "Look" {
				cancel()
				return ctx.Err()
			}
			return nil
		}
	})
	_, err := r.Run(ctx, some("true"))
	require.ErrorIs(t, err, outcome.ErrCanceled)
	fake.Do(func(f *enginetest.Fake) { f.Hook = nil })
	settle(t, r)
	now := fake.Containers()
	require.Len(t, now, 3)
	require.Len(t, slices.DeleteFunc(old, func(c string) bool { return !slices.Contains(now, c) }), 2)
	waited(t, r, some("true"))
	waited(t, r, some("true"))
}

// TestNoTwoRunsShareAContainer: a hundred callers at once, most of them cold.
func TestNoTwoRunsShareAContainer(t *testing.T) {
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		if err := os.WriteFile(p.Final("id"), []byte(p.Job.RunID), 0o600); err != nil {
			return 9
		}
		return 0
	})
	r := newPoolRunner(t, fake, Pool{Size: 20})
	require.NoError(t, r.Warm(t.Context(), some("true"), 20))
	dir := t.TempDir()
	results := make([]*result.Result, 100)
	errs := make([]error, len(results))
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() {
			req := some("true")
			if i%2 == 0 {
				req.Final = filepath.Join(dir, fmt.Sprint(i))
			}
			results[i], errs[i] = r.Run(t.Context(), req)
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	ids := map[string]bool{}
	for i, res := range results {
		require.Zero(t, res.ExitCode)
		require.Len(t, res.Outputs, 1)
		require.False(t, ids[res.ID])
		ids[res.ID] = true
		if i%2 == 0 {
			text, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(i), "id"))
			require.NoError(t, err)
			require.Equal(t, res.ID, string(text))
		}
	}
	s := counts(r)
	require.Equal(t, 100, s.Taken+s.Cold)
	require.GreaterOrEqual(t, s.Taken, 20)
	fake.Do(func(f *enginetest.Fake) { require.Len(t, f.Started, 100) })
}

// TestClassesShareAPool: those that were used lately have the same part of it, and the pool comes to
// rest.
func TestClassesShareAPool(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newPoolRunner(t, fake, Pool{Size: 5})
	request := func(class int) Request {
		req := some("true")
		req.User = fmt.Sprintf("%d:1000", 1000+class)
		return req
	}
	for class := range 3 {
		_, err := r.Run(t.Context(), request(class))
		require.NoError(t, err)
		settle(t, r)
		require.Equal(t, 5, r.PoolStatus().Waiting)
	}
	var of []int
	r.pool.mu.Lock()
	for _, c := range r.pool.classes {
		of = append(of, len(c.waiting))
	}
	r.pool.mu.Unlock()
	require.Equal(t, []int{2, 2, 1}, of)
	for class := range 3 {
		waited(t, r, request(class))
	}
	for class := range 9 { // more classes than containers
		_, err := r.Run(t.Context(), request(class))
		require.NoError(t, err)
		settle(t, r)
		require.Equal(t, 5, r.PoolStatus().Waiting)
	}
}

// TestWaitingContainersAge: an old one is replaced, and a class that nobody uses any more has none.
func TestWaitingContainersAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(nil)
		r := newPoolRunner(t, fake, Pool{Size: 2, Age: 8 * time.Minute})
		require.NoError(t, r.Warm(t.Context(), some("true"), 2))
		first := fake.Containers()
		time.Sleep(7 * time.Minute)
		waited(t, r, some("true")) // it uses the class, and takes the oldest
		settle(t, r)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.Equal(t, 2, r.PoolStatus().Waiting)
		for _, c := range first {
			require.NotContains(t, fake.Containers(), c)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Zero(t, r.PoolStatus().Waiting)
		require.Empty(t, fake.Left())
		require.Empty(t, r.pool.classes)
	})
}

// TestALongRunGetsNoContainerWithAnEarlyDeadline: a garbage collection goes by the labels.
func TestALongRunGetsNoContainerWithAnEarlyDeadline(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newPoolRunner(t, fake, Pool{Size: 1, Age: time.Minute}, WithPolicy(policy.Policy{Max: policy.Limits{Timeout: 100 * time.Hour}}))
	short, long := some("true"), some("true")
	short.Limits.Timeout, long.Limits.Timeout = time.Minute, 10*time.Hour
	require.NoError(t, r.Warm(t.Context(), short, 1))
	waited(t, r, short)
	settle(t, r)
	cold(t, r, long)
	settle(t, r)
	require.Equal(t, 1, r.PoolStatus().Waiting)
	waited(t, r, long) // the pool has taken the other one out
	require.NoError(t, r.Warm(t.Context(), long, 1))
	waited(t, r, long)
}

// TestThePoolKeepsItsMemory: it stops before it has more than it may, and says so.
func TestThePoolKeepsItsMemory(t *testing.T) {
	fake := enginetest.NewFake(nil)
	fake.Usage.PeakMemory = 40 << 20
	r := newPoolRunner(t, fake, Pool{Size: 50, Memory: 100 << 20})
	require.ErrorIs(t, r.Warm(t.Context(), some("true"), 50), errPoolMemory)
	require.Equal(t, PoolStatus{Waiting: 2, Memory: 80 << 20, Problem: errPoolMemory.Error()}, r.PoolStatus())
	waited(t, r, some("true"))
	waited(t, r, some("true"))

	fake.Do(func(f *enginetest.Fake) { f.Usage.PeakMemory = 200 << 20 }) // one is too large
	require.ErrorIs(t, r.Warm(t.Context(), some("true", "x"), 50), errPoolMemory)
}

// TestUserIDsOfThePoolAreForRuns: a run that finds none free gets that of a waiting container.
func TestUserIDsOfThePoolAreForRuns(t *testing.T) {
	if os.Getuid() > 0 {
		t.Skip("only root lends user IDs")
	}
	fake := enginetest.NewFake(nil)
	r := newPoolRunner(t, fake, Pool{Size: 5}, WithUIDs("1900000000-1900000002"))
	require.ErrorContains(t, r.Warm(t.Context(), some("true"), 5), "no user ID is free")
	require.Equal(t, 3, r.PoolStatus().Waiting)
	other := some("true")
	other.Limits.Memory = 77 * policy.MiB
	cold(t, r, other)
	waited(t, r, some("true"))
}

// TestCloseWhileContainersArePrepared removes all of them, and those who wait for one are told.
func TestCloseWhileContainersArePrepared(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newPoolRunner(t, fake, Pool{Size: 3})
	require.NoError(t, r.Warm(t.Context(), some("true"), 1))
	preparing, goOn := make(chan struct{}), make(chan struct{})
	other := some("true")
	other.Limits.Memory = 77 * policy.MiB
	fake.Do(func(f *enginetest.Fake) {
		f.Hook = func(call, _ string) error {
			if call == "Prepare" {
				preparing <- struct{}{}
				<-goOn
			}
			return nil
		}
	})
	warm := make(chan error, 1)
	go func() { warm <- r.Warm(t.Context(), other, 2) }()
	<-preparing
	closing := make(chan struct{})
	go func() { r.pool.close(); close(closing) }()
	require.ErrorContains(t, <-warm, "closed")
	close(goOn)
	<-closing
	require.Empty(t, fake.Left())
	require.ErrorContains(t, r.Warm(t.Context(), other, 1), "closed")
	fake.Do(func(f *enginetest.Fake) { f.Hook = nil })
	cold(t, r, some("true"))
}

// TestWarmIsContentWithWhatThePoolMayHave: another class has the rest.
func TestWarmIsContentWithWhatThePoolMayHave(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newPoolRunner(t, fake, Pool{Size: 4})
	other := some("true")
	other.Limits.Memory = 77 * policy.MiB
	require.NoError(t, r.Warm(t.Context(), some("true"), 100))
	require.Equal(t, 4, r.PoolStatus().Waiting)
	require.NoError(t, r.Warm(t.Context(), other, 4))
	require.Equal(t, 4, r.PoolStatus().Waiting)
}

// TestAContainerThatCannotBePrepared: runs have their own, and try again.
func TestAContainerThatCannotBePrepared(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newPoolRunner(t, fake, Pool{Size: 2})
	refused := errors.New("it is tired")
	fake.Fail.Prepare = refused
	require.ErrorIs(t, r.Warm(t.Context(), some("true"), 1), refused)
	require.ErrorContains(t, errors.New(r.PoolStatus().Problem), "tired")
	requireNothingWaits(t, r)
	require.Empty(t, fake.Left())
	require.Empty(t, heldUIDs(t, r))
	fake.Do(func(f *enginetest.Fake) { f.Fail.Prepare = nil })
	cold(t, r, some("true"))
	settle(t, r)
	waited(t, r, some("true"))
	require.Empty(t, r.PoolStatus().Problem)
}

// TestWaitingContainersThatCannotBeRemovedYet are removed once that is possible.
func TestWaitingContainersThatCannotBeRemovedYet(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newPoolRunner(t, fake, Pool{Size: 2})
	require.NoError(t, r.Warm(t.Context(), some("true"), 2))
	settle(t, r)
	old := fake.Containers()
	fake.Die()
	fake.Do(func(f *enginetest.Fake) {
		f.Hook = func(call, name string) error {
			if call == "Remove" && (slices.Contains(old, name) || !strings.HasPrefix(name, "evalbox-")) { // names and IDs
				return ErrEngineUnavailable
			}
			return nil
		}
	})
	res, err := r.Run(t.Context(), some("true")) // in its own container, or in one that came for the dead ones
	require.NoError(t, err)
	require.Equal(t, result.StatusExited, res.Status, res.Explanation)
	settle(t, r)
	require.Subset(t, fake.Containers(), old)
	fake.Do(func(f *enginetest.Fake) { f.Hook = nil })
	settle(t, r)
	require.NotContains(t, fake.Containers(), old[0])
	require.NotContains(t, fake.Containers(), old[1])
}

// TestFailuresOfAPooledRunLeaveNothing: a container that was taken is removed with its run.
func TestFailuresOfAPooledRunLeaveNothing(t *testing.T) {
	for name, test := range map[string]struct {
		fail func(t *testing.T, r *Runner, fake *enginetest.Fake, req *Request)
		says string
	}{
		"final is busy": {func(t *testing.T, r *Runner, _ *enginetest.Fake, req *Request) {
			lock, err := fsx.LockPath(req.Final)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, lock.Close()) })
		}, "in use by another run"},
		"empty script": {func(t *testing.T, _ *Runner, _ *enginetest.Fake, req *Request) {
			require.NoError(t, os.Truncate(req.Script, 0))
		}, "is empty"},
		"container is gone": {func(_ *testing.T, r *Runner, fake *enginetest.Fake, _ *Request) {
			r.at = func(step string, _ *run) {
				if step == "staged" {
					fake.Die()
				}
			}
		}, "has ended"},
		"no record": {func(t *testing.T, r *Runner, _ *enginetest.Fake, _ *Request) {
			require.NoError(t, os.RemoveAll(r.store.RunsDir()))
		}, "cannot be made"},
		"no note": {func(t *testing.T, r *Runner, _ *enginetest.Fake, _ *Request) {
			require.NoError(t, os.RemoveAll(filepath.Join(r.store.Dir(), "open")))
		}, "cannot be written"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(nil)
			r := newPoolRunner(t, fake, Pool{Size: 1})
			dir := t.TempDir()
			req := Request{Image: "debian", Script: filepath.Join(dir, "a.py"), Final: filepath.Join(dir, "out")}
			require.NoError(t, os.WriteFile(req.Script, []byte("pass"), 0o644))
			require.NoError(t, os.Mkdir(req.Final, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(req.Final, "mine"), nil, 0o644))
			require.NoError(t, r.Warm(t.Context(), req, 1))
			test.fail(t, r, fake, &req)
			res, err := r.Run(t.Context(), req)
			require.ErrorContains(t, err, test.says)
			r.pool.close() // one for the next run may be waiting already
			require.Empty(t, fake.Left())
			require.Empty(t, heldUIDs(t, r))
			requireNothingWaits(t, r)
			if res == nil {
				ids, err := r.store.IDs()
				require.NoError(t, err)
				require.Empty(t, ids)
			}
			require.FileExists(t, filepath.Join(req.Final, "mine"))
		})
	}
}

// diePooled is [dieAt] for a run that takes one of two waiting containers. It returns the ID of the
// run as well.
func diePooled(t *testing.T, fake *enginetest.Fake, step string, req Request) (*Runner, string) {
	t.Helper()
	first := newFakeRunner(t, fake, WithPool(Pool{Size: 2}))
	require.NoError(t, first.Warm(t.Context(), req, 2))
	dead := make(chan string)
	first.at = func(at string, a *run) {
		if at != step {
			return
		}
		p := &first.pool
		p.mu.Lock()
		p.closed = true // what the filling goroutine prepares now is its own to remove
		p.mu.Unlock()
		p.stop()
		<-p.filling
		first.behind.Close()
		a.stopWatch()
		_ = a.stage.Close()
		fake.Die()
		leave := []*run{a}
		for _, c := range p.classes {
			for _, w := range c.waiting {
				leave = append(leave, &run{uid: w.lease})
				file := filepath.Join(first.store.PoolDir(), w.id, "owner")
				require.FileExists(t, file)
				require.NoError(t, os.WriteFile(file, []byte(recordtest.DeadOwner().String()), 0o600))
			}
		}
		for _, a := range leave {
			if a.uid != nil {
				require.NoError(t, a.uid.Leave())
			}
		}
		var note record.Journal
		path := filepath.Join(a.stage.Dir, record.JournalFile)
		require.NoError(t, record.ReadJSON(path, &note))
		note.Owner = recordtest.DeadOwner().String()
		require.NoError(t, record.WriteJSON(path, note))
		dead <- a.spec.Job.RunID
		select {} // for ever
	}
	go func() { _, _ = first.Run(context.Background(), req) }()
	id := <-dead
	second := newFakeRunner(t, fake, WithStateDir(first.store.Dir()))
	second.users.dir = first.users.dir
	return second, id
}

// TestPooledRunsAreAdoptedAtEveryStep: as those without a pool, and nothing of the pool is left.
func TestPooledRunsAreAdoptedAtEveryStep(t *testing.T) {
	for i, step := range stepsOfARun {
		t.Run(step, func(t *testing.T) {
			w := newWorker()
			fake := enginetest.NewFake(w.program)
			close(w.letGo)
			out := filepath.Join(t.TempDir(), "out")
			require.NoError(t, os.Mkdir(out, 0o750))
			require.NoError(t, os.WriteFile(filepath.Join(out, "mine"), []byte("precious"), 0o600))
			req := some("train")
			req.Final = out
			r, id := diePooled(t, fake, step, req)

			ran := false
			for at, s := range stepsOfARun {
				ran = ran || s == "accepted" && i >= at
			}
			res, err := r.Adopt(t.Context(), id)
			switch {
			case step == "staged":
				require.ErrorIs(t, err, outcome.ErrOwnerDied)
			case !ran:
				require.NoError(t, err)
				require.Equal(t, result.StatusStartFailed, res.Status)
			default:
				require.NoError(t, err)
				require.Equal(t, result.StatusExited, res.Status, res.Explanation)
				require.Len(t, res.Outputs, 1)
			}
			info, err := os.Stat(out)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o750)|os.ModeDir, info.Mode())
			uid, gid, _ := fsx.OwnerOf(info)
			require.Equal(t, []int{os.Geteuid(), os.Getegid()}, []int{uid, gid})
			if ran {
				require.FileExists(t, filepath.Join(out, "model.bin"))
				require.FileExists(t, filepath.Join(out+".before-"+id, "mine"))
			} else {
				require.FileExists(t, filepath.Join(out, "mine"))
				require.NoDirExists(t, out+".before-"+id)
			}
			_, err = r.GC(t.Context(), GCOptions{})
			require.NoError(t, err)
			require.Empty(t, fake.Left())
			require.Empty(t, heldUIDs(t, r))
			requireNothingWaits(t, r)
			_, err = r.Run(t.Context(), req)
			require.NoError(t, err)
		})
	}
}

// TestTheNextRunRemovesWhatADeadPoolLeft, also without a garbage collection.
func TestTheNextRunRemovesWhatADeadPoolLeft(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r, _ := diePooled(t, fake, "staged", some("true"))
	require.GreaterOrEqual(t, len(fake.Containers()), 2) // one more if the pool was filled again before it died
	_, err := r.Run(t.Context(), some("true"))
	require.NoError(t, err)
	r.behind.Wait(t.Context())
	require.Empty(t, fake.Left())
	requireNothingWaits(t, r)
}

// TestAControllerThatDiesWhileItTakesAContainer leaves a record of nothing, which a garbage collection
// removes. That of one that lives stays.
func TestAControllerThatDiesWhileItTakesAContainer(t *testing.T) {
	fake := enginetest.NewFake(nil)
	r := newFakeRunner(t, fake)
	for id, by := range map[string]owner.Owner{"dead": recordtest.DeadOwner(), "living": owner.This()} {
		dir, err := r.store.Reserve(id)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "owner"), []byte(by.String()), 0o600))
		require.NoError(t, os.Rename(dir, r.store.RecordDir(id)))
	}
	_, err := r.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	ids, err := r.store.IDs()
	require.NoError(t, err)
	require.Equal(t, []string{"living"}, ids)
}

// TestWaitingContainersAreNoRuns: they are not listed, and a garbage collection leaves them alone.
func TestWaitingContainersAreNoRuns(t *testing.T) {
	entered, goOn := make(chan struct{}), make(chan struct{})
	fake := enginetest.NewFake(func(*enginetest.Program) int { close(entered); <-goOn; return 0 })
	r := newPoolRunner(t, fake, Pool{Size: 2})
	req := some("true")
	req.Name = "mine"
	require.NoError(t, r.Warm(t.Context(), req, 2))
	listed, err := r.Containers(t.Context())
	require.NoError(t, err)
	require.Empty(t, listed)
	records, err := r.Store().List()
	require.NoError(t, err)
	require.Empty(t, records)
	report, err := r.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	require.Empty(t, report.Removed)
	require.Len(t, report.Left, 2)
	require.Equal(t, 2, r.PoolStatus().Waiting)

	done := make(chan error, 1)
	go func() { _, err := r.Run(context.Background(), req); done <- err }()
	<-entered
	listed, err = r.Containers(t.Context())
	require.NoError(t, err)
	require.Len(t, listed, 1)
	require.Equal(t, "mine", listed[0].Labels[spec.LabelName])
	close(goOn)
	require.NoError(t, <-done)
}

// TestBoundsOfAPool must not be negative.
func TestBoundsOfAPool(t *testing.T) {
	for _, bounds := range []Pool{{Size: -1}, {Memory: -1}, {Age: -1}} {
		_, err := New(WithEngine(enginetest.NewFake(nil)), WithPool(bounds))
		var field *policy.FieldError
		require.ErrorAs(t, err, &field)
		require.Equal(t, "pool", field.Field)
	}
}
