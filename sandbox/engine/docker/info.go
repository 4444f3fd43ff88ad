package docker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"

	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// OldestAPI is the oldest supported API version: that of Docker 20.10.
const OldestAPI = "1.41"

// Info implements [engine.Engine].
func (e *adapter) Info(ctx context.Context) (engine.Info, error) {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	said, err := e.api.Info(ctx)
	if err != nil {
		return engine.Info{}, fmt.Errorf("asking the engine: %w", e.questionError(ctx, err))
	}
	local := dockerhost.IsLocal(e.api.DaemonHost()) && sameMachine(ctx, e.api.DaemonHost(), said.KernelVersion)
	info := engineInfo(said, e.api.ClientVersion(), local)
	info.Address, info.Exposed = e.api.DaemonHost(), e.exposed
	// On a machine without swap, a missing swap limit does not matter.
	info.Missing = missing(info, !local || hasSwap())
	if local {
		info.Host.NoFile = engineNoFile(ctx, e.api.DaemonHost())
	}
	e.inits.setRoot(info.RootDir)
	return info, nil
}

// Identity implements [engine.Identified]. It identifies the daemon's process, if the
// socket shows which one that is.
func (e *adapter) Identity(ctx context.Context) string {
	if !dockerhost.IsLocal(e.api.DaemonHost()) {
		return ""
	}
	return engineIdentity(ctx, e.api.DaemonHost())
}

// engineInfo translates Docker's system info.
func engineInfo(said system.Info, api string, local bool) engine.Info {
	info := engine.Info{
		Name: "Docker", Version: said.ServerVersion, APIVersion: api, ID: said.ID,
		OS: said.OperatingSystem, Kernel: said.KernelVersion, Architecture: said.Architecture,
		StorageDriver: said.Driver, RootDir: said.DockerRootDir, CgroupDriver: said.CgroupDriver,
		Rootless: hasOption(said, "rootless"), Local: local, Seccomp: hasOption(said, "seccomp"),
		MemoryLimit: said.MemoryLimit, SwapLimit: said.SwapLimit, CPUQuota: said.CPUCfsQuota, PIDsLimit: said.PidsLimit,
		Containerd: said.ContainerdCommit.ID, Runc: said.RuncCommit.ID, Warnings: said.Warnings,
		Host: spec.Host{
			CPUs: said.NCPU, MemoryBytes: said.MemTotal,
			DefaultRuntime: said.DefaultRuntime, Runtimes: slices.Sorted(maps.Keys(said.Runtimes)),
			GPUs: hostGPUs(said, api),
		},
	}
	switch said.CgroupVersion {
	case "1":
		info.Host.CgroupVersion = 1
	case "2":
		info.Host.CgroupVersion = 2
	}
	return info
}

// hasOption reports whether the engine lists a security option.
func hasOption(said system.Info, name string) bool {
	return slices.ContainsFunc(said.SecurityOptions, func(option string) bool { return strings.HasPrefix(option, "name="+name) })
}

// missing lists features that every run needs and the engine lacks. An engine that
// silently ignores a limit would make every result untrue.
func missing(info engine.Info, swap bool) []string {
	var all []string
	for _, need := range []struct {
		ok   bool
		what string
	}{
		{versions.GreaterThanOrEqualTo(cmp.Or(info.APIVersion, OldestAPI), OldestAPI),
			fmt.Sprintf("API %s or newer (it is spoken to in %s)", OldestAPI, info.APIVersion)},
		{info.MemoryLimit, "memory limits"},
		{info.SwapLimit || !swap, "limits of swap, which its machine has"},
		{info.CPUQuota, "CPU quotas"},
		{info.PIDsLimit, "process limits"},
		{info.Seccomp, "seccomp profiles"},
		{!info.Rootless || info.Host.CgroupVersion != 1, "any limit (rootless with cgroup v1)"},
	} {
		if !need.ok {
			all = append(all, need.what)
		}
	}
	return all
}
