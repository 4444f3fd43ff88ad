package sandbox

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
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
		"no input":                 {without(spec.InputDir), spec.InputDir + ": nothing is mounted there"},
		"a writable input":         {writable(spec.InputDir), spec.InputDir + ": it can be written to"},
		"a writable mount":         {writable("/repo"), "/repo: it can be written to"},
		"no bounded /tmp":          {without(spec.TmpDir), spec.TmpDir + ": no tmpfs is mounted there"},
		"a missing mask":           {without("/repo/secret"), "/repo/secret: it is not hidden"},
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(func(*enginetest.Program) int { panic("it ran") })
			fake.Ready = func(_ spec.Class, _ engine.Meta, seen *wire.Ready) { test.change(seen) }
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
			fake.Ready = func(_ spec.Class, _ engine.Meta, seen *wire.Ready) { test.change(seen) }
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
	fake.Ready = func(_ spec.Class, _ engine.Meta, seen *wire.Ready) {
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
		require.Equal(t, m.Target == spec.InputDir || strings.HasPrefix(m.Target, "/etc/"), m.ReadOnly, m.Target)
	}
}

// TestUnenforcedLimitsAreNotClaimed: a result names the limits that the engine did not enforce, once,
// and no value of them that was not seen.
func TestUnenforcedLimitsAreNotClaimed(t *testing.T) {
	for name, test := range map[string]struct {
		change     func(seen *wire.Ready)
		unenforced []string
		pids, swap int64
	}{
		"no limits": {func(seen *wire.Ready) {
			seen.Cgroup.SwapBytes, seen.Cgroup.PIDs, seen.Interfaces = wire.Unlimited, wire.Unlimited, []string{"lo", "eth0"}
		}, []string{"swap", "pids", "inodes", "seccomp", "interfaces"}, 0, -1},
		"other limits": {func(seen *wire.Ready) {
			seen.Cgroup.SwapBytes, seen.Cgroup.PIDs = 5, 100000+wire.InitTasks(1024)
		}, []string{"swap", "pids", "inodes", "seccomp"}, 100000, 5},
		"those of the plan": {func(*wire.Ready) {}, []string{"inodes", "seccomp"}, 1024, 0},
		"nothing to see":    {func(seen *wire.Ready) { seen.Cgroup = wire.Cgroup{} }, []string{"swap", "pids", "inodes", "seccomp"}, 0, -1},
	} {
		t.Run(name, func(t *testing.T) {
			fake := enginetest.NewFake(nil)
			fake.Facts.Host.Unenforced = []string{spec.LimitSwap, spec.LimitPIDs, spec.LimitInodes, spec.LimitSeccomp, spec.LimitInterfaces}
			fake.Facts.Host.Filter = "RuntimeDefault"
			fake.Ready = func(_ spec.Class, _ engine.Meta, seen *wire.Ready) { test.change(seen) }
			res, err := newFakeRunner(t, fake).Run(t.Context(), command("true"))
			require.NoError(t, err)
			require.Equal(t, test.unenforced, res.Enforced.Unenforced)
			require.Equal(t, []int64{test.pids, test.swap}, []int64{res.Enforced.PIDs, res.Enforced.SwapBytes})
			require.Equal(t, "RuntimeDefault", res.Enforced.Seccomp)
			require.Equal(t, "RuntimeDefault", res.Enforced.Isolation.Seccomp)
			var warned []string
			for _, warning := range res.Warnings {
				if strings.Contains(warning, "not enforced") {
					warned = append(warned, warning)
				}
			}
			require.Equal(t, []string{"the engine does not enforce all limits; not enforced: " +
				strings.Join(slices.DeleteFunc(slices.Clone(test.unenforced), func(limit string) bool { return limit == "interfaces" }), ", ")}, warned)
		})
	}
}
