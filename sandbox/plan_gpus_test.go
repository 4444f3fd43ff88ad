package sandbox

import (
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/system"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/gpu"
)

// cdiHost is a current engine with two of NVIDIA's CDI devices.
var cdiHost = HostGPUs{CDI: true, CDIDevices: []string{"nvidia.com/gpu=0", "nvidia.com/gpu=1"}}

func TestGPUDriver(t *testing.T) {
	both := cdiHost
	both.NVIDIA = true
	silent := HostGPUs{CDI: true}                        // API 1.44 to 1.49
	empty := HostGPUs{CDI: true, CDIDevices: []string{}} // no list of devices was made
	silentBoth := HostGPUs{CDI: true, NVIDIA: true}
	for name, test := range map[string]struct {
		asked string
		host  HostGPUs
		want  string
		// field and rule are those of the refusal.
		field, rule string
	}{
		"CDI devices come first":               {"auto", both, "cdi", "", ""},
		"by default, too":                      {"", cdiHost, "cdi", "", ""},
		"the runtime where CDI is not listed":  {"auto", silentBoth, "nvidia", "", ""},
		"CDI on trust, where there is no more": {"auto", silent, "cdi", "", ""},
		"the runtime":                          {"auto", nvidiaHost, "nvidia", "", ""},
		"the runtime by choice":                {"nvidia", both, "nvidia", "", ""},
		"CDI by choice":                        {"cdi", both, "cdi", "", ""},
		"CDI by choice, not listed":            {"cdi", silentBoth, "cdi", "", ""},
		"nothing":                              {"auto", HostGPUs{}, "", "gpus", "neither a runtime nvidia nor CDI devices"},
		"no devices":                           {"auto", empty, "", "gpus", "neither a runtime nvidia nor CDI devices"},
		"no runtime":                           {"nvidia", cdiHost, "", "gpu_driver", "no runtime nvidia"},
		"no CDI":                               {"cdi", nvidiaHost, "", "gpu_driver", "API 1.44"},
		"no CDI devices":                       {"cdi", empty, "", "gpu_driver", "found no CDI device"},
		"a word":                               {"amd", both, "", "gpu_driver", "must be auto, nvidia or cdi"},
	} {
		t.Run(name, func(t *testing.T) {
			req := scriptRequest()
			req.GPUs, req.GPUDriver, req.Host.GPUs = "1", test.asked, test.host
			spec, err := Plan(req, policy.Policy{})
			if test.field != "" {
				var field *policy.FieldError
				require.ErrorAs(t, err, &field)
				require.Equal(t, test.field, field.Field)
				require.Contains(t, field.Rule, test.rule)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, spec.Class.GPUs.Driver)
		})
	}
	req := scriptRequest()
	req.GPUDriver = "amd"
	_, err := Plan(req, policy.Policy{})
	require.ErrorContains(t, err, "gpu_driver", "also without GPUs")
	req = scriptRequest()
	req.GPUs, req.GPUWait, req.Host.GPUs = "1", -time.Second, nvidiaHost
	_, err = Plan(req, policy.Policy{})
	require.ErrorContains(t, err, "gpu_wait")
}

func TestHostGPUs(t *testing.T) {
	info := goodInfo()
	info.CDISpecDirs = []string{"/etc/cdi", "/var/run/cdi"}
	info.DiscoveredDevices = []system.DeviceInfo{
		{Source: "cdi", ID: "nvidia.com/gpu=1"}, {Source: "cdi", ID: "nvidia.com/gpu=0"}, {Source: "cdi", ID: "nvidia.com/gpu=all"},
		{Source: "cdi", ID: "amd.com/gpu=0"}, {Source: "other", ID: "nvidia.com/gpu=7"},
	}
	listed := []string{"nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=all"}
	for api, want := range map[string]HostGPUs{
		"": {}, "1.41": {}, "1.43": {}, "1.44": {CDI: true}, "1.49": {CDI: true},
		"1.50": {CDI: true, CDIDevices: listed}, "1.100": {CDI: true, CDIDevices: listed},
	} {
		require.Equal(t, want, hostGPUs(info, api), api)
	}
	info.CDISpecDirs = nil
	require.Equal(t, HostGPUs{}, hostGPUs(info, "1.50"), "switched off")
	info.CDISpecDirs, info.DiscoveredDevices = []string{"/etc/cdi"}, nil
	require.Equal(t, HostGPUs{CDI: true, CDIDevices: []string{}}, hostGPUs(info, "1.50"))
	info.Runtimes["nvidia"] = system.RuntimeWithStatus{}
	require.True(t, hostGPUs(info, "1.41").NVIDIA)
	require.True(t, hostGPUs(info, "1.41").Any())
}

// leased is the Spec of a request once these GPUs are leased.
func leased(t *testing.T, text, driver string, names ...string) Spec {
	t.Helper()
	req := scriptRequest()
	req.GPUs, req.GPUDriver, req.Host.GPUs = text, driver, HostGPUs{NVIDIA: true, CDI: true}
	spec, err := Plan(req, policy.Policy{})
	require.NoError(t, err)
	spec.Class.Image.ID = "sha256:0123"
	if len(names) > 0 {
		spec.Class.GPUs.grant(names)
		spec.Class.Env = mergeEnv(spec.Class.Env, sortedEnv(gpuEnv(spec.Class.GPUs)))
	}
	return spec
}

