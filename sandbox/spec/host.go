package spec

import (
	"fmt"
	"strconv"
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

// GPURequest says which GPUs a run gets: none, all, a number, or named ones. In a plan it
// holds the request; once GPUs are leased, IDs holds the leased ones.
type GPURequest struct {
	// Driver selects the mechanism of the engine: "nvidia" or "cdi"; empty without GPUs.
	Driver string `json:"driver"`
	All    bool   `json:"all"`
	Count  int    `json:"count"`
	// IDs are indexes or UUIDs in a plan, and the engine's device names once the GPUs are
	// leased.
	IDs []string `json:"ids"`
	// Share says that other runs may use the same GPUs.
	Share bool `json:"share"`
}

// Any reports whether at least one GPU was requested.
func (g GPURequest) Any() bool { return g.All || g.Count > 0 || len(g.IDs) > 0 }

// Visible is the number of GPUs that the program will see; 0 while it is unknown.
func (g GPURequest) Visible() int { return max(g.Count, len(g.IDs)) }

// Grant replaces the request by the leased devices.
func (g *GPURequest) Grant(names []string) { g.All, g.Count, g.IDs = false, 0, names }

// Names returns the GPUs in the form that a result uses.
func (g GPURequest) Names() []string {
	switch {
	case g.All:
		return []string{"all"}
	case g.Count > 0:
		return []string{fmt.Sprintf("count=%d", g.Count)}
	}
	return g.IDs
}

// String returns the GPUs in the form that a request uses.
func (g GPURequest) String() string {
	switch {
	case g.All:
		return "all"
	case g.Count > 0:
		return strconv.Itoa(g.Count)
	case len(g.IDs) == 1:
		return "device=" + g.IDs[0]
	}
	return strings.Join(g.IDs, ",")
}
