package spec

import (
	"fmt"
	"strconv"
	"strings"
)

// GPURequest is which GPUs a run gets: none, all, a number, or named ones. A plan
// says what was asked for; once GPUs are leased, IDs say which they are.
type GPURequest struct {
	// Driver is how the engine is asked: "nvidia" or "cdi"; empty without GPUs.
	Driver string `json:"driver"`
	All    bool   `json:"all"`
	Count  int    `json:"count"`
	// IDs are indexes or UUIDs in a plan, and the engine's names of devices
	// once they are leased.
	IDs []string `json:"ids"`
	// Share says that other runs may have the same GPUs.
	Share bool `json:"share"`
}

// Any says that at least one GPU was asked for.
func (g GPURequest) Any() bool { return g.All || g.Count > 0 || len(g.IDs) > 0 }

// Visible is how many GPUs the program will see; 0 when that is not known yet.
func (g GPURequest) Visible() int { return max(g.Count, len(g.IDs)) }

// Grant replaces what was asked for by what was leased.
func (g *GPURequest) Grant(names []string) { g.All, g.Count, g.IDs = false, 0, names }

// Names is the request in the form of a result.
func (g GPURequest) Names() []string {
	switch {
	case g.All:
		return []string{"all"}
	case g.Count > 0:
		return []string{fmt.Sprintf("count=%d", g.Count)}
	}
	return g.IDs
}

// String is the request as it is written in a request.
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
