package plan

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// smallHost is the machine of the goldens.
var smallHost = spec.Host{CPUs: 2, MemoryBytes: 24 << 30, CgroupVersion: 1, NoFile: 20000,
	DefaultRuntime: "runc", Runtimes: []string{"runc", "runsc"}}

// nvidiaHost is an engine with the NVIDIA runtime.
var nvidiaHost = spec.HostGPUs{NVIDIA: true}

// request is a request to a machine.
type request struct {
	spec.Request
	Host spec.Host
}

// planOf plans a request without a look at a disk.
func planOf(req request, pol policy.Policy) (spec.Spec, error) {
	layout, layoutErr := spec.NewLayout(req.Request)
	planned, err := Plan(req.Request, layout, pol, req.Host)
	if layoutErr != nil {
		return spec.Spec{}, errors.Join(layoutErr, err)
	}
	return planned, err
}

func scriptRequest() request {
	return request{spec.Request{
		ID: "golden", Image: "debian", Script: "/home/ada/train.py", Args: []string{"--epochs", "3"},
		Input: "/home/ada/data", User: "1000:1000",
	}, smallHost}
}

func fullRequest() request {
	return request{Request: spec.Request{
		ID: "full", Name: "fold-3", Labels: map[string]string{"team": "blue"},
		Image: "cuda", Command: []string{"sh", "-c", "true"}, Input: "/data", Final: "/results",
		Stdin: true, Env: map[string]string{"SEED": "7", "OMP_NUM_THREADS": "1"}, SoftSignal: "SIGUSR1",
		User: "2000", Network: "bridge", Runtime: "runsc", GPUs: "0,1", Keep: true,
		Ulimits: []spec.Ulimit{{Name: "nproc", Soft: 100, Hard: 200}},
		Limits: policy.Limits{
			Timeout: 90 * time.Second, SoftTimeout: 80 * time.Second, Grace: time.Second, Memory: 8 * policy.GiB, CPUs: 1.5, NoFile: 1024,
			Output: 10 * policy.MiB, Disk: policy.GiB,
		},
	}}
}

func TestPlanGolden(t *testing.T) {
	script, err := planOf(scriptRequest(), policy.Policy{})
	require.NoError(t, err)
	treetest.GoldenJSON(t, "testdata/spec-script.json", script)

	full, err := planOf(fullRequest(), policy.Policy{AllowNetwork: true})
	require.NoError(t, err)
	treetest.GoldenJSON(t, "testdata/spec-full.json", full)
}

func TestPlanIsDeterministicAndLeavesTheRequestAlone(t *testing.T) {
	req := fullRequest()
	first, err := planOf(req, policy.Policy{AllowNetwork: true})
	require.NoError(t, err)
	first.Job.Labels["team"] = "red"
	first.Job.Command[0] = "bash"
	second, err := planOf(req, policy.Policy{AllowNetwork: true})
	require.NoError(t, err)
	require.Equal(t, "blue", second.Job.Labels["team"])
	require.Equal(t, "sh", second.Job.Command[0])
}

// TestRootOfANamespace: where root of a container is the caller, it is the default user, and only
// there.
func TestRootOfANamespace(t *testing.T) {
	for name, test := range map[string]struct {
		user, rootIs string
		want, onHost string
	}{
		"nothing known":     {want: spec.LeasedUser, onHost: spec.LeasedUser},
		"the caller":        {rootIs: "1000:1000", want: "0:0", onHost: "1000:1000"},
		"another was asked": {user: "5:5", rootIs: "1000:1000", want: "5:5", onHost: "5:5"},
	} {
		req := scriptRequest()
		req.User, req.Host.RootIs = test.user, test.rootIs
		got, err := planOf(req, policy.Policy{})
		require.NoError(t, err, name)
		require.Equal(t, test.want, got.Class.User, name)
		require.Equal(t, test.onHost, got.Class.UserOnHost(), name)
	}
	req := scriptRequest()
	req.User, req.Host.RootIs = "0:0", "1000:1000"
	_, err := planOf(req, policy.Policy{})
	require.ErrorContains(t, err, "root inside the container is refused", "it was asked for")
}

