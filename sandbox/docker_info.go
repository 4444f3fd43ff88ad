package sandbox

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"
)

// Info implements [Engine].
func (e *dockerEngine) Info(ctx context.Context) (EngineInfo, error) {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	info, err := e.api.Info(ctx)
	if err != nil {
		return EngineInfo{}, fmt.Errorf("asking the engine: %w", e.questionError(ctx, err))
	}
	local := isLocal(e.api.DaemonHost()) && sameMachine(ctx, e.api.DaemonHost(), info.KernelVersion)
	facts := engineInfo(info, local)
	facts.APIVersion = e.api.ClientVersion()
	facts.Address = orDefault(e.at.Host, e.api.DaemonHost())
	if !e.at.loopback {
		facts.Exposed = e.at.Warning()
	}
	facts.Host.GPUs = hostGPUs(info, facts.APIVersion)
	facts.Swap = !local || hasSwap()
	if local {
		facts.Host.NoFile = engineNoFile(ctx, e.api.DaemonHost())
	}
	return facts, nil
}

// Identity names the daemon's process, where the socket tells it.
func (e *dockerEngine) Identity(ctx context.Context) string {
	if !isLocal(e.api.DaemonHost()) {
		return ""
	}
	return engineIdentity(ctx, e.api.DaemonHost())
}

// isLocal reports whether a daemon address is a socket of this machine.
func isLocal(host string) bool {
	return strings.HasPrefix(host, "unix://") || strings.HasPrefix(host, "npipe://")
}

// engineInfo translates Docker's description of itself.
func engineInfo(info system.Info, local bool) EngineInfo {
	facts := EngineInfo{
		Name: "Docker", Version: info.ServerVersion, ID: info.ID,
		OS: info.OperatingSystem, Kernel: info.KernelVersion, Architecture: info.Architecture,
		StorageDriver: info.Driver, RootDir: info.DockerRootDir, CgroupDriver: info.CgroupDriver,
		Local: local, MemoryLimit: info.MemoryLimit, SwapLimit: info.SwapLimit,
		CPUQuota: info.CPUCfsQuota, PIDsLimit: info.PidsLimit,
		Containerd: info.ContainerdCommit.ID, Runc: info.RuncCommit.ID, Warnings: info.Warnings,
		Host: Host{
			CPUs: info.NCPU, MemoryBytes: info.MemTotal,
			DefaultRuntime: info.DefaultRuntime, Runtimes: slices.Sorted(maps.Keys(info.Runtimes)),
		},
	}
	switch info.CgroupVersion {
	case "1":
		facts.Host.CgroupVersion = 1
	case "2":
		facts.Host.CgroupVersion = 2
	}
	for _, option := range info.SecurityOptions {
		facts.Seccomp = facts.Seccomp || strings.HasPrefix(option, "name=seccomp")
		facts.Rootless = facts.Rootless || strings.HasPrefix(option, "name=rootless")
	}
	return facts
}

// oldestAPI is that of Docker 20.10.
const oldestAPI = "1.41"

// unenforceable lists what every run needs and the engine cannot do. An engine
// that ignores a limit silently would make every result untrue.
func unenforceable(info EngineInfo) error {
	if versions.LessThan(orDefault(info.APIVersion, oldestAPI), oldestAPI) {
		return fmt.Errorf("%w: engine %s %s is spoken to in API %s; at least %s is needed", ErrUnenforceable,
			info.Name, info.Version, info.APIVersion, oldestAPI)
	}
	var missing []string
	for _, need := range []struct {
		ok   bool
		what string
	}{
		{info.MemoryLimit, "memory limits"},
		{info.SwapLimit || !info.Swap, "limits of swap, which its machine has"},
		{info.CPUQuota, "CPU quotas"},
		{info.PIDsLimit, "process limits"},
		{info.Seccomp, "seccomp profiles"},
		{!info.Rootless || info.Host.CgroupVersion != 1, "any limit (rootless with cgroup v1)"},
	} {
		if !need.ok {
			missing = append(missing, need.what)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: engine %s %s cannot apply %s", ErrUnenforceable, info.Name, info.Version, strings.Join(missing, ", "))
	}
	return nil
}
