package spec

import (
	"fmt"
	"strconv"
	"strings"
)

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
