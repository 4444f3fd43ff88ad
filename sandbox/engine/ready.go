package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// CheckReady compares what a container's init sees with the plan. A difference is an
// [ErrUnenforceable]: a weaker sandbox is never used silently.
func CheckReady(class spec.Class, seen wire.Ready) error {
	if found := differences(class, seen); len(found) > 0 {
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
	if class.Network == "none" && !slices.Contains(class.Unenforced, spec.LimitInterfaces) && HasInterfaces(seen) {
		differ("network interfaces", "the loopback only", strings.Join(seen.Interfaces, ", "))
	}
	if !ownKernel {
		cgroupDifferences(class, seen.Cgroup, differ)
	}
	return append(found, mountDifferences(class, seen)...)
}

// cgroupDifferences compares the limits of the container's cgroup, if it is visible.
func cgroupDifferences(class spec.Class, is wire.Cgroup, differ func(what string, planned, is any)) {
	if is.Version == 0 {
		return
	}
	without := func(limit string) bool { return slices.Contains(class.Unenforced, limit) }
	atMost := func(what string, planned, is int64) {
		if is != wire.Unknown && planned > 0 && (is < 0 || is > planned) {
			differ(what, planned, is)
		}
	}
	atMost("memory", class.Cgroup.MemoryBytes, is.MemoryBytes)
	if !without(spec.LimitSwap) && (is.SwapBytes < 0 || is.SwapBytes > class.Cgroup.SwapBytes) {
		differ("swap", class.Cgroup.SwapBytes, is.SwapBytes)
	}
	// A quota is rounded to whole microseconds.
	if planned := float64(class.Cgroup.NanoCPUs) / 1e9; planned > 0 && (is.CPUs < 0 || is.CPUs > planned+0.001) {
		differ("processors", planned, is.CPUs)
	}
	if !without(spec.LimitPIDs) {
		atMost("processes", class.Cgroup.PIDs+wire.InitTasks(class.Cgroup.PIDs), is.PIDs)
	}
}

// HasInterfaces reports whether a container has a network interface that can lead somewhere.
func HasInterfaces(seen wire.Ready) bool {
	return slices.ContainsFunc(seen.Interfaces, func(name string) bool { return !idle(name) })
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

// ClassHash identifies a class: two plans with the same hash may use the same prepared
// container. The name of a resolved image does not count, nor what the lock says of it,
// nor whether other runs may have the same GPUs: the container does not differ.
func ClassHash(c spec.Class) string {
	if c.Image.ID != "" {
		c.Image = spec.Image{ID: c.Image.ID}
	}
	c.GPUs.Share = false
	text, err := json.Marshal(c)
	if err != nil {
		// A Class holds strings, numbers and booleans only.
		panic(fmt.Sprintf("engine: class cannot be encoded: %v", err))
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
