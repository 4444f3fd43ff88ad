package enginetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// testReady compares what init saw with the class.
func testReady(t *testing.T, s *suite) {
	e := s.connect(t)
	class, meta := s.class(), s.meta(t)
	dir := openDir(t)
	class.Binds = []spec.Bind{{Role: "mount-0", Target: "/data/a b", ReadOnly: true}, {Role: spec.RoleFinal, Target: spec.FinalDir}}
	meta.Sources = engine.Sources{"mount-0": dir, spec.RoleFinal: dir}
	meta.Stat = []string{"/data/a b", "/no/such/path"}
	ready := s.must(t, e, class, meta).Ready()

	assert.Equal(t, wire.BuildID(), ready.Build)
	assert.Equal(t, []int{userID, userID}, []int{ready.UID, ready.GID})
	assert.Zero(t, ready.CapEffective|ready.CapPermitted|ready.CapBounding)
	assert.True(t, ready.NoNewPrivs)
	assert.Equal(t, 2, ready.Seccomp)
	assert.Equal(t, []string{"lo"}, ready.Interfaces)
	assert.NotEmpty(t, ready.Machine)
	assert.Equal(t, wire.Limits{Soft: noFile, Hard: noFile}, ready.Rlimits["Max open files"])
	assert.Equal(t, wire.Limits{}, ready.Rlimits["Max core file size"])
	assert.Equal(t, wire.Cgroup{Version: class.Cgroup.Version, MemoryBytes: memory, PIDs: pids + wire.InitTasks(pids), CPUs: 1}, ready.Cgroup)

	root, ok := ready.MountAt("/")
	assert.True(t, ok && root.ReadOnly, "%+v", root)
	for target, size := range map[string]int{spec.TmpDir: tmpSize, spec.WorkDir: tmpSize, "/dev/shm": shmSize} {
		mount, ok := ready.MountAt(target)
		require.True(t, ok, target)
		assert.Equal(t, "tmpfs", mount.FSType)
		assert.False(t, mount.ReadOnly)
		assert.Contains(t, strings.Split(mount.Super, ","), fmt.Sprintf("size=%dk", size/1024), target)
	}
	for target, readOnly := range map[string]bool{"/data/a b": true, spec.FinalDir: false} {
		mount, ok := ready.MountAt(target)
		assert.True(t, ok, target)
		assert.Equal(t, readOnly, mount.ReadOnly, target)
	}
	writable := slices.DeleteFunc(slices.Clone(ready.Mounts), func(m wire.Mount) bool {
		return m.ReadOnly || slices.Contains([]string{"tmpfs", "proc", "devpts", "mqueue", "cgroup", "cgroup2", "sysfs"}, m.FSType) || m.Target == spec.FinalDir
	})
	assert.Empty(t, writable, "more mounts are writable than requested")

	assert.Equal(t, identify(dir), ready.Stats["/data/a b"])
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
