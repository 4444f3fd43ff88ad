package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// cdiHost is a current engine with two of NVIDIA's CDI devices.
var cdiHost = spec.HostGPUs{CDI: true, CDIDevices: []string{"nvidia.com/gpu=0", "nvidia.com/gpu=1"}}

func TestGPUDriver(t *testing.T) {
	both := cdiHost
	both.NVIDIA = true
	silent := spec.HostGPUs{CDI: true}                        // API 1.44 to 1.49
	empty := spec.HostGPUs{CDI: true, CDIDevices: []string{}} // no list of devices was made
	silentBoth := spec.HostGPUs{CDI: true, NVIDIA: true}
	for name, test := range map[string]struct {
		asked string
		host  spec.HostGPUs
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
		"nothing":                              {"auto", spec.HostGPUs{}, "", "gpus", "neither a runtime nvidia nor CDI devices"},
		"no devices":                           {"auto", empty, "", "gpus", "neither a runtime nvidia nor CDI devices"},
		"no runtime":                           {"nvidia", cdiHost, "", "gpu_driver", "no runtime nvidia"},
		"no CDI":                               {"cdi", nvidiaHost, "", "gpu_driver", "API 1.44"},
		"no CDI devices":                       {"cdi", empty, "", "gpu_driver", "found no CDI device"},
		"a word":                               {"amd", both, "", "gpu_driver", "must be auto, nvidia or cdi"},
	} {
		t.Run(name, func(t *testing.T) {
			req := scriptRequest()
			req.GPUs, req.GPUDriver, req.Host.GPUs = "1", test.asked, test.host
			got, err := planOf(req, policy.Policy{})
			if test.field != "" {
				var field *policy.FieldError
				require.ErrorAs(t, err, &field)
				require.Equal(t, test.field, field.Field)
				require.Contains(t, field.Rule, test.rule)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got.Class.GPUs.Driver)
		})
	}
	req := scriptRequest()
	req.GPUDriver = "amd"
	_, err := planOf(req, policy.Policy{})
	require.ErrorContains(t, err, "gpu_driver", "also without GPUs")
	req = scriptRequest()
	req.GPUs, req.GPUWait, req.Host.GPUs = "1", -time.Second, nvidiaHost
	_, err = planOf(req, policy.Policy{})
	require.ErrorContains(t, err, "gpu_wait")
}

// leased is the Spec of a request once these GPUs are leased.
func leased(t *testing.T, text, driver string, names ...string) spec.Spec {
	t.Helper()
	req := scriptRequest()
	req.GPUs, req.GPUDriver, req.Host.GPUs = text, driver, spec.HostGPUs{NVIDIA: true, CDI: true}
	plan, err := planOf(req, policy.Policy{})
	require.NoError(t, err)
	if len(names) > 0 {
		plan.Class.GPUs.Grant(names)
		plan.Class.Env = spec.MergeEnv(plan.Class.Env, spec.SortedEnv(plan.Class.GPUs.Env()))
	}
	return plan
}

