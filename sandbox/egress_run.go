package sandbox

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/egress"
	"github.com/evalbox/evalbox/sandbox/spec"
)

const (
	// egressDir is the directory of a record that is mounted during its run.
	egressDir = "egress"
	// networkFile is the log of a run's requests.
	networkFile = "network.jsonl"
	// maxNetworkLog is its maximum size in bytes.
	maxNetworkLog = 16 << 20
)

// egressPart is the state of a run's proxy.
type egressPart struct {
	proxy *egress.Proxy
	log   *os.File
	// stats are available once the proxy is closed.
	stats egress.Stats
}

// openEgress starts the proxy of a run that has one. Its socket is only reachable for
// users who may read the record, and from the container that it is mounted into.
func (a *attempt) openEgress() (err error) {
	e := a.spec.Job.Egress
	if e == nil {
		return nil
	}
	dir := filepath.Join(a.work.record, egressDir)
	if err := mkdirReadable(dir); err != nil {
		return record.StateError(dir, "cannot be made", err)
	}
	rules, err := policy.Egress{Level: policy.NetworkLevel(e.Level), Allow: e.Allow, Deny: e.Deny}.Rules(nil, ownAddresses())
	if err != nil {
		return fmt.Errorf("network of run %s: %w", a.spec.Job.RunID, err)
	}
	log, err := os.OpenFile(filepath.Join(a.work.record, networkFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return record.StateError(a.work.record, "cannot be written", err)
	}
	listener, err := listenUnix(dir, spec.EgressSocket)
	if err != nil {
		return errors.Join(record.StateError(dir, "cannot hold a socket", err), log.Close())
	}
	a.egress.log = log
	a.egress.proxy = egress.Start(listener, egress.Config{
		Rules: rules, Hosts: e.Resolve, Log: log, LogLimit: maxNetworkLog,
		Limits: policy.EgressLimits{Connections: e.Connections, Requests: e.Requests, Bytes: policy.Size(e.Bytes),
			ConnectionTime: seconds(e.ConnectionTimeSeconds)},
	})
	a.work.paths[spec.RoleEgress] = dir
	return nil
}

// ownAddresses returns the addresses of this machine. Servers on this machine may trust
// local clients, even at an address of the public internet.
func ownAddresses() []netip.Addr {
	found, err := net.InterfaceAddrs()
	if err != nil {
		return nil // addresses that are not public are refused anyway
	}
	var own []netip.Addr
	for _, each := range found {
		if prefix, err := netip.ParsePrefix(each.String()); err == nil {
			own = append(own, prefix.Addr())
		}
	}
	return own
}

// closeEgress closes the proxy and removes its socket. It may be called again.
func (a *attempt) closeEgress() {
	if a.egress.proxy == nil {
		return
	}
	a.egress.stats = a.egress.proxy.Close()
	a.egress.proxy = nil
	err := errors.Join(a.egress.log.Close(), dropEgress(a.work.record))
	if err != nil {
		a.warnings = append(a.warnings, fmt.Sprintf("the way to the proxy is left behind in the record: %v", fsx.Cause(err)))
	}
	if n := a.egress.stats.LogDropped; n > 0 {
		a.warnings = append(a.warnings, fmt.Sprintf("%s misses the last %d requests: it holds at most %v", networkFile, n, policy.Size(maxNetworkLog)))
	}
}

// dropEgress removes the directory of the proxy's socket from a record. No program could
// write there.
func dropEgress(record string) error { return os.RemoveAll(filepath.Join(record, egressDir)) }

// network returns the part of a result about the run's proxy; nil without one.
func (a *attempt) network() *result.Network {
	e, stats := a.spec.Job.Egress, a.egress.stats
	if e == nil {
		return nil
	}
	return &result.Network{
		Level: e.Level, Allow: e.Allow, Deny: e.Deny, Requests: stats.Requests, Refused: stats.Refused,
		BytesUp: stats.BytesUp, BytesDown: stats.BytesDown, Log: networkFile, LogDropped: stats.LogDropped,
	}
}
