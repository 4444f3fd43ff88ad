package spec

import "strings"

// Host is what a plan needs to know of the machine that the engine runs on.
// Zero values mean "unknown".
type Host struct {
	// CPUs and MemoryBytes are what the engine reports.
	CPUs        int
	MemoryBytes int64
	// CgroupVersion is 1 or 2.
	CgroupVersion int
	// NoFile is the highest number of open files that the engine can grant.
	NoFile int64
	// DefaultRuntime and Runtimes are the engine's OCI runtimes.
	DefaultRuntime string
	Runtimes       []string
	// GPUs says how the engine can hand out GPUs.
	GPUs HostGPUs
	// Unseen is why programs of the engine cannot be observed from here; empty if
	// nothing is known against it.
	Unseen string
}

// OwnKernel says that containers of an OCI runtime have a kernel of their own: gVisor's
// runsc, also under a longer name. Limits, counters and numbers of files that its kernel
// shows are not those of the machine.
func OwnKernel(runtime string) bool { return strings.HasPrefix(runtime, "runsc") }

// HostGPUs is how an engine can hand out GPUs. The zero value is "not at all".
type HostGPUs struct {
	// NVIDIA says that the engine has the NVIDIA runtime.
	NVIDIA bool
	// CDI says that the engine can hand out CDI devices (API 1.44).
	CDI bool
	// CDIDevices are NVIDIA's that the engine has found; nil when it does not
	// tell (before API 1.50).
	CDIDevices []string
}

// Any says that there is a way to get a GPU.
func (h HostGPUs) Any() bool {
	return h.NVIDIA || h.CDI && (h.CDIDevices == nil || len(h.CDIDevices) > 0)
}
