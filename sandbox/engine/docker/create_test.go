package docker

import (
	"encoding/json"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// scriptClass is the class of a script, as plans build it.
func scriptClass() spec.Class {
	return spec.Class{
		Image: spec.Image{Reference: "debian", ID: "sha256:0123", Platform: "linux/amd64"},
		User:  "1000:1000", WorkDir: spec.WorkDir, Network: "none", ReadOnlyRoot: true, NoNewPrivileges: true,
		CapDrop: []string{"ALL"}, Seccomp: spec.DefaultSeccomp(), IPC: "private",
		Cgroup:  spec.Cgroup{Version: 1, MemoryBytes: 2 << 30, NanoCPUs: 2e9, PIDs: 1024, ShmBytes: 1 << 30},
		Ulimits: []spec.Ulimit{{Name: "core"}, {Name: "nofile", Soft: 20000, Hard: 20000}},
		Tmpfs: []spec.Tmpfs{{Target: spec.TmpDir, SizeBytes: 512 << 20, Inodes: 125_000},
			{Target: spec.WorkDir, SizeBytes: 512 << 20, Inodes: 125_000}},
		Binds: []spec.Bind{{Role: spec.RoleInput, Target: spec.InputDir, ReadOnly: true}, {Role: spec.RoleFinal, Target: spec.FinalDir},
			{Role: spec.RoleProgram, Target: "/work/train.py", ReadOnly: true}},
		Env: []string{"HOME=/tmp", "OMP_NUM_THREADS=2", "TMPDIR=/tmp"}, Log: spec.BoundedLog(), Transfer: spec.TransferBind,
	}
}

// fullClass adds everything that a script's class lacks.
func fullClass() spec.Class {
	class := scriptClass()
	class.Image.Reference, class.Runtime, class.User, class.Network = "cuda", "runsc", "2000:2000", "bridge"
	class.Cgroup = spec.Cgroup{Version: 2, MemoryBytes: 8 << 30, SwapBytes: 1 << 30, NanoCPUs: 1.5e9, PIDs: 4096, ShmBytes: 4 << 30}
	class.Ulimits = append(class.Ulimits, spec.Ulimit{Name: "nproc", Soft: 100, Hard: 200})
	class.GPUs = spec.GPURequest{Driver: "nvidia", IDs: []string{"0", "1"}}
	class.Binds = []spec.Bind{{Role: spec.RoleInput, Target: spec.InputDir, ReadOnly: true}, {Role: spec.RoleFinal, Target: spec.FinalDir}}
	return class
}

// mountsClass has mounts, copies and masks inside them, and is observed.
func mountsClass() spec.Class {
	class := scriptClass()
	class.Binds = []spec.Bind{
		{Role: spec.RoleMount + "-0", Target: "/repo", ReadOnly: true}, {Role: spec.RoleTree + "-0", Target: "/repo/src"},
		{Role: spec.RoleMount + "-1", Target: "/etc/hosts", ReadOnly: true},
		{Role: spec.RoleWatchRoot, Target: "/root", ReadOnly: true}, {Role: spec.RoleHold, Target: spec.HoldDir, ReadOnly: true},
		{Role: spec.RoleEgress, Target: spec.EgressDir, ReadOnly: true},
	}
	class.Masks = []spec.Mask{{Target: "/repo/secrets", Dir: true}, {Target: "/repo/src/.env"},
		{Target: "/repo/keys", Dir: true, Role: spec.RoleWatch + "-0"}}
	return class
}

// sources returns a path for each role.
func sources(class spec.Class) engine.Sources {
	all := engine.Sources{spec.RoleEmpty: "/h/empty"}
	for _, bind := range class.Binds {
		all[bind.Role] = "/h/" + bind.Role
	}
	for _, mask := range class.Masks {
		if mask.Role != "" {
			all[mask.Role] = "/h/" + mask.Role
		}
	}
	return all
}

// createBody is the body of the create call as the engine receives it.
type createBody struct {
	*container.Config
	HostConfig *container.HostConfig
}

func createBodyOf(t *testing.T, class spec.Class) createBody {
	t.Helper()
	meta := engine.Meta{Name: "evalbox-golden", Labels: map[string]string{spec.LabelManaged: "true"}, Sources: sources(class)}
	if len(class.Masks) > 0 {
		meta.Stat, meta.Witness = []string{"/repo", "/repo/src"}, spec.HoldDir+"/"+spec.WitnessFile
	}
	config, host, err := createRequest(class, meta, initFiles{"/docker/volumes/v/_data"})
	require.NoError(t, err)
	return createBody{config, host}
}

// TestCreateRequestGolden asserts every field of the create call. The seccomp
// profile has its own test and is shortened here.
func TestCreateRequestGolden(t *testing.T) {
	cdi := scriptClass()
	cdi.GPUs = spec.GPURequest{Driver: "cdi", IDs: []string{"nvidia.com/gpu=5"}}
	for name, class := range map[string]spec.Class{"create-script.json": scriptClass(), "create-full.json": fullClass(),
		"create-mounts.json": mountsClass(), "create-cdi.json": cdi} {
		body := createBodyOf(t, class)
		require.Equal(t, "seccomp="+spec.SeccompProfile, body.HostConfig.SecurityOpt[0])
		body.HostConfig.SecurityOpt[0] = "seccomp=(" + spec.DefaultSeccomp().Name + ")"
		treetest.GoldenJSON(t, "testdata/"+name, body)
	}
}

// TestCreateRequestOpensNothing walks the marshaled body: it must not contain anything
// that weakens the sandbox, regardless of where it was set.
func TestCreateRequestOpensNothing(t *testing.T) {
	text, err := json.Marshal(createBodyOf(t, scriptClass()))
	require.NoError(t, err)
	var body map[string]any
	require.NoError(t, json.Unmarshal(text, &body))
	host, ok := body["HostConfig"].(map[string]any)
	require.True(t, ok)
	for _, field := range []string{"Privileged", "PublishAllPorts", "AutoRemove", "Init"} {
		require.Equal(t, false, host[field], field)
	}
	for _, field := range []string{"Binds", "CapAdd", "Devices", "DeviceRequests", "GroupAdd", "VolumesFrom",
		"PortBindings", "Links", "MaskedPaths", "ReadonlyPaths", "DeviceCgroupRules", "Sysctls", "ExtraHosts", "Dns"} {
		require.Empty(t, host[field], field)
	}
	for _, field := range []string{"PidMode", "UTSMode", "UsernsMode", "CgroupParent", "VolumeDriver"} {
		require.Empty(t, host[field], field)
	}
	require.Equal(t, host["Memory"], host["MemorySwap"], "no swap")
	require.Equal(t, "none", host["NetworkMode"])
	require.Equal(t, true, body["NetworkDisabled"])
	require.Equal(t, "private", host["IpcMode"])
	require.Equal(t, "private", host["CgroupnsMode"])
	require.NotContains(t, string(text), "docker.sock")
	require.Equal(t, false, body["Tty"])
	require.Equal(t, "1000:1000", body["User"])
	require.Equal(t, []any{initTarget}, body["Entrypoint"], "nothing of the image runs before init")
}

func TestCreateRequestRefuses(t *testing.T) {
	class := scriptClass()
	for name, test := range map[string]struct {
		change func(c *spec.Class, m *engine.Meta)
		want   string
	}{
		"an image without an ID": {func(c *spec.Class, _ *engine.Meta) { c.Image.ID = "" }, "not resolved to an ID"},
		"a mount without source": {func(_ *spec.Class, m *engine.Meta) { m.Sources = nil }, "no host path for mount /work/input"},
		"a mask without source": {func(c *spec.Class, _ *engine.Meta) { c.Masks = []spec.Mask{{Target: "/x", Role: "watch-9"}} },
			"no host path for mount /x"},
		"an unknown profile":   {func(c *spec.Class, _ *engine.Meta) { c.Seccomp.Name = "mine" }, "is not known"},
		"GPUs without a lease": {func(c *spec.Class, _ *engine.Meta) { c.GPUs = spec.GPURequest{Count: 2} }, "none are leased"},
		"no change":            {func(*spec.Class, *engine.Meta) {}, ""},
	} {
		changed, meta := class, engine.Meta{Sources: sources(class)}
		test.change(&changed, &meta)
		_, _, err := createRequest(changed, meta, initFiles{})
		if test.want == "" {
			require.NoError(t, err, name)
			continue
		}
		require.ErrorContains(t, err, test.want, name)
	}
}

// TestCopyHasTheSameShape: a run whose files are copied uses the same container, except
// for the propagation that the engine requires for its own directory.
func TestCopyHasTheSameShape(t *testing.T) {
	bind := createBodyOf(t, scriptClass())
	class := scriptClass()
	class.Transfer = spec.TransferCopy
	copied := createBodyOf(t, class)
	for i := range class.Binds {
		require.Equal(t, mount.PropagationRSlave, copied.HostConfig.Mounts[i].BindOptions.Propagation)
		copied.HostConfig.Mounts[i].BindOptions.Propagation = mount.PropagationRPrivate
	}
	require.Equal(t, bind, copied)
}
