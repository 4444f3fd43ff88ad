package sandbox

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
)

// without removes the mount at one path.
func without(target string) func(seen *wire.Ready) {
	return func(seen *wire.Ready) {
		seen.Mounts = slices.DeleteFunc(seen.Mounts, func(m wire.Mount) bool { return m.Target == target })
	}
}

// writable makes the mount at a path writable.
func writable(target string) func(seen *wire.Ready) {
	return func(seen *wire.Ready) {
		for i := range seen.Mounts {
			if seen.Mounts[i].Target == target {
				seen.Mounts[i].ReadOnly = false
			}
		}
	}
}

// TestWeakerContainersAreRefused: what the container's init sees is compared with the
// plan before any program exists. An engine that omits a part of the sandbox gets no
// program.
func TestWeakerContainersAreRefused(t *testing.T) {
	dir := readable(t, map[string]string{"f": "", "secret": "s"})
	for name, test := range map[string]struct {
		change func(seen *wire.Ready)
		says   string
	}{
		"another user":             {func(seen *wire.Ready) { seen.UID = 0 }, "user: "},
		"another group":            {func(seen *wire.Ready) { seen.GID = 0 }, "user: "},
		"a capability":             {func(seen *wire.Ready) { seen.CapEffective = 1 << 21 }, "capabilities: "},
		"an obtainable capability": {func(seen *wire.Ready) { seen.CapBounding = 1 }, "capabilities: "},
		"new privileges":           {func(seen *wire.Ready) { seen.NoNewPrivs = false }, "no new privileges: "},
		"no filter":                {func(seen *wire.Ready) { seen.Seccomp = 0 }, "system call filter: "},
		"a network":                {func(seen *wire.Ready) { seen.Interfaces = append(seen.Interfaces, "eth0") }, "network interfaces: "},
		"unlimited memory":         {func(seen *wire.Ready) { seen.Cgroup.MemoryBytes = wire.Unlimited }, "memory: "},
		"more memory":              {func(seen *wire.Ready) { seen.Cgroup.MemoryBytes *= 2 }, "memory: "},
		"unlimited swap":           {func(seen *wire.Ready) { seen.Cgroup.SwapBytes = wire.Unlimited }, "swap: "},
		"some swap":                {func(seen *wire.Ready) { seen.Cgroup.SwapBytes = 1 }, "swap: "},
		"all processors":           {func(seen *wire.Ready) { seen.Cgroup.CPUs = -1 }, "processors: "},
		"more processors":          {func(seen *wire.Ready) { seen.Cgroup.CPUs *= 2 }, "processors: "},
		"unlimited processes":      {func(seen *wire.Ready) { seen.Cgroup.PIDs = wire.Unlimited }, "processes: "},
		"more processes":           {func(seen *wire.Ready) { seen.Cgroup.PIDs++ }, "processes: "},
		"a writable root":          {writable("/"), "root file system: it can be written to"},
		"no input":                 {without(InputDir), InputDir + ": nothing is mounted there"},
		"a writable input":         {writable(InputDir), InputDir + ": it can be written to"},
		"a writable mount":         {writable("/repo"), "/repo: it can be written to"},
		"no bounded /tmp":          {without(TmpDir), TmpDir + ": no tmpfs is mounted there"},
		"a missing mask":           {without("/repo/secret"), "/repo/secret: it is not hidden"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(func(*enginetest.Program) int { panic("it ran") })
			fake.Ready = func(_ Class, _ engine.Meta, seen *wire.Ready) { test.change(seen) }
			r := newFakeRunner(t, fake)
			req := command("true")
			req.Mounts, req.Masks = []Mount{{Source: dir, Target: "/repo"}}, []string{"/repo/secret"}
			hooks := Hooks{Started: func() { t.Error("the program was started") }}
			res, err := r.Run(t.Context(), req, hooks)
			require.ErrorIs(t, err, ErrUnenforceable)
			require.ErrorContains(t, err, "the container is not what was planned: "+test.says)
			require.Nil(t, res)
			require.Empty(t, leftBehind(t, r, fake))
		})
	}
}

// TestContainersThatAreNotWeaker: stricter limits are accepted, and so are values that a
// runtime with its own kernel does not show.
func TestContainersThatAreNotWeaker(t *testing.T) {
	for name, test := range map[string]struct {
		runtime string
		change  func(seen *wire.Ready)
	}{
		"as planned":        {"", func(*wire.Ready) {}},
		"less memory":       {"", func(seen *wire.Ready) { seen.Cgroup.MemoryBytes /= 2 }},
		"no visible limits": {"", func(seen *wire.Ready) { seen.Cgroup = wire.Cgroup{} }},
		"idle interfaces":   {"", func(seen *wire.Ready) { seen.Interfaces = append(seen.Interfaces, "tunl0", "sit0") }},
		"gVisor": {"runsc", func(seen *wire.Ready) {
			seen.Cgroup, seen.Seccomp, seen.NoNewPrivs, seen.BootID = wire.Cgroup{}, 0, false, "another"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(nil)
			fake.Facts.Host.Runtimes = []string{"runc", "runsc"}
			fake.Ready = func(_ Class, _ engine.Meta, seen *wire.Ready) { test.change(seen) }
			r := newFakeRunner(t, fake)
			req := command("true")
			req.Runtime = test.runtime
			res, err := r.Run(t.Context(), req)
			require.NoError(t, err)
			require.Zero(t, res.ExitCode)
			require.Empty(t, fake.Left())
		})
	}
}

// TestEnforcedIsWhatWasSeen: a result reports what was applied, not what was requested.
func TestEnforcedIsWhatWasSeen(t *testing.T) {
	fake := enginetest.NewFake(nil)
	fake.Ready = func(_ Class, _ engine.Meta, seen *wire.Ready) {
		seen.Cgroup.MemoryBytes, seen.Cgroup.PIDs = 100<<20, 8+wire.InitTasks(8)
	}
	r := newFakeRunner(t, fake)
	req := command("true")
	req.Limits.Memory, req.Limits.PIDs, req.NoFork = 200*policy.MiB, 10, true
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.EqualValues(t, 100<<20, res.Enforced.MemoryBytes)
	require.EqualValues(t, 8, res.Enforced.PIDs, "without those of init")
	require.True(t, res.Enforced.ReadOnlyRoot)
	require.True(t, res.Enforced.NoNewPrivileges)
	require.Contains(t, res.Enforced.Seccomp, ", no processes sha256:")
	require.Equal(t, fake.Created[0].Class.User, res.Enforced.User)
	for _, m := range res.Enforced.Mounts {
		require.Equal(t, m.Target == InputDir, m.ReadOnly, m.Target)
	}
}
