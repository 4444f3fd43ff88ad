package egress

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// maxLog is the maximum size of the log of a run's requests, in bytes.
const maxLog = 16 << 20

// Session is the proxy of one run, with its socket and its log in the run's record. A nil
// Session is that of a run without a network.
type Session struct {
	plan  spec.Egress
	dir   string
	warn  func(format string, args ...any)
	proxy *proxy
	log   *os.File
	// stats are available once the proxy is closed.
	stats stats
	// lost says that the proxy died with the controller that had started the run.
	lost bool
}

// Open starts the proxy of a run that has one. Its socket is only reachable for users who
// may read the record, and from the container that it is mounted into. Its directory is
// the source of [spec.RoleEgress]. warn adds a warning to the result.
func Open(job spec.Job, recordDir string, warn func(format string, args ...any)) (*Session, error) {
	if job.Egress == nil {
		return nil, nil
	}
	e := *job.Egress
	dir := filepath.Join(recordDir, record.EgressDir)
	if err := fsx.MkdirReadable(dir); err != nil {
		return nil, record.StateError(dir, "cannot be made", err)
	}
	rules, err := policy.Egress{Level: policy.NetworkLevel(e.Level), Allow: e.Allow, Deny: e.Deny}.Rules(nil, ownAddresses())
	if err != nil {
		return nil, fmt.Errorf("network of run %s: %w", job.RunID, err)
	}
	log, err := os.OpenFile(filepath.Join(recordDir, record.NetworkFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, record.StateError(recordDir, "cannot be written", err)
	}
	listener, err := listenUnix(dir, spec.EgressSocket)
	if err != nil {
		return nil, errors.Join(record.StateError(dir, "cannot hold a socket", err), log.Close())
	}
	s := &Session{plan: e, dir: dir, warn: warn, log: log}
	s.proxy = start(listener, config{
		Rules: rules, Hosts: e.Resolve, Log: log, LogLimit: maxLog,
		Limits: policy.EgressLimits{Connections: e.Connections, Requests: e.Requests, Bytes: policy.Size(e.Bytes),
			ConnectionTime: time.Duration(e.ConnectionTimeSeconds * float64(time.Second))},
	})
	return s, nil
}

// Resume returns the Session of a run whose controller died, and its proxy with it. The
// requests are those of the log.
func Resume(job spec.Job, recordDir string, warn func(format string, args ...any)) *Session {
	if job.Egress == nil {
		return nil
	}
	s := &Session{plan: *job.Egress, dir: filepath.Join(recordDir, record.EgressDir), warn: warn, lost: true}
	text, err := fsx.Read(filepath.Join(recordDir, record.NetworkFile), maxLog)
	if err != nil {
		warn("%s cannot be read: %v", record.NetworkFile, fsx.Cause(err))
	}
	for line := range bytes.Lines(text) {
		var e Entry
		if json.Unmarshal(line, &e) != nil {
			continue // the proxy died while it wrote the last one
		}
		s.stats.Requests++
		s.stats.BytesUp += e.BytesUp
		s.stats.BytesDown += e.BytesDown
		if e.Verdict == Refused {
			s.stats.Refused++
		}
	}
	return s
}

// Dir is the directory with the proxy's socket; empty without a proxy.
func (s *Session) Dir() string {
	if s == nil {
		return ""
	}
	return s.dir
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

// Close closes the proxy and removes its socket. No program could write in the socket's
// directory. It may be called again.
func (s *Session) Close() {
	if s == nil {
		return
	}
	if s.lost {
		s.lost = false
		if err := os.RemoveAll(s.dir); err != nil {
			s.warn("the way to the proxy is left behind in the record: %v", fsx.Cause(err))
		}
	}
	if s.proxy == nil {
		return
	}
	s.stats = s.proxy.Close()
	s.proxy = nil
	if err := errors.Join(s.log.Close(), os.RemoveAll(s.dir)); err != nil {
		s.warn("the way to the proxy is left behind in the record: %v", fsx.Cause(err))
	}
	if n := s.stats.LogDropped; n > 0 {
		s.warn("%s misses the last %d requests: it holds at most %v", record.NetworkFile, n, policy.Size(maxLog))
	}
}

// Report returns the part of a result about the proxy, after Close; nil without one.
func (s *Session) Report() *result.Network {
	if s == nil {
		return nil
	}
	return &result.Network{
		Level: s.plan.Level, Allow: s.plan.Allow, Deny: s.plan.Deny, Requests: s.stats.Requests, Refused: s.stats.Refused,
		BytesUp: s.stats.BytesUp, BytesDown: s.stats.BytesDown, Log: record.NetworkFile, LogDropped: s.stats.LogDropped,
	}
}
