package doctor

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func TestCheckRunc(t *testing.T) {
	for text, want := range map[string]Verdict{
		"1.1.5+ds1-1+deb12u1": OK, "1.1.5+ds1-1+deb12u2": OK, "1.1.5+ds1-1+b4": Warn, "1.1.5+ds1-1": Warn, "1.1.5": Warn, "1.1.11": Warn, "0.9.99": Warn,
		"1.1.12": OK, "v1.2.5-0-g59923ef": OK, "2.0.0": OK,
		"": Info, "59923ef18c98053ddb1acf23ecba10344056c28e": Info,
	} {
		require.Equal(t, want, checkRunc(text).Verdict, text)
	}
}

func TestCheckAddress(t *testing.T) {
	tests := map[string]struct {
		environ map[string]string
		at      docker.Address
		want    Verdict
		seen    string
	}{
		"default":  {nil, docker.Address{}, OK, "unix:///var/run/docker.sock"},
		"socket":   {map[string]string{"DOCKER_HOST": "unix:///run/x.sock"}, docker.Address{}, OK, "unix:///run/x.sock (from DOCKER_HOST)"},
		"ssh":      {nil, docker.Address{Host: "ssh://me@lab"}, OK, "ssh://me@lab"},
		"loopback": {map[string]string{"DOCKER_HOST": "tcp://127.0.0.1:2375"}, docker.Address{}, Warn, "every user of this machine"},
		"naked":    {map[string]string{"DOCKER_HOST": "tcp://10.0.0.1:2375"}, docker.Address{}, Fail, "without TLS"},
		"permitted": {map[string]string{"DOCKER_HOST": "tcp://10.0.0.1:2375"}, docker.Address{AllowInsecure: true},
			Warn, "anybody on the way controls its machine"},
		"no such context": {map[string]string{"DOCKER_CONTEXT": "nosuch"}, docker.Address{}, Fail, `context "nosuch"`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, variable := range []string{"DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"} {
				t.Setenv(variable, test.environ[variable])
			}
			t.Setenv("DOCKER_CONFIG", t.TempDir())
			got := checkAddress(dockerhost.Find(test.at))
			require.Equal(t, test.want, got.Verdict, got.Seen)
			require.Contains(t, got.Seen, test.seen)
			require.Equal(t, test.want != OK, got.Advice != "" || got.Err != nil)
		})
	}
}

func TestCheckEngine(t *testing.T) {
	good := engine.Info{
		Name: "Docker", Version: "28.0.0", APIVersion: "1.48", Runc: "1.2.5", Local: true, Seccomp: true,
		MemoryLimit: true, SwapLimit: true, CPUQuota: true, PIDsLimit: true, Host: spec.Host{CgroupVersion: 2},
	}
	require.Empty(t, bad(checkEngine(good)))
	tests := map[string]struct {
		change func(*engine.Info)
		want   map[string]Verdict
	}{
		"old":          {func(i *engine.Info) { i.APIVersion = "1.40" }, map[string]Verdict{"engine API": Fail}},
		"no seccomp":   {func(i *engine.Info) { i.Seccomp = false }, map[string]Verdict{"seccomp": Fail}},
		"no memory":    {func(i *engine.Info) { i.MemoryLimit = false }, map[string]Verdict{"cgroup": Fail}},
		"no swap":      {func(i *engine.Info) { i.SwapLimit = false }, map[string]Verdict{"cgroup": Warn}},
		"rootless, v1": {func(i *engine.Info) { i.Rootless, i.Host.CgroupVersion = true, 1 }, map[string]Verdict{"cgroup": Fail}},
		"rootless, v2": {func(i *engine.Info) { i.Rootless = true }, map[string]Verdict{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			info := good
			test.change(&info)
			require.Equal(t, test.want, bad(checkEngine(info)))
		})
	}
}

func TestCheckStorage(t *testing.T) {
	require.Equal(t, OK, checkStorage("overlay2").Verdict)
	require.Empty(t, checkStorage("overlay2").Advice)
	for _, dear := range []string{"fuse-overlayfs", "vfs"} {
		f := checkStorage(dear)
		require.Equal(t, Info, f.Verdict, dear)
		require.Contains(t, f.Seen, "start", dear)
		require.Contains(t, f.Advice, "overlay2", dear)
	}
}

func TestJudgeInside(t *testing.T) {
	const safe = `{"uid": 64646, "capabilities": "0000000000000000", "no_new_privileges": "1", "seccomp": "2",
		"root_read_only": true, "input_read_only": true, "final_writable": true, "interfaces": [], "reachable": false, "forks": 22}`
	require.Empty(t, bad(judgeInside(&result.Result{Stdout: safe})))
	// A probe that found no wall at all fails every check, and so does silence.
	const open = `{"uid": 0, "capabilities": "00000000a80425fb", "no_new_privileges": "0", "seccomp": "0",
		"root_read_only": false, "input_read_only": false, "final_writable": false, "interfaces": ["eth0"], "reachable": true, "forks": 100}`
	require.Len(t, bad(judgeInside(&result.Result{Stdout: open})), len(judgeInside(&result.Result{Stdout: open})))
	require.Equal(t, map[string]Verdict{"inside": Fail}, bad(judgeInside(&result.Result{Stdout: "nonsense"})))
}

func TestExpectStatus(t *testing.T) {
	judge := expectStatus("memory limit", "a program", result.StatusOutOfMemory)
	require.Empty(t, bad(judge(&result.Result{Status: result.StatusOutOfMemory})))
	require.NotEmpty(t, bad(judge(&result.Result{Status: result.StatusExited})))
}

// bad are the findings that are neither fine nor mere information.
func bad(findings []Finding) map[string]Verdict {
	all := map[string]Verdict{}
	for _, f := range findings {
		if f.Verdict == Fail || f.Verdict == Warn {
			all[f.Check] = f.Verdict
		}
	}
	return all
}

func TestCheckDiskLimit(t *testing.T) {
	possible := checkDiskLimit(nil)
	require.Equal(t, Info, possible.Verdict)
	require.Contains(t, possible.Seen, "with disk_bound: hard a file system of that size")
	require.Empty(t, possible.Advice)
	impossible := checkDiskLimit(errors.New("is not possible here: it takes root"))
	require.Equal(t, Info, impossible.Verdict)
	require.Contains(t, impossible.Seen, "disk_bound: hard is not possible here: it takes root")
	require.Contains(t, impossible.Advice, "run as root")
}
