package sandbox

import (
	"fmt"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// checkPrepared compares what the container's init sees with the plan. A difference ends
// the run before any program exists: a weaker sandbox is never used silently.
func (a *attempt) checkPrepared() error {
	if found := differences(a.spec.Class, a.container.Ready()); len(found) > 0 {
		return fmt.Errorf("%w: the container is not what was planned: %s", ErrUnenforceable, strings.Join(found, "; "))
	}
	return nil
}

// differences lists the points at which a container, as its init sees it, is weaker than
// its class. A runtime with its own kernel shows no cgroup limits; values that are not
// shown are not compared.
func differences(class spec.Class, seen wire.Ready) []string {
	var found []string
	differ := func(what string, planned, is any) {
		found = append(found, fmt.Sprintf("%s: %v was planned, %v is there", what, planned, is))
	}
	if user := fmt.Sprintf("%d:%d", seen.UID, seen.GID); user != class.User {
		differ("user", class.User, user)
	}
	if len(class.CapDrop) > 0 && seen.CapEffective|seen.CapPermitted|seen.CapBounding != 0 {
		differ("capabilities", "none", fmt.Sprintf("%#x", seen.CapEffective|seen.CapPermitted|seen.CapBounding))
	}
	// gVisor does not report the next two as Linux does.
	ownKernel := spec.OwnKernel(class.Runtime)
	if class.NoNewPrivileges && !seen.NoNewPrivs && !ownKernel {
		differ("no new privileges", "on", "off")
	}
	if seen.Seccomp != 2 && !ownKernel {
		differ("system call filter", "on", "off")
	}
	if class.Network == "none" && slices.ContainsFunc(seen.Interfaces, func(name string) bool { return !idle(name) }) {
		differ("network interfaces", "the loopback only", strings.Join(seen.Interfaces, ", "))
	}
	if is := seen.Cgroup; is.Version != 0 && !ownKernel {
		atMost := func(what string, planned, is int64) {
			if is != wire.Unknown && planned > 0 && (is < 0 || is > planned) {
				differ(what, planned, is)
			}
		}
		atMost("memory", class.Cgroup.MemoryBytes, is.MemoryBytes)
		if is.SwapBytes < 0 || is.SwapBytes > class.Cgroup.SwapBytes {
			differ("swap", class.Cgroup.SwapBytes, is.SwapBytes)
		}
		// A quota is rounded to whole microseconds.
		if planned := float64(class.Cgroup.NanoCPUs) / 1e9; planned > 0 && (is.CPUs < 0 || is.CPUs > planned+0.001) {
			differ("processors", planned, is.CPUs)
		}
		atMost("processes", class.Cgroup.PIDs+wire.InitTasks(class.Cgroup.PIDs), is.PIDs)
	}
	return append(found, mountDifferences(class, seen)...)
}

// idle reports whether an interface exists in every network namespace and leads nowhere.
func idle(name string) bool {
	return name == "lo" || slices.Contains([]string{"tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6gre0"}, name)
}

// mountDifferences compares the root and the mounts.
func mountDifferences(class spec.Class, seen wire.Ready) []string {
	var found []string
	if root, ok := seen.MountAt("/"); class.ReadOnlyRoot && ok && !root.ReadOnly {
		found = append(found, "root file system: it can be written to")
	}
	for _, bind := range class.Binds {
		switch m, ok := seen.MountAt(bind.Target); {
		case !ok:
			found = append(found, bind.Target+": nothing is mounted there")
		case bind.ReadOnly && !m.ReadOnly:
			found = append(found, bind.Target+": it can be written to")
		}
	}
	for _, t := range class.Tmpfs {
		if m, ok := seen.MountAt(t.Target); !ok || m.FSType != "tmpfs" {
			found = append(found, t.Target+": no tmpfs is mounted there")
		}
	}
	for _, mask := range class.Masks {
		if m, ok := seen.MountAt(mask.Target); !ok || !m.ReadOnly {
			found = append(found, mask.Target+": it is not hidden")
		}
	}
	return found
}

// enforced reports what was applied, from the view of the container's init where
// possible.
func (a *attempt) enforced() result.Enforced {
	class, job, info := a.spec.Class, a.spec.Job, a.info
	e := result.Enforced{
		Engine: info.Name + " " + info.Version, APIVersion: info.APIVersion,
		Runtime: class.Runtime, CgroupVersion: class.Cgroup.Version, User: class.User, Network: class.Network,
		Transfer:       class.Transfer,
		TimeoutSeconds: job.TimeoutSeconds, GraceSeconds: job.GraceSeconds,
		MemoryBytes: class.Cgroup.MemoryBytes, SwapBytes: class.Cgroup.SwapBytes,
		CPUs: float64(class.Cgroup.NanoCPUs) / 1e9, PIDs: class.Cgroup.PIDs, ShmBytes: class.Cgroup.ShmBytes,
		DiskBytes: job.DiskBytes, OutputLimitBytes: job.OutputLimitBytes, StreamFileBytes: job.StreamFileBytes,
		ReadOnlyRoot: class.ReadOnlyRoot, NoNewPrivileges: class.NoNewPrivileges, CapDrop: class.CapDrop,
		Seccomp: class.Seccomp.Name + " sha256:" + class.Seccomp.SHA256,
	}
	if job.NoFork {
		e.Seccomp = strings.Replace(e.Seccomp, " sha256:", ", no processes sha256:", 1)
	}
	for _, u := range class.Ulimits {
		e.Ulimits = append(e.Ulimits, fmt.Sprintf("%s=%d:%d", u.Name, u.Soft, u.Hard))
	}
	for _, t := range class.Tmpfs {
		e.Mounts = append(e.Mounts, result.Mount{Target: t.Target, Type: "tmpfs"})
		switch t.Target {
		case spec.TmpDir:
			e.TmpBytes = t.SizeBytes
		case spec.WorkDir:
			e.ScratchBytes = t.SizeBytes
		}
	}
	for _, m := range class.Masks {
		e.Mounts = append(e.Mounts, result.Mount{Target: m.Target, Type: "mask", ReadOnly: true})
	}
	for _, b := range class.Binds {
		e.Mounts = append(e.Mounts, result.Mount{Target: b.Target, Type: "bind", ReadOnly: b.ReadOnly})
	}
	e.GPUs, e.GPUDriver, e.GPUsShared = class.GPUs.Names(), class.GPUs.Driver, class.GPUs.Share
	if a.container != nil {
		asSeen(&e, a.container.Ready())
	}
	return e
}

// asSeen replaces planned values by those that the container's init saw, where it can see
// them.
func asSeen(e *result.Enforced, seen wire.Ready) {
	if seen.Build == "" {
		return // the start of a reopened container is unknown
	}
	e.User = fmt.Sprintf("%d:%d", seen.UID, seen.GID)
	e.NoNewPrivileges = seen.NoNewPrivs
	if limit := seen.Cgroup.MemoryBytes; limit > 0 {
		e.MemoryBytes = limit
	}
	if own := wire.InitTasks(e.PIDs); seen.Cgroup.PIDs > own {
		e.PIDs = seen.Cgroup.PIDs - own
	}
	if root, ok := seen.MountAt("/"); ok {
		e.ReadOnlyRoot = root.ReadOnly
	}
	for i, m := range e.Mounts {
		if is, ok := seen.MountAt(m.Target); ok && m.Type != "tmpfs" {
			e.Mounts[i].ReadOnly = is.ReadOnly
		}
	}
}
