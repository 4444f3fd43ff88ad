package sandbox

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
)

// smallHost is the machine of the goldens.
var smallHost = Host{CPUs: 2, MemoryBytes: 24 << 30, CgroupVersion: 1, NoFile: 20000,
	DefaultRuntime: "runc", Runtimes: []string{"runc", "runsc"}}

// nvidiaHost is an engine with the NVIDIA runtime.
var nvidiaHost = HostGPUs{NVIDIA: true}

func scriptRequest() Request {
	return Request{
		ID: "golden", Image: "debian", Script: "/home/ada/train.py", Args: []string{"--epochs", "3"},
		Input: "/home/ada/data", User: "1000:1000", Host: smallHost,
	}
}

func fullRequest() Request {
	return Request{
		ID: "full", Name: "fold-3", Labels: map[string]string{"team": "blue"},
		Image: "cuda", Command: []string{"sh", "-c", "true"}, Input: "/data", Final: "/results",
		Stdin: true, Env: map[string]string{"SEED": "7", "OMP_NUM_THREADS": "1"},
		User: "2000", Network: "bridge", Runtime: "runsc", GPUs: "0,1", Keep: true,
		Ulimits: []Ulimit{{Name: "nproc", Soft: 100, Hard: 200}},
		Limits: policy.Limits{
			Timeout: 90 * time.Second, Grace: time.Second, Memory: 8 * policy.GiB, CPUs: 1.5, NoFile: 1024,
			Output: 10 * policy.MiB, Disk: policy.GiB,
		},
	}
}

func TestPlanGolden(t *testing.T) {
	script, err := Plan(scriptRequest(), policy.Policy{})
	require.NoError(t, err)
	requireGolden(t, "spec-script.json", script)

	full, err := Plan(fullRequest(), policy.Policy{AllowNetwork: true})
	require.NoError(t, err)
	requireGolden(t, "spec-full.json", full)
}

func TestPlanIsDeterministicAndLeavesTheRequestAlone(t *testing.T) {
	req := fullRequest()
	first, err := Plan(req, policy.Policy{AllowNetwork: true})
	require.NoError(t, err)
	first.Job.Labels["team"] = "red"
	first.Job.Command[0] = "bash"
	second, err := Plan(req, policy.Policy{AllowNetwork: true})
	require.NoError(t, err)
	require.Equal(t, "blue", second.Job.Labels["team"])
	require.Equal(t, "sh", second.Job.Command[0])
}

func TestClassHashTellsClassesApart(t *testing.T) {
	a, err := Plan(scriptRequest(), policy.Policy{})
	require.NoError(t, err)
	other := scriptRequest()
	other.ID, other.Args, other.Env, other.Limits.Timeout = "other", nil, map[string]string{"A": "1"}, time.Minute
	b, err := Plan(other, policy.Policy{})
	require.NoError(t, err)
	require.Equal(t, a.Class.Hash(), b.Class.Hash(), "only the job differs")
	other.Limits.Memory = policy.GiB
	c, err := Plan(other, policy.Policy{})
	require.NoError(t, err)
	require.NotEqual(t, a.Class.Hash(), c.Class.Hash())
}

func TestPlanRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(r *Request)
		field  string
	}{
		"nothing to run":          {func(r *Request) { r.Script = "" }, "command"},
		"script and command":      {func(r *Request) { r.Command = []string{"true"} }, "command"},
		"empty command word":      {func(r *Request) { r.Script, r.Command = "", []string{""} }, "command"},
		"NUL in an argument":      {func(r *Request) { r.Args = []string{"a\x00b"} }, "args"},
		"endless arguments":       {func(r *Request) { r.Args = []string{strings.Repeat("a", 200<<10)} }, "args"},
		"script named like final": {func(r *Request) { r.Script = "/x/final" }, "script"},
		"script with a newline":   {func(r *Request) { r.Script = "/x/a\nb.py" }, "script"},
		"bad id":                  {func(r *Request) { r.ID = "../x" }, "id"},
		"bad name":                {func(r *Request) { r.Name = "a b" }, "name"},
		"reserved label":          {func(r *Request) { r.Labels = map[string]string{LabelOwner: "me"} }, "label"},
		"network not allowed":     {func(r *Request) { r.Network = "bridge" }, "network"},
		"host network":            {func(r *Request) { r.Network = "host" }, "network"},
		"another's network":       {func(r *Request) { r.Network = "container:x" }, "network"},
		"root":                    {func(r *Request) { r.User = "0:0" }, "user"},
		"root's group":            {func(r *Request) { r.User = "1000:0" }, "user"},
		"user by name":            {func(r *Request) { r.User = "ada" }, "user"},
		"negative user":           {func(r *Request) { r.User = "-1" }, "user"},
		"GPUs, but none here":     {func(r *Request) { r.GPUs = "1" }, "gpus"},
		"no GPUs":                 {func(r *Request) { r.GPUs, r.Host.GPUs = "0", nvidiaHost }, "gpus"},
		"fewer GPUs than none":    {func(r *Request) { r.GPUs, r.Host.GPUs = "-1", nvidiaHost }, "gpus"},
		"a GPU twice":             {func(r *Request) { r.GPUs, r.Host.GPUs = "2,2", nvidiaHost }, "gpus"},
		"a word for a GPU":        {func(r *Request) { r.GPUs, r.Host.GPUs = "x", nvidiaHost }, "gpus"},
		"GPU by nonsense":         {func(r *Request) { r.GPUs = "0,;" }, "gpus"},
		"more CPUs than there":    {func(r *Request) { r.Limits.CPUs = 3 }, "cpus"},
		"more memory than there":  {func(r *Request) { r.Limits.Memory = 48 * policy.GiB }, "memory"},
		"negative memory":         {func(r *Request) { r.Limits.Memory = -1 }, "memory"},
		"unknown runtime":         {func(r *Request) { r.Runtime = "kata" }, "runtime"},
		"too many files":          {func(r *Request) { r.Limits.NoFile = 30000 }, "nofile"},
		"ulimit nofile":           {func(r *Request) { r.Ulimits = []Ulimit{{Name: "nofile", Soft: 30000, Hard: 30000}} }, "ulimit"},
		"unknown ulimit":          {func(r *Request) { r.Ulimits = []Ulimit{{Name: "nose", Soft: 1, Hard: 1}} }, "ulimit"},
		"soft above hard":         {func(r *Request) { r.Ulimits = []Ulimit{{Name: "nproc", Soft: 2, Hard: 1}} }, "ulimit"},
		"loader variable":         {func(r *Request) { r.Env = map[string]string{"LD_PRELOAD": "x"} }, "env"},
		"final in input":          {func(r *Request) { r.Final = r.Input + "/out" }, "final"},
		"input in final":          {func(r *Request) { r.Final = "/home/ada" }, "final"},
		"script in final":         {func(r *Request) { r.Input, r.Final = "", "/home/ada" }, "final"},
	} {
		t.Run(name, func(t *testing.T) {
			req := scriptRequest()
			test.change(&req)
			spec, err := Plan(req, policy.Policy{})
			var field *policy.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, test.field, field.Field)
			require.Zero(t, spec)
			require.NotContains(t, err.Error(), "\x00")
		})
	}
}

func TestPlanReportsEveryProblem(t *testing.T) {
	req := scriptRequest()
	req.User, req.Network, req.Limits.Memory = "root", "host", -5
	_, err := Plan(req, policy.Policy{})
	for _, field := range []string{"user", "network", "memory"} {
		require.Contains(t, err.Error(), field)
	}
}

func TestDefaultsShrinkToTheHost(t *testing.T) {
	req := scriptRequest()
	req.Host.CPUs = 1
	spec, err := Plan(req, policy.Policy{})
	require.NoError(t, err)
	require.EqualValues(t, 1e9, spec.Class.Cgroup.NanoCPUs)
	require.Contains(t, spec.Class.Env, "OMP_NUM_THREADS=1")

	req.Runtime = "runsc"
	spec, err = Plan(req, policy.Policy{})
	require.NoError(t, err)
	require.EqualValues(t, 4096, spec.Class.Cgroup.PIDs, "gVisor's own threads count")
}

func TestCeilingOfOpenFiles(t *testing.T) {
	pol := policy.Policy{Max: policy.Limits{NoFile: 1000}}
	spec, err := Plan(scriptRequest(), pol)
	require.NoError(t, err)
	require.Contains(t, spec.Class.Ulimits, Ulimit{Name: "nofile", Soft: 1000, Hard: 1000}, "a default is lowered")
	req := scriptRequest()
	req.Ulimits = []Ulimit{{Name: "nofile", Soft: 2000, Hard: 2000}}
	_, err = Plan(req, pol)
	require.ErrorContains(t, err, "above the policy's maximum of 1000")
	req.Ulimits = []Ulimit{{Name: "nofile", Soft: -1, Hard: -1}}
	_, err = Plan(req, pol)
	require.Error(t, err, "no limit is above any")
}

func TestUnknownHostSwitchesChecksOff(t *testing.T) {
	req := scriptRequest()
	req.Host = Host{}
	req.GPUs, req.Limits.CPUs = "all", 64
	spec, err := Plan(req, policy.Policy{})
	require.NoError(t, err)
	require.True(t, spec.Class.GPUs.All)
	require.Equal(t, []Ulimit{{Name: "core"}}, spec.Class.Ulimits, "an unknown file limit is inherited")
}

func ExamplePlan() {
	spec, err := Plan(Request{ID: "r1", Command: []string{"python3", "-c", "print(1)"}}, policy.Policy{})
	fmt.Println(spec.Class.Network, spec.Class.ReadOnlyRoot, spec.Class.User, err)

	_, err = Plan(Request{ID: "r2", Command: []string{"true"}, Network: "bridge"}, policy.Policy{})
	var field *policy.FieldError
	fmt.Println(errors.As(err, &field), err)
	// Output:
	// none true 64646:64646 <nil>
	// true network "bridge": the policy allows none
}
