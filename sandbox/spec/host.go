package spec

import (
	"strings"
)

// Host describes the engine's machine as far as a plan needs it. Zero values mean
// "unknown".
type Host struct {
	// CPUs and MemoryBytes are as reported by the engine.
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
	// Unseen says why programs of the engine cannot be observed from here; empty if no
	// reason is known.
	Unseen string
}

// OwnKernel reports whether containers of an OCI runtime have their own kernel: gVisor's
// runsc, also under a longer name. The limits, counters, device numbers and inode numbers
// that this kernel shows are not those of the machine.
func OwnKernel(runtime string) bool { return strings.HasPrefix(runtime, "runsc") }

// HostGPUs says how an engine can provide GPUs. The zero value means "not at all".
type HostGPUs struct {
	// NVIDIA says that the engine has the NVIDIA runtime.
	NVIDIA bool
	// CDI says that the engine can provide CDI devices (API 1.44).
	CDI bool
	// CDIDevices are the NVIDIA devices that the engine has found; nil if it does not
	// report them (before API 1.50).
	CDIDevices []string
}

// Any reports whether the engine can provide a GPU.
func (h HostGPUs) Any() bool {
	return h.NVIDIA || h.CDI && (h.CDIDevices == nil || len(h.CDIDevices) > 0)
}
