package spec

import "net/netip"

// Egress says what a run may reach through its proxy. It is the wire form of a
// [policy.Egress] with all of its values.
type Egress struct {
	Level string   `json:"level"`
	Allow []string `json:"allow"`
	Deny  []string `json:"deny"`
	// Resolve maps names that are not looked up to their addresses.
	Resolve               map[string][]netip.Addr `json:"resolve"`
	Connections           int                     `json:"connections"`
	Requests              int                     `json:"requests"`
	Bytes                 int64                   `json:"bytes"`
	ConnectionTimeSeconds float64                 `json:"connection_time_seconds"`
}

const (
	// EgressDir is the directory of the proxy's socket inside the container.
	EgressDir = "/run/evalbox"
	// EgressSocket is the file name of that socket.
	EgressSocket = "proxy.sock"
	// EgressPort is the port of the proxy on the program's own loopback address.
	EgressPort = 3128
	// RoleEgress is the role of the mount at [EgressDir].
	RoleEgress = "egress"
)
