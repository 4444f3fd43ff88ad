package enginetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// testNames checks that only one container can have a name, and that a failed attempt to reuse
// the name does not affect it.
func testNames(t *testing.T, s *suite) {
	e := s.connect(t)
	meta := s.meta(t)
	c := s.must(t, e, s.class(), meta)
	_, err := e.Prepare(t.Context(), s.class(), meta)
	require.ErrorIs(t, err, engine.ErrNameTaken)
	require.Zero(t, do(t, c, s.job(t, "nothing"), nil).end.ExitCode)
	require.NoError(t, e.Remove(t.Context(), meta.Name))
	require.Zero(t, do(t, s.must(t, e, s.class(), meta), s.job(t, "nothing"), nil).end.ExitCode)
}

// testSources checks that a bind needs its source, and that a missing source is never created.
func testSources(t *testing.T, s *suite) {
	e := s.connect(t)
	gone := filepath.Join(t.TempDir(), "gone", "below")
	class, meta := s.class(), s.meta(t)
	class.Binds = []spec.Bind{{Role: spec.RoleInput, Target: spec.InputDir, ReadOnly: true}}
	meta.Sources = engine.Sources{spec.RoleInput: gone}
	_, err := e.Prepare(t.Context(), class, meta)
	require.ErrorIs(t, err, engine.ErrNoSource)
	require.NoDirExists(t, filepath.Dir(gone))
	require.Empty(t, s.found(t, e, meta.Name))

	// Existing sources are mounted with their own identity, read-only or writable as requested.
	dir, rw, one := openDir(t), openDir(t), filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("inside"), 0o644))
	require.NoError(t, os.WriteFile(one, []byte("inside"), 0o644))
	meta = s.meta(t)
	class.Binds = []spec.Bind{{Role: "mount-0", Target: "/data/ro", ReadOnly: true}, {Role: "mount-1", Target: "/data/one", ReadOnly: true},
		{Role: spec.RoleFinal, Target: "/data/rw"}}
	meta.Sources = engine.Sources{"mount-0": dir, "mount-1": one, spec.RoleFinal: rw}
	meta.Stat, meta.Witness = []string{"/data/ro", "/data/one", "/data/rw"}, "/data/ro/file"
	c := s.must(t, e, class, meta)
	checkStats(t, c.Ready(), map[string]string{"/data/ro": dir, "/data/one": one, "/data/rw": rw})
	got := do(t, c, s.job(t, "mounts"), nil)
	require.Equal(t, "errno 30 errno 30 errno 30 inside inside\n", got.stdout, got.stderr)
	text, err := os.ReadFile(filepath.Join(rw, "new"))
	require.NoError(t, err)
	require.Equal(t, "inside", string(text))
}

// testMasks checks that masked files and directories are empty and cannot be written.
func testMasks(t *testing.T, s *suite) {
	e := s.connect(t)
	dir, empty := openDir(t), filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.Mkdir(filepath.Join(dir, "keys"), 0o755))
	for name, text := range map[string]string{"keys/x": "secret", "secret": "secret", "open": "open"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	require.NoError(t, os.WriteFile(empty, nil, 0o444))
	class, meta := s.class(), s.meta(t)
	class.Binds = []spec.Bind{{Role: "mount-0", Target: "/data", ReadOnly: true}}
	class.Masks = []spec.Mask{{Target: "/data/keys", Dir: true}, {Target: "/data/secret"}}
	meta.Sources = engine.Sources{"mount-0": dir, spec.RoleEmpty: empty}
	got := s.runs(t, e, class, meta, "masked")
	require.Equal(t, "[] '' open\nrefused\nrefused\n", got.stdout)
}

// testDirectoryThatIsGone removes the working directory between Prepare and Start.
func testDirectoryThatIsGone(t *testing.T, s *suite) {
	e := s.connect(t)
	dir := openDir(t)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	class, meta := s.class(), s.meta(t)
	class.Binds = []spec.Bind{{Role: spec.RoleFinal, Target: "/data"}}
	class.WorkDir, meta.Sources = "/data/sub", engine.Sources{spec.RoleFinal: dir}
	c := s.must(t, e, class, meta)
	require.NoError(t, os.Remove(filepath.Join(dir, "sub")))
	got := do(t, c, s.job(t, helperNoDirectory), nil)
	require.Equal(t, &engine.LaunchError{Stage: "chdir", Errno: syscall.ENOENT}, got.end.Launch)
	require.True(t, got.end.Reported && got.end.Complete)
}

func testImages(t *testing.T, s *suite) {
	e := s.connect(t)
	_, err := e.Resolve(t.Context(), unknownImage)
	require.ErrorIs(t, err, images.ErrNotFound)
	require.NotEmpty(t, s.image.ID)
	require.NotEmpty(t, s.image.Platform)
	info, err := e.Info(t.Context())
	require.NoError(t, err)
	require.NotEmpty(t, info.ID)
	require.Empty(t, info.Missing)
	require.Equal(t, s.info.ID, info.ID)
}

