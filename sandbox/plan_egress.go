package sandbox

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/policy"
)

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
	// egressPort is where a program finds its proxy, on its own loopback address.
	egressPort = 3128
	// RoleEgress is the mount of [EgressDir].
	RoleEgress = "egress"

	launchFile = "launch"
	socketFile = "proxy.sock"
)

// egressEnv is where programs look for a proxy. What is on the container's own
// loopback address needs none.
func egressEnv() map[string]string {
	env := map[string]string{}
	for name, value := range map[string]string{
		"HTTP_PROXY": egressURL, "HTTPS_PROXY": egressURL, "ALL_PROXY": egressURL, "NO_PROXY": "localhost,127.0.0.1,::1",
	} {
		env[name], env[strings.ToLower(name)] = value, value
	}
	return env
}

var egressURL = "http://127.0.0.1:" + strconv.Itoa(egressPort)

// planEgress decides what a run may reach; nil is nothing.
func planEgress(req Request, pol policy.Policy) (*Egress, error) {
	asked, err := pol.ApplyEgress(req.Egress)
	errs := []error{err}
	if !req.Egress.Offline() {
		refuse := func(field, value, rule string) {
			errs = append(errs, &policy.FieldError{Field: field, Value: value, Rule: rule})
		}
		level := fmt.Sprintf("%q", req.Egress.Level)
		if req.NoFork {
			refuse("network level", level, "needs processes beside the program, which may have none (no fork)")
		}
		if req.Network != "" && req.Network != "none" {
			refuse("network level", level, "goes through a proxy; it cannot be had together with the network "+strconv.Quote(req.Network))
		}
		if req.Transfer == TransferCopy {
			refuse("network level", level, "needs an engine on this machine: one whose files are copied cannot reach the proxy")
		}
		ours := egressEnv()
		for _, name := range slices.Sorted(maps.Keys(req.Env)) {
			if _, taken := ours[name]; taken {
				refuse("env", strconv.Quote(name), "is set by the network level")
			}
		}
	}
	if err := errors.Join(errs...); err != nil || asked == nil {
		return nil, err
	}
	return &Egress{
		Level: string(asked.Level), Allow: asked.Allow, Deny: asked.Deny, Resolve: asked.Resolve,
		Connections: fitConnections(asked.Limits.Connections, req), Requests: asked.Limits.Requests, Bytes: int64(asked.Limits.Bytes),
		ConnectionTimeSeconds: asked.Limits.ConnectionTime.Seconds(),
	}, nil
}

// openTo gives the container what leads to the proxy: a socket, something that
// connects to it, and processes for that. Its network stays none.
func (s *Spec) openTo(e *Egress) {
	if e == nil {
		return
	}
	s.Job.Egress = e
	c := &s.Class
	c.Launcher = []string{"/bin/sh", EgressDir + "/" + launchFile, strconv.Itoa(egressPort), strconv.Itoa(e.Connections)}
	c.Binds = append(c.Binds, Bind{Role: RoleEgress, Target: EgressDir, ReadOnly: true})
	c.Env = mergeEnv(c.Env, sortedEnv(egressEnv()))
	c.Cgroup.PIDs += e.PIDs()
}

// PIDs is how many processes the limit of a container has for the way to the proxy: a
// listener, one for each connection, and one that comes and goes. They count together
// with those of the program, which can have what the way does not use. It is 0 for nil.
func (e *Egress) PIDs() int64 {
	if e == nil {
		return 0
	}
	return int64(e.Connections) + 2
}

// leastConnections is what clients of package registries open at once.
const leastConnections = 4

// fitConnections is how many connections a program has that was given few processes,
// and that said nothing about connections: each is a process that it could have instead.
func fitConnections(connections int, req Request) int {
	if req.Limits.PIDs <= 0 || req.Egress.Limits.Connections != 0 || req.Limits.PIDs >= int64(connections) {
		return connections
	}
	return min(connections, max(int(req.Limits.PIDs), leastConnections))
}