// TestClassHash: everything that a container can do without when it is created is the
// job's, and nothing else.
func TestClassHash(t *testing.T) {
	hash := func(change func(r *request), changeClass func(c *spec.Class)) string {
		req := observeRequest()
		req.Final, req.Mounts, req.Egress = "/results", []spec.Mount{{Source: "/data/a", Target: "/host/a"}}, egressRequest().Egress
		change(&req)
		got, err := planOf(req, openPolicy)
		require.NoError(t, err)
		got.Class.Image.ID = "sha256:01"
		changeClass(&got.Class)
		return engine.ClassHash(got.Class)
	}
	same := func(*spec.Class) {}
	want := hash(func(*request) {}, same)
	for name, change := range map[string]func(r *request){
		"identity":    func(r *request) { r.ID, r.Name, r.Labels = "other", "name", map[string]string{"a": "b"} },
		"arguments":   func(r *request) { r.Args = []string{"--epochs", "4"} },
		"environment": func(r *request) { r.Env = map[string]string{"A": "1"} },
		"clock":       func(r *request) { r.FakeClock = &spec.FakeClock{Library: "/l.so", At: time.Unix(1, 0)} },
		"host paths": func(r *request) {
			r.Script, r.Input, r.Final = "/elsewhere/train.py", "/elsewhere/data", "/elsewhere/results"
			r.Mounts[0].Source, r.Trees[0].Source = "/elsewhere/a", "/elsewhere/repo"
		},
		"excluded": func(r *request) { r.Trees[0].Exclude = []string{"node_modules"} },
		"stdin":    func(r *request) { r.Stdin = true },
		"limits": func(r *request) {
			r.Limits = policy.Limits{Timeout: time.Minute, SoftTimeout: time.Second, Grace: time.Second, Disk: policy.MiB, Output: policy.MiB}
		},
		"captured": func(r *request) {
			r.Limits = policy.Limits{StreamFile: policy.MiB, CaptureStdout: policy.KiB, OutputFiles: 3}
		},
		"soft signal":  func(r *request) { r.SoftSignal = "SIGINT" },
		"no processes": func(r *request) { r.NoFork = true },
		"hosts":        func(r *request) { r.Egress = &policy.Egress{Level: policy.Open} },
		"kept":         func(r *request) { r.Keep = true },
		"required":     func(r *request) { r.Observe.Required = true },
	} {
		require.Equal(t, want, hash(change, same), name)
	}
	for name, change := range map[string]func(c *spec.Class){
		"name of the image": func(c *spec.Class) { c.Image.Reference, c.Image.Locked = "other", true },
		"shared GPUs":       func(c *spec.Class) { c.GPUs.Share = true },
	} {
		require.Equal(t, want, hash(func(*request) {}, change), name)
	}
	for name, change := range map[string]func(r *request){
		"memory":             func(r *request) { r.Limits.Memory = policy.GiB },
		"user":               func(r *request) { r.User = "1001:1001" },
		"name of the script": func(r *request) { r.Script = "/home/ada/other.py" },
		"mounted path":       func(r *request) { r.Mounts[0].Target = "/host/b" },
		"hidden path":        func(r *request) { r.Masks = nil },
		"working directory":  func(r *request) { r.WorkDir = spec.RepoDir },
		"copied files":       func(r *request) { r.Transfer, r.Egress = spec.TransferCopy, nil },
	} {
		require.NotEqual(t, want, hash(change, same), name)
	}
	require.NotEqual(t, want, hash(func(*request) {}, func(c *spec.Class) { c.Image.ID = "sha256:02" }))
}

// TestPlanScriptNames: a file that can run may have any name that is text.
func TestPlanScriptNames(t *testing.T) {
	for _, name := range []string{"a,b.py", "a:b.py", "a b=c.py", "é.py", "-x.py", "模型.py", strings.Repeat("x", 252) + ".py"} {
		req := scriptRequest()
		req.Script = "/x/" + name
		planned, err := planOf(req, policy.Policy{})
		require.NoError(t, err, name)
		require.Equal(t, "/work/"+name, planned.Job.Command[1])
	}
}

func TestPlanRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		change func(r *request)
		field  string
	}{
		"nothing to run":          {func(r *request) { r.Script = "" }, "command"},
		"script and command":      {func(r *request) { r.Command = []string{"true"} }, "command"},
		"empty command word":      {func(r *request) { r.Script, r.Command = "", []string{""} }, "command"},
		"NUL in an argument":      {func(r *request) { r.Args = []string{"a\x00b"} }, "args"},
		"endless arguments":       {func(r *request) { r.Args = []string{strings.Repeat("a", 200<<10)} }, "args"},
		"script named like final": {func(r *request) { r.Script = "/x/final" }, "script"},
		"script with a newline":   {func(r *request) { r.Script = "/x/a\nb.py" }, "script"},
		"bad id":                  {func(r *request) { r.ID = "../x" }, "id"},
		"unknown soft signal":     {func(r *request) { r.SoftSignal = "SIGKILL" }, "soft_signal"},
		"late soft timeout":       {func(r *request) { r.Limits.SoftTimeout = 2 * time.Hour }, "soft-timeout"},
		"bad name":                {func(r *request) { r.Name = "a b" }, "name"},
		"reserved label":          {func(r *request) { r.Labels = map[string]string{spec.LabelOwner: "me"} }, "label"},
		"network not allowed":     {func(r *request) { r.Network = "bridge" }, "network"},
		"host network":            {func(r *request) { r.Network = "host" }, "network"},
		"another's network":       {func(r *request) { r.Network = "container:x" }, "network"},
		"root":                    {func(r *request) { r.User = "0:0" }, "user"},
		"root's group":            {func(r *request) { r.User = "1000:0" }, "user"},
		"user by name":            {func(r *request) { r.User = "ada" }, "user"},
		"negative user":           {func(r *request) { r.User = "-1" }, "user"},
		"GPUs, but none here":     {func(r *request) { r.GPUs = "1" }, "gpus"},
		"no GPUs":                 {func(r *request) { r.GPUs, r.Host.GPUs = "0", nvidiaHost }, "gpus"},
		"fewer GPUs than none":    {func(r *request) { r.GPUs, r.Host.GPUs = "-1", nvidiaHost }, "gpus"},
		"a GPU twice":             {func(r *request) { r.GPUs, r.Host.GPUs = "2,2", nvidiaHost }, "gpus"},
		"a word for a GPU":        {func(r *request) { r.GPUs, r.Host.GPUs = "x", nvidiaHost }, "gpus"},
		"GPU by nonsense":         {func(r *request) { r.GPUs = "0,;" }, "gpus"},
		"more CPUs than there":    {func(r *request) { r.Limits.CPUs = 3 }, "cpus"},
		"more memory than there":  {func(r *request) { r.Limits.Memory = 48 * policy.GiB }, "memory"},
		"negative memory":         {func(r *request) { r.Limits.Memory = -1 }, "memory"},
		"unknown runtime":         {func(r *request) { r.Runtime = "kata" }, "runtime"},
		"too many files":          {func(r *request) { r.Limits.NoFile = 30000 }, "nofile"},
		"ulimit nofile":           {func(r *request) { r.Ulimits = []spec.Ulimit{{Name: "nofile", Soft: 30000, Hard: 30000}} }, "ulimit"},
		"unknown ulimit":          {func(r *request) { r.Ulimits = []spec.Ulimit{{Name: "nose", Soft: 1, Hard: 1}} }, "ulimit"},
		"soft above hard":         {func(r *request) { r.Ulimits = []spec.Ulimit{{Name: "nproc", Soft: 2, Hard: 1}} }, "ulimit"},
		"variable of the GPUs":    {func(r *request) { r.Env = map[string]string{"NVIDIA_VISIBLE_DEVICES": "all"} }, "env"},
		"variable of the clock": {func(r *request) {
			r.FakeClock, r.Env = &spec.FakeClock{Library: "/l.so", At: time.Unix(1, 0)}, map[string]string{"LD_PRELOAD": "x"}
		}, "env"},
		"final in input":  {func(r *request) { r.Final = r.Input + "/out" }, "final"},
		"input in final":  {func(r *request) { r.Final = "/home/ada" }, "final"},
		"script in final": {func(r *request) { r.Input, r.Final = "", "/home/ada" }, "final"},
	} {
		t.Run(name, func(t *testing.T) {
			req := scriptRequest()
			test.change(&req)
			got, err := planOf(req, policy.Policy{})
			var field *policy.FieldError
			require.ErrorAs(t, err, &field)
			require.Equal(t, test.field, field.Field)
			require.Zero(t, got)
			require.NotContains(t, err.Error(), "\x00")
		})
	}
}

func TestPlanReportsEveryProblem(t *testing.T) {
	req := scriptRequest()
	req.User, req.Network, req.Limits.Memory = "root", "host", -5
	_, err := planOf(req, policy.Policy{})
	for _, field := range []string{"user", "network", "memory"} {
		require.Contains(t, err.Error(), field)
	}
}

func TestDefaultsShrinkToTheHost(t *testing.T) {
	req := scriptRequest()
	req.Host.CPUs = 1
	got, err := planOf(req, policy.Policy{})
	require.NoError(t, err)
	require.EqualValues(t, 1e9, got.Class.Cgroup.NanoCPUs)
	require.Contains(t, got.Class.Env, "OMP_NUM_THREADS=1")

	req.Runtime = "runsc"
	got, err = planOf(req, policy.Policy{})
	require.NoError(t, err)
	require.EqualValues(t, 4096, got.Class.Cgroup.PIDs, "gVisor's own threads count")
}

func TestCeilingOfOpenFiles(t *testing.T) {
	pol := policy.Policy{Max: policy.Limits{NoFile: 1000}}
	got, err := planOf(scriptRequest(), pol)
	require.NoError(t, err)
	require.Contains(t, got.Class.Ulimits, spec.Ulimit{Name: "nofile", Soft: 1000, Hard: 1000}, "a default is lowered")
	req := scriptRequest()
	req.Ulimits = []spec.Ulimit{{Name: "nofile", Soft: 2000, Hard: 2000}}
	_, err = planOf(req, pol)
	require.ErrorContains(t, err, "above the policy's maximum of 1000")
	req.Ulimits = []spec.Ulimit{{Name: "nofile", Soft: -1, Hard: -1}}
	_, err = planOf(req, pol)
	require.Error(t, err, "no limit is above any")
}

func TestUnknownHostSwitchesChecksOff(t *testing.T) {
	req := scriptRequest()
	req.Host = spec.Host{}
	req.GPUs, req.Limits.CPUs = "all", 64
	got, err := planOf(req, policy.Policy{})
	require.NoError(t, err)
	require.True(t, got.Class.GPUs.All)
	require.Equal(t, []spec.Ulimit{{Name: "core"}}, got.Class.Ulimits, "an unknown file limit is inherited")
}
