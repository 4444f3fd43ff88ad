package policy

import (
	"net/netip"
	"time"
)

// Egress is which hosts of the network a program may reach through the proxy of
// its run (CX-04). The container itself has no network at any level. The zero value
// is offline.
type Egress struct {
	// Level is [Offline], [Registry], [API] or [Open]; empty is offline.
	Level NetworkLevel `json:"level,omitzero"`
	// Allow and Deny are host patterns, see [ParseHostPattern]. Deny wins. With
	// Registry they come beside the package registries of the policy.
	Allow []string `json:"allow,omitempty"`
	Deny  []string `json:"deny,omitempty"`
	// Resolve maps names to addresses instead of asking the system's resolver, as
	// --add-host does for docker run. It permits nothing: an address that is not
	// public must be allowed as well.
	Resolve map[string][]netip.Addr `json:"resolve,omitempty"`
	// Limits bound what passes.
	Limits EgressLimits `json:"limits,omitzero"`
}

// Offline reports whether the program reaches nothing.
func (e *Egress) Offline() bool { return e == nil || e.Level == "" || e.Level == Offline }

// EgressLimits bound what a program moves through the proxy. Zero fields are the
// defaults.
type EgressLimits struct {
	// Connections is how many requests and tunnels there may be at once, Requests how
	// many in all.
	Connections int `json:"connections,omitzero"`
	Requests    int `json:"requests,omitzero"`
	// Bytes bounds what passes in both directions together.
	Bytes Size `json:"bytes,omitzero"`
	// ConnectionTime bounds one connection.
	ConnectionTime time.Duration `json:"-"`
}

// NetworkLevel is a level of network access (CX-04).
type NetworkLevel string

// Levels of network access, from closed to open.
const (
	// Offline reaches nothing.
	Offline NetworkLevel = "offline"
	// Registry reaches package registries only.
	Registry NetworkLevel = "registry"
	// API reaches the hosts that are listed.
	API NetworkLevel = "api"
	// Open reaches every public address, logged; it needs an approval.
	Open NetworkLevel = "open"
)

// NetworkLevels are all levels, from closed to open.
func NetworkLevels() []NetworkLevel { return []NetworkLevel{Offline, Registry, API, Open} }
