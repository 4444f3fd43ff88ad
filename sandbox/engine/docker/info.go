package docker

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/api/types/versions"

	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/policy"
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
		return engine.Info{}, e.questionError(ctx, err)
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

// engineInfo translates Docker's system info. The ID of an engine outlives its data: two engines with
// the same configuration directory have one ID, and containers of their own.
func engineInfo(said system.Info, api string, local bool) engine.Info {
	return engine.Info{
		Name: "Docker", Version: said.ServerVersion, APIVersion: api, ID: said.ID + "@" + said.DockerRootDir,
		OS: said.OperatingSystem, Kernel: said.KernelVersion, Architecture: said.Architecture,
		LSM:           lsm(said),
		StorageDriver: said.Driver, RootDir: said.DockerRootDir, CgroupDriver: said.CgroupDriver,
		Rootless: hasOption(said, "rootless"), UserNamespace: hasOption(said, "rootless") || hasOption(said, "userns"), Local: local, Seccomp: hasOption(said, "seccomp"),
		MemoryLimit: said.MemoryLimit, SwapLimit: said.SwapLimit, CPUQuota: said.CPUCfsQuota, PIDsLimit: said.PidsLimit,
		Containerd: said.ContainerdCommit.ID, Runc: said.RuncCommit.ID, Warnings: said.Warnings,
		Host: spec.Host{
			CPUs: said.NCPU, MemoryBytes: said.MemTotal, CgroupVersion: map[string]int{"1": 1, "2": 2}[said.CgroupVersion],
			DefaultRuntime: said.DefaultRuntime, Runtimes: slices.Sorted(maps.Keys(said.Runtimes)),
			GPUs: hostGPUs(said, api),
		},
	}
}

// lsm lists the security modules that the engine reports.
func lsm(said system.Info) string {
	var all []string
	for _, name := range []string{"apparmor", "selinux"} {
		if hasOption(said, name) {
			all = append(all, name)
		}
	}
	return strings.Join(all, ",")
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

// FindNetwork implements [engine.Networks]. It also refuses the host's network, under any
// name or ID.
func (e *adapter) FindNetwork(ctx context.Context, name string) error {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	found, err := e.api.NetworkInspect(ctx, name, network.InspectOptions{})
	if err == nil {
		return judgeNetwork(name, found.Driver)
	}
	if !errdefs.IsNotFound(err) {
		return fmt.Errorf("looking for network %q: %w", name, engineError(ctx, err))
	}
	all, err := e.api.NetworkList(ctx, network.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing networks: %w", engineError(ctx, err))
	}
	var names []string
	for _, n := range all {
		if judgeNetwork(n.Name, n.Driver) == nil {
			names = append(names, n.Name)
		}
	}
	return &policy.FieldError{Field: "network", Value: fmt.Sprintf("%q", name), Rule: "the engine does not have it; " + hasNetworks(names)}
}

// judgeNetwork refuses networks that are unsuitable for a sandbox.
func judgeNetwork(name, driver string) error {
	if driver == "host" || driver == "null" {
		return &policy.FieldError{Field: "network", Value: fmt.Sprintf("%q", name),
			Rule: fmt.Sprintf("is the engine's network of the driver %s; a sandbox has its own", driver)}
	}
	return nil
}

// namedNetworks is the maximum number of networks in a message.
const namedNetworks = 10

func hasNetworks(names []string) string {
	if len(names) == 0 {
		return "it has none that a program could use"
	}
	slices.Sort(names)
	if rest := len(names) - namedNetworks; rest > 0 {
		return fmt.Sprintf("it has %s and %d more", strings.Join(names[:namedNetworks], ", "), rest)
	}
	return "it has " + strings.Join(names, ", ")
}
