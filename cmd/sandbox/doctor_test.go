package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
)

func TestCheckRunc(t *testing.T) {
	for text, want := range map[string]verdict{
		"1.1.5+ds1-1+deb12u1": verdictWarn, "1.1.11": verdictWarn, "0.9.99": verdictWarn,
		"1.1.12": verdictOK, "v1.2.5-0-g59923ef": verdictOK, "2.0.0": verdictOK,
		"": verdictInfo, "59923ef18c98053ddb1acf23ecba10344056c28e": verdictInfo,
	} {
		require.Equal(t, want, checkRunc(text).Verdict, text)
	}
}

func TestCheckAddress(t *testing.T) {
	tests := map[string]struct {
		environ map[string]string
		at      docker.Address
		want    verdict
		seen    string
	}{
		"default":  {nil, docker.Address{}, verdictOK, "unix:///var/run/docker.sock"},
		"socket":   {map[string]string{"DOCKER_HOST": "unix:///run/x.sock"}, docker.Address{}, verdictOK, "unix:///run/x.sock (from DOCKER_HOST)"},
		"ssh":      {nil, docker.Address{Host: "ssh://me@lab"}, verdictOK, "ssh://me@lab"},
		"loopback": {map[string]string{"DOCKER_HOST": "tcp://127.0.0.1:2375"}, docker.Address{}, verdictWarn, "every user of this machine"},
		"naked":    {map[string]string{"DOCKER_HOST": "tcp://10.0.0.1:2375"}, docker.Address{}, verdictFail, "without TLS"},
		"permitted": {map[string]string{"DOCKER_HOST": "tcp://10.0.0.1:2375"}, docker.Address{AllowInsecure: true},
			verdictWarn, "whoever is on the way controls its machine"},
		"no such context": {map[string]string{"DOCKER_CONTEXT": "nosuch"}, docker.Address{}, verdictFail, `context "nosuch"`},
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
			require.Equal(t, test.want != verdictOK, got.Mend != "")
		})
	}
}

func TestCheckEngine(t *testing.T) {
	good := engine.Info{
		Name: "Docker", Version: "28.0.0", APIVersion: "1.48", Runc: "1.2.5", Local: true, Seccomp: true,
		MemoryLimit: true, SwapLimit: true, CPUQuota: true, PIDsLimit: true, Host: sandbox.Host{CgroupVersion: 2},
	}
	require.Empty(t, bad(checkEngine(good)))
	tests := map[string]struct {
		change func(*engine.Info)
		want   map[string]verdict
	}{
		"old":          {func(i *engine.Info) { i.APIVersion = "1.40" }, map[string]verdict{"engine API": verdictFail}},
		"no seccomp":   {func(i *engine.Info) { i.Seccomp = false }, map[string]verdict{"seccomp": verdictFail}},
		"no memory":    {func(i *engine.Info) { i.MemoryLimit = false }, map[string]verdict{"cgroup": verdictFail}},
		"no swap":      {func(i *engine.Info) { i.SwapLimit = false }, map[string]verdict{"cgroup": verdictWarn}},
		"rootless, v1": {func(i *engine.Info) { i.Rootless, i.Host.CgroupVersion = true, 1 }, map[string]verdict{"cgroup": verdictFail}},
		"rootless, v2": {func(i *engine.Info) { i.Rootless = true }, map[string]verdict{}},
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
	require.Equal(t, verdictOK, checkStorage("overlay2").Verdict)
	require.Empty(t, checkStorage("overlay2").Mend)
	for _, dear := range []string{"fuse-overlayfs", "vfs"} {
		f := checkStorage(dear)
		require.Equal(t, verdictInfo, f.Verdict, dear)
		require.Contains(t, f.Seen, "start", dear)
		require.Contains(t, f.Mend, "overlay2", dear)
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
	require.Equal(t, map[string]verdict{"inside": verdictFail}, bad(judgeInside(&result.Result{Stdout: "nonsense"})))
}

func TestExpectStatus(t *testing.T) {
	judge := expectStatus("memory limit", "a program", result.StatusOutOfMemory)
	require.Empty(t, bad(judge(&result.Result{Status: result.StatusOutOfMemory})))
	require.NotEmpty(t, bad(judge(&result.Result{Status: result.StatusExited})))
}

// bad are the findings that are neither fine nor mere information.
func bad(findings []finding) map[string]verdict {
	all := map[string]verdict{}
	for _, f := range findings {
		if f.Verdict == verdictFail || f.Verdict == verdictWarn {
			all[f.Check] = f.Verdict
		}
	}
	return all
}