func TestGPURequests(t *testing.T) {
	capabilities := [][]string{{"gpu"}}
	for name, test := range map[string]struct {
		spec  Spec
		want  container.DeviceRequest
		count int
	}{
		"two by the runtime": {leased(t, "2", "nvidia", "0", "3"),
			container.DeviceRequest{Driver: "nvidia", DeviceIDs: []string{"0", "3"}, Capabilities: capabilities}, 2},
		"one with CDI": {leased(t, "device=5", "cdi", "nvidia.com/gpu=5"),
			container.DeviceRequest{Driver: "cdi", DeviceIDs: []string{"nvidia.com/gpu=5"}}, 1},
		"all that are known": {leased(t, "all", "nvidia", "0", "1", "2"),
			container.DeviceRequest{Driver: "nvidia", DeviceIDs: []string{"0", "1", "2"}, Capabilities: capabilities}, 3},
		"all of an unknown number": {leased(t, "all", "nvidia"),
			container.DeviceRequest{Driver: "nvidia", Count: -1, Capabilities: capabilities}, 0},
		"the same with CDI": {leased(t, "all", "cdi"),
			container.DeviceRequest{Driver: "cdi", DeviceIDs: []string{"nvidia.com/gpu=all"}}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			config, host, err := createRequest(test.spec, HostPaths{RoleInput: "/i", RoleFinal: "/f", RoleProgram: "/p"}, nil)
			require.NoError(t, err)
			require.Equal(t, []container.DeviceRequest{test.want}, host.DeviceRequests)
			visible := map[int]string{1: "0", 2: "0,1", 3: "0,1,2"}[test.count]
			if test.count == 0 {
				require.False(t, hasEnv(config.Env, "CUDA_VISIBLE_DEVICES"))
			} else {
				require.Contains(t, config.Env, "CUDA_VISIBLE_DEVICES="+visible, "numbered from 0: the container sees its own only")
			}
			if test.want.Driver == "cdi" {
				require.Contains(t, config.Env, "NVIDIA_VISIBLE_DEVICES=void", "the runtime adds nothing to CDI's devices")
			} else {
				require.False(t, hasEnv(config.Env, "NVIDIA_VISIBLE_DEVICES"), "the runtime sets it")
			}
		})
	}
}

func hasEnv(env []string, name string) bool {
	for _, pair := range env {
		if len(pair) > len(name) && pair[:len(name)+1] == name+"=" {
			return true
		}
	}
	return false
}

func TestGPUsThatAreNotLeasedAreNotAskedFor(t *testing.T) {
	_, _, err := createRequest(leased(t, "2", "nvidia"), HostPaths{RoleInput: "/i", RoleFinal: "/f", RoleProgram: "/p"}, nil)
	require.ErrorContains(t, err, "none are leased")
}

func TestNoGPUsAreHiddenFromTheRuntime(t *testing.T) {
	body := createBodyOf(t, scriptRequest())
	require.Empty(t, body.HostConfig.DeviceRequests)
	require.Contains(t, body.Env, "NVIDIA_VISIBLE_DEVICES=void")
	require.False(t, hasEnv(body.Env, "CUDA_VISIBLE_DEVICES"))
	req := scriptRequest()
	req.Env = map[string]string{"CUDA_VISIBLE_DEVICES": "7"}
	_, err := Plan(req, policy.Policy{})
	var field *policy.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "env", field.Field)
}

// TestCreateRequestGoldenGPUs is every field of the create call, for both ways to
// ask for GPUs.
func TestCreateRequestGoldenGPUs(t *testing.T) {
	for name, spec := range map[string]Spec{
		"create-nvidia.json": leased(t, "2", "nvidia", "1", "2"),
		"create-cdi.json":    leased(t, "2", "cdi", "nvidia.com/gpu=1", "nvidia.com/gpu=2"),
	} {
		config, host, err := createRequest(spec, HostPaths{RoleInput: "/h/input", RoleFinal: "/h/final", RoleProgram: "/h/train.py"},
			map[string]string{LabelManaged: "true"})
		require.NoError(t, err)
		host.SecurityOpt[0] = "seccomp=(" + seccompName + ")"
		requireGolden(t, name, createBody{config, host})
	}
}

// A refusal quotes what was written, not what was made of it.
func TestGPUsAsWritten(t *testing.T) {
	for _, text := range []string{"all", "9", "device=0", "0,2", "device=GPU-8f6a-1", "device=MIG-1", "device=0:1"} {
		gpus, err := ParseGPUs(text)
		require.NoError(t, err)
		require.Equal(t, text, gpus.String())
	}
	for _, text := range []string{"all,0", "0,all", "device=all", "abc,def", "GPU-", "0,", "-1,2", "65", "abc"} {
		_, err := ParseGPUs(text)
		require.Error(t, err, text)
	}
	asked := GPURequest{Count: 9}
	err := gpuError(asked, asked.want().Check(gpu.Inventory{Known: true, Devices: []gpu.Device{{ID: "0"}}}))
	require.EqualError(t, err, `gpus "9": 9 asked for, 1 there`)
}