// TestGPUsInTheEnvironment: the container sees its own GPUs only, numbered from 0, if it is
// known how many they are.
func TestGPUsInTheEnvironment(t *testing.T) {
	for name, test := range map[string]struct {
		plan    spec.Spec
		visible string
	}{
		"two by the runtime":       {leased(t, "2", "nvidia", "0", "3"), "0,1"},
		"one with CDI":             {leased(t, "device=5", "cdi", "nvidia.com/gpu=5"), "0"},
		"all that are known":       {leased(t, "all", "nvidia", "0", "1", "2"), "0,1,2"},
		"all of an unknown number": {leased(t, "all", "nvidia"), ""},
		"the same with CDI":        {leased(t, "all", "cdi"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			env := test.plan.Class.Env
			if test.visible == "" {
				require.False(t, hasEnv(env, "CUDA_VISIBLE_DEVICES"))
			} else {
				require.Contains(t, env, "CUDA_VISIBLE_DEVICES="+test.visible)
			}
			if test.plan.Class.GPUs.Driver == "cdi" {
				require.Contains(t, env, "NVIDIA_VISIBLE_DEVICES=void", "the runtime adds nothing to CDI's devices")
			} else {
				require.False(t, hasEnv(env, "NVIDIA_VISIBLE_DEVICES"), "the runtime sets it")
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

func TestNoGPUsAreHiddenFromTheRuntime(t *testing.T) {
	plan, err := planOf(scriptRequest(), policy.Policy{})
	require.NoError(t, err)
	require.Contains(t, plan.Class.Env, "NVIDIA_VISIBLE_DEVICES=void")
	require.False(t, hasEnv(plan.Class.Env, "CUDA_VISIBLE_DEVICES"))
	req := scriptRequest()
	req.Env = map[string]string{"CUDA_VISIBLE_DEVICES": "7"}
	_, err = planOf(req, policy.Policy{})
	var field *policy.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "env", field.Field)
}

// A refusal quotes what was written, not what was made of it.
func TestGPUsAsWritten(t *testing.T) {
	for _, text := range []string{"all", "9", "device=0", "0,2", "device=GPU-8f6a-1", "device=MIG-1", "device=0:1"} {
		gpus, err := spec.ParseGPUs(text)
		require.NoError(t, err)
		require.Equal(t, text, gpus.String())
	}
	for _, text := range []string{"all,0", "0,all", "device=all", "abc,def", "GPU-", "0,", "-1,2", "65", "abc"} {
		_, err := spec.ParseGPUs(text)
		require.Error(t, err, text)
	}
}

// TestGPUsOfACluster: an engine that chooses the GPUs is asked for a number of them, and for nothing else.
func TestGPUsOfACluster(t *testing.T) {
	limits := spec.HostGPUs{Driver: spec.DriverLimits, Kind: "example.com/gpu"}
	ask := func(gpus string, host spec.HostGPUs, change func(*spec.Request)) (spec.Spec, error) {
		req := scriptRequest()
		req.GPUs, req.Host.GPUs = gpus, host
		change(&req.Request)
		return planOf(req, policy.Policy{})
	}
	same := func(*spec.Request) {}
	plan, err := ask("2", limits, same)
	require.NoError(t, err)
	require.Equal(t, spec.GPURequest{Driver: "limits", Kind: "example.com/gpu", Count: 2}, plan.Class.GPUs)
	require.Equal(t, []string{"example.com/gpu", "example.com/gpu"}, plan.Class.GPUs.Names())
	require.Contains(t, plan.Class.Env, "CUDA_VISIBLE_DEVICES=0,1")
	require.NotContains(t, plan.Class.Env, "NVIDIA_VISIBLE_DEVICES=void", "the pod would override the device plugin")
	plan, err = ask("1", spec.HostGPUs{Driver: spec.DriverClaim, Kind: "gpu.example.com"}, same)
	require.NoError(t, err)
	require.Contains(t, plan.Class.Env, "NVIDIA_VISIBLE_DEVICES=void")
	plan, err = ask("", limits, same)
	require.NoError(t, err)
	require.Contains(t, plan.Class.Env, "NVIDIA_VISIBLE_DEVICES=void", "the image may name all")
	for field, test := range map[string]struct {
		gpus   string
		change func(*spec.Request)
	}{
		"gpus \"all\"":       {"all", same},
		"gpus \"device=0\"":  {"device=0", same},
		"gpu_share":          {"1", func(r *spec.Request) { r.GPUShare = true }},
		"gpu_driver cdi":     {"1", func(r *spec.Request) { r.GPUDriver = "cdi" }},
		"gpu_driver \"amd\"": {"1", func(r *spec.Request) { r.GPUDriver = "amd" }},
	} {
		_, err := ask(test.gpus, limits, test.change)
		require.ErrorContains(t, err, field)
	}
}