// testCanceled checks that a canceled Prepare leaves nothing behind.
func testCanceled(t *testing.T, s *suite) {
	e := s.connect(t)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	meta := s.meta(t)
	_, err := e.Prepare(canceled, s.class(), meta)
	require.ErrorIs(t, err, context.Canceled)
	var names []string
	apart := s.New(t)
	for _, after := range []time.Duration{time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond,
		120 * time.Millisecond, 250 * time.Millisecond} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		meta := s.meta(t)
		c, err := apart.Prepare(ctx, s.class(), meta)
		names = append(names, meta.Name)
		if err == nil {
			require.NoError(t, c.Remove(t.Context()))
		} else {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		cancel()
	}
	require.NoError(t, apart.Close(), "Close waits until all removals are certain")
	for _, name := range append(names, meta.Name) {
		soon(t, name+" still exists", func() bool { return len(s.found(t, e, name)) == 0 })
	}
}

// testMany runs many containers at once on one engine.
func testMany(t *testing.T, s *suite) {
	e := s.connect(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			c, err := e.Prepare(t.Context(), s.class(), s.meta(t))
			if !assert.NoError(t, err) {
				return
			}
			var stdout recorder
			if assert.NoError(t, c.Start(t.Context(), s.job(t, "prints"), engine.Streams{Stdout: &stdout})) {
				end, err := c.Wait(t.Context())
				assert.NoError(t, err)
				assert.True(t, end.Reported && end.Complete && end.ExitCode == 0, "%+v", end)
				assert.Equal(t, 21, strings.Count(stdout.String(), "\n"))
			}
			assert.NoError(t, c.Remove(t.Context()))
		})
	}
	wg.Wait()
}

// testReady compares what init saw with the class.
func testReady(t *testing.T, s *suite) {
	e := s.connect(t)
	class, meta := s.class(), s.meta(t)
	dir, binds := openDir(t), map[string]bool{}
	meta.Stat = []string{"/no/such/path"}
	if s.can("sources") {
		class.Binds = []spec.Bind{{Role: "mount-0", Target: "/data/a b", ReadOnly: true}, {Role: spec.RoleFinal, Target: spec.FinalDir}}
		meta.Sources = engine.Sources{"mount-0": dir, spec.RoleFinal: dir}
		meta.Stat, binds = append(meta.Stat, "/data/a b"), map[string]bool{"/data/a b": true, spec.FinalDir: false}
	}
	ready := s.must(t, e, class, meta).Ready()

	assert.Equal(t, wire.BuildID(), ready.Build)
	assert.Equal(t, []int{userID, userID}, []int{ready.UID, ready.GID})
	assert.Zero(t, ready.CapEffective|ready.CapPermitted|ready.CapBounding)
	assert.True(t, ready.NoNewPrivs)
	assert.Equal(t, 2, ready.Seccomp)
	assert.Equal(t, []string{"lo"}, ready.Interfaces)
	assert.NotEmpty(t, ready.Machine)
	want := wire.Cgroup{Version: ready.Cgroup.Version, MemoryBytes: memory, SwapBytes: ready.Cgroup.SwapBytes, PIDs: ready.Cgroup.PIDs, CPUs: 1}
	if s.can("processes") {
		want = wire.Cgroup{Version: class.Cgroup.Version, MemoryBytes: memory, PIDs: pids + wire.InitTasks(pids), CPUs: 1}
		assert.Equal(t, wire.Limits{Soft: noFile, Hard: noFile}, ready.Rlimits["Max open files"])
		assert.Equal(t, wire.Limits{}, ready.Rlimits["Max core file size"])
	}
	assert.Equal(t, want, ready.Cgroup)

	root, ok := ready.MountAt("/")
	assert.True(t, ok && root.ReadOnly, "%+v", root)
	for target, size := range map[string]int{spec.TmpDir: tmpSize, spec.WorkDir: tmpSize, "/dev/shm": shmSize} {
		mount, ok := ready.MountAt(target)
		require.True(t, ok, target)
		assert.Equal(t, "tmpfs", mount.FSType)
		assert.False(t, mount.ReadOnly)
		assert.Contains(t, strings.Split(mount.Super, ","), fmt.Sprintf("size=%dk", size/1024), target)
	}
	for target, readOnly := range binds {
		mount, ok := ready.MountAt(target)
		assert.True(t, ok, target)
		assert.Equal(t, readOnly, mount.ReadOnly, target)
	}
	writable := slices.DeleteFunc(slices.Clone(ready.Mounts), func(m wire.Mount) bool {
		isDevice := m.FSType == "devtmpfs" // a rootless engine mounts each, and masks with one
		return m.ReadOnly || isDevice || slices.Contains([]string{"tmpfs", "proc", "devpts", "mqueue", "cgroup", "cgroup2", "sysfs"}, m.FSType) || m.Target == spec.FinalDir ||
			!s.can("sources") && slices.Contains([]string{"/etc/hosts", "/dev/termination-log"}, m.Target) // the kubelet's
	})
	assert.Empty(t, writable, "more mounts are writable than requested")

	if s.can("sources") {
		assert.Equal(t, identify(dir), ready.Stats["/data/a b"])
	}
	assert.Equal(t, identify("/no/such/path").Errno, ready.Stats["/no/such/path"].Errno)
}

// checkStats compares the stats of mount points with those of their sources here.
func checkStats(t *testing.T, ready wire.Ready, want map[string]string) {
	t.Helper()
	require.Len(t, ready.Stats, len(want))
	for inside, here := range want {
		require.Equal(t, identify(here), ready.Stats[inside], inside)
	}
	require.Zero(t, ready.Witness)
}
