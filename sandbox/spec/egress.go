package spec

import "net/netip"

// Egress is what a run may reach through its proxy: a [policy.Egress] with all its
// values, in its wire form.
type Egress struct {
	Level string   `json:"level"`
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
	// Resolve are names that are not looked up, with their addresses.
	Resolve               map[string][]netip.Addr `json:"resolve"`
	Connections           int                     `json:"connections"`
	Requests              int                     `json:"requests"`
	Bytes                 int64                   `json:"bytes"`
	ConnectionTimeSeconds float64                 `json:"connection_time_seconds"`
}

const (
	// EgressDir is where a container that has a proxy finds its socket.
	EgressDir = "/run/evalbox"
	// EgressSocket is its name.
	EgressSocket = "proxy.sock"
	// EgressPort is where a program finds its proxy, on its own loopback address.
	EgressPort = 3128
	// RoleEgress is the mount of [EgressDir].
	RoleEgress = "egress"
)
