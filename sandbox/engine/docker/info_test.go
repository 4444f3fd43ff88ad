package docker

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/system"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// goodInfo describes an engine with everything that a run needs.
func goodInfo() system.Info {
	return system.Info{
		ID: "the-id", ServerVersion: "28.5.2", OperatingSystem: "Debian", KernelVersion: "6.1", Architecture: "x86_64",
		Driver: "overlay2", DockerRootDir: "/var/lib/docker", CgroupDriver: "systemd", CgroupVersion: "2",
		MemoryLimit: true, SwapLimit: true, CPUCfsQuota: true, PidsLimit: true, NCPU: 8, MemTotal: 16 << 30,
		DefaultRuntime: "runc",
		Runtimes:       map[string]system.RuntimeWithStatus{"runsc": {}, "runc": {}, "io.containerd.runc.v2": {}},
		SecurityOptions: []string{
			"name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns",
		},
		ContainerdCommit: system.Commit{ID: "c1"}, RuncCommit: system.Commit{ID: "r1"},
		Warnings: []string{"WARNING: something"},
	}
}

func TestEngineInfo(t *testing.T) {
	require.Equal(t, engine.Info{
		Name: "Docker", Version: "28.5.2", APIVersion: OldestAPI, ID: "the-id@/var/lib/docker", OS: "Debian", Kernel: "6.1", Architecture: "x86_64",
		LSM: "apparmor", StorageDriver: "overlay2", RootDir: "/var/lib/docker", CgroupDriver: "systemd", Local: true, Seccomp: true,
		MemoryLimit: true, SwapLimit: true, CPUQuota: true, PIDsLimit: true, Containerd: "c1", Runc: "r1",
		Warnings: []string{"WARNING: something"},
		Host: spec.Host{CPUs: 8, MemoryBytes: 16 << 30, CgroupVersion: 2, DefaultRuntime: "runc",
			Runtimes: []string{"io.containerd.runc.v2", "runc", "runsc"}},
	}, engineInfo(goodInfo(), OldestAPI, true))
}

func TestEngineInfoOfOtherEngines(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*system.Info)
		check  func(t *testing.T, got engine.Info)
	}{
		"cgroup v1": {func(i *system.Info) { i.CgroupVersion = "1" },
			func(t *testing.T, got engine.Info) { require.Equal(t, 1, got.Host.CgroupVersion) }},
		"no cgroups": {func(i *system.Info) { i.CgroupVersion = "" },
			func(t *testing.T, got engine.Info) { require.Zero(t, got.Host.CgroupVersion) }},
		"a future cgroup version": {func(i *system.Info) { i.CgroupVersion = "3" },
			func(t *testing.T, got engine.Info) { require.Zero(t, got.Host.CgroupVersion) }},
		"no seccomp": {func(i *system.Info) { i.SecurityOptions = []string{"name=apparmor"} },
			func(t *testing.T, got engine.Info) { require.False(t, got.Seccomp) }},
		"seccomp in another name": {func(i *system.Info) { i.SecurityOptions = []string{"name=noseccomp", "x,name=seccomp"} },
			func(t *testing.T, got engine.Info) { require.False(t, got.Seccomp) }},
		"rootless": {func(i *system.Info) { i.SecurityOptions = append(i.SecurityOptions, "name=rootless") },
			func(t *testing.T, got engine.Info) { require.True(t, got.Rootless && got.Seccomp) }},
	} {
		t.Run(name, func(t *testing.T) {
			info := goodInfo()
			c.change(&info)
			c.check(t, engineInfo(info, OldestAPI, true))
		})
	}
	require.False(t, engineInfo(goodInfo(), OldestAPI, false).Local)
	require.Empty(t, engineInfo(system.Info{}, OldestAPI, true).Host.Runtimes, "an engine that reports nothing")
}

func TestMissing(t *testing.T) {
	require.Empty(t, missing(engineInfo(goodInfo(), OldestAPI, true), true))
	for what, change := range map[string]func(*system.Info){
		"memory limits":                         func(i *system.Info) { i.MemoryLimit = false },
		"limits of swap, which its machine has": func(i *system.Info) { i.SwapLimit = false },
		"CPU quotas":                            func(i *system.Info) { i.CPUCfsQuota = false },
		"process limits":                        func(i *system.Info) { i.PidsLimit = false },
		"seccomp profiles":                      func(i *system.Info) { i.SecurityOptions = nil },
		"any limit (rootless with cgroup v1)": func(i *system.Info) {
			i.CgroupVersion, i.SecurityOptions = "1", append(i.SecurityOptions, "name=rootless")
		},
	} {
		info := goodInfo()
		change(&info)
		require.Equal(t, []string{what}, missing(engineInfo(info, OldestAPI, true), true))
	}
	require.Equal(t, []string{"API 1.41 or newer (it is spoken to in 1.40)"}, missing(engineInfo(goodInfo(), "1.40", true), true))
	require.Equal(t, []string{"memory limits", "CPU quotas", "process limits", "seccomp profiles"}, missing(engine.Info{}, false))

	info := goodInfo()
	info.SecurityOptions = append(info.SecurityOptions, "name=rootless")
	require.Empty(t, missing(engineInfo(info, OldestAPI, true), true), "rootless with cgroup v2 can enforce limits")
	info = goodInfo()
	info.CgroupVersion, info.SwapLimit = "1", false
	require.Empty(t, missing(engineInfo(info, OldestAPI, true), false), "a machine without swap needs no swap limit")
}

// TestNotDocker distinguishes a server that is not an engine from an engine that refuses
// a call.
func TestNotDocker(t *testing.T) {
	answers := map[string]struct {
		code    int
		text    string
		refused bool
	}{
		"not found":    {http.StatusNotFound, "404 page not found", true},
		"a page":       {http.StatusOK, "<html>", true},
		"other JSON":   {http.StatusOK, "[]", true},
		"engine fails": {http.StatusInternalServerError, "{\"message\": \"no\"}", false},
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(answer.code)
				_, _ = w.Write([]byte(answer.text))
			}))
			defer server.Close()
			e, err := Connect(Address{Host: "tcp://" + server.Listener.Addr().String()})
			require.NoError(t, err)
			defer e.Close()
			if answer.text != "[]" { // no containers
				_, err = e.List(t.Context())
				require.Equal(t, answer.refused, strings.Contains(err.Error(), "something answers there"), "%v", err)
			}
			_, err = e.Info(t.Context())
			var refused *ConnectError
			if !answer.refused {
				require.Error(t, err)
				require.NotErrorAs(t, err, &refused)
				return
			}
			require.ErrorAs(t, err, &refused)
			require.Equal(t, dockerhost.KindNotDocker, refused.Kind)
			require.ErrorContains(t, err, "tcp://"+server.Listener.Addr().String()+": something answers there")
		})
	}
}
