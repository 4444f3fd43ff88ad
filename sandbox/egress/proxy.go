// Package egress is the proxy of a run with a network level: an HTTP proxy, for plain
// requests and for tunnels (CONNECT), that reaches the hosts that the rules of the run
// permit, and logs every request.
//
// The proxy checks the requested name and every address of it, and dials an address that it
// checked. A tunnel must hold TLS whose server name is the host of the tunnel. Requests are
// forwarded unchanged to the host of their URL, without the headers for the proxy.
// Everything is bounded, and ends with [Session.Close].
package egress

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalbox/evalbox/policy"
)

// Bounds that no caller changes.
const (
	headerTime     = 10 * time.Second // for the header of a request, and for a TLS hello
	dialTime       = 10 * time.Second // to look up and reach one host
	idleTime       = time.Minute      // of a connection between two requests
	halfClosedTime = 5 * time.Minute  // of a tunnel that one side has closed
	maxHeader      = 64 << 10
	maxAddresses   = 64 // of one name
)

// config configures a proxy. Rules and all limits must be set; see
// [policy.Policy.ApplyEgress].
type config struct {
	Rules  *policy.EgressRules
	Limits policy.EgressLimits
	// Hosts are the addresses of names, in their normal form, that are not looked up.
	Hosts map[string][]netip.Addr
	// Log gets an [Entry] as a line of JSON for each request, LogLimit bytes at most; nil
	// means none. Writes are not concurrent.
	Log      io.Writer
	LogLimit int64
	// Resolver and Dialer default to those of the system, Now to the system's clock.
	Resolver resolver
	Dialer   dialer
	Now      func() time.Time
}

// stats are the counters of a proxy.
type stats struct {
	// Requests counts all requests, Refused those that no rule permitted.
	Requests, Refused int64
	// BytesUp counts the bytes to hosts, BytesDown those from them.
	BytesUp, BytesDown int64
	// LogDropped counts the lines for which the log had no room.
	LogDropped int64
}

// proxy serves one run until it is closed.
type proxy struct {
	cfg       config
	dialer    *Dialer
	server    *http.Server
	forwarder *httputil.ReverseProxy
	log       *requestLog

	ctx    context.Context //nolint:containedctx // ends with the proxy that owns it
	cancel context.CancelFunc

	requests, refused, up, down atomic.Int64

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{} // the open ones, of both sides
	// clients counts the open connections of the program.
	clients int
	busy    sync.WaitGroup
}

// start serves the connections of a listener, which the proxy closes.
func start(listener net.Listener, cfg config) *proxy {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	d := &Dialer{Rules: cfg.Rules, Hosts: cfg.Hosts, Resolver: cfg.Resolver, Net: cfg.Dialer}
	p := &proxy{cfg: cfg, dialer: d, conns: map[net.Conn]struct{}{}, log: &requestLog{to: cfg.Log, limit: cfg.LogLimit}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.forwarder = p.newForwarder()
	p.server = &http.Server{
		Handler: p, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		// HTTP/1 only: a request of HTTP/2 does not have a connection of its own.
		Protocols: http1(), ConnContext: limitContext,
		// "OPTIONS *" is a request like others: counted, logged and refused.
		DisableGeneralOptionsHandler: true,
	}
	p.busy.Go(func() { _ = p.server.Serve(&boundedListener{listener, p}) }) // it returns after Close
	return p
}

func http1() *http.Protocols {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &protocols
}

// Stats returns the counters. It may be called at any time.
func (p *proxy) Stats() stats {
	return stats{
		Requests: p.requests.Load(), Refused: p.refused.Load(),
		BytesUp: p.up.Load(), BytesDown: p.down.Load(), LogDropped: p.log.dropped.Load(),
	}
}

// Close closes all connections, waits for their handlers, and returns the final counters. It
// may be called again.
func (p *proxy) Close() stats {
	p.cancel()
	_ = p.server.Close() // the listener; a second close fails
	p.mu.Lock()
	p.closed = true
	for conn := range p.conns {
		_ = conn.Close() // forget takes the lock, but not from here
	}
	p.mu.Unlock()
	p.busy.Wait()
	return p.Stats()
}

// ServeHTTP answers one request of the program.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.busy.Add(1)
	p.mu.Unlock()
	defer p.busy.Done()

	x := p.begin(r)
	defer p.end(x)
	deadline, _ := r.Context().Value(limitKey{}).(time.Time)
	ctx, cancel := context.WithDeadline(context.WithValue(r.Context(), exchangeKey{}, x), deadline)
	defer cancel()
	defer context.AfterFunc(p.ctx, cancel)()
	x.deadline = deadline
	if r = r.WithContext(ctx); r.Method == http.MethodConnect {
		p.tunnel(w, r)
	} else {
		p.forward(w, r)
	}
}

type (
	exchangeKey struct{}
	limitKey    struct{}
)

// exchange is one request and the state of its answer.
type exchange struct {
	entry    Entry
	began    time.Time
	deadline time.Time
	up, down atomic.Int64
}

func exchangeOf(r *http.Request) *exchange {
	x, _ := r.Context().Value(exchangeKey{}).(*exchange)
	return x
}

// begin counts a request.
func (p *proxy) begin(r *http.Request) *exchange {
	p.requests.Add(1)
	now := p.cfg.Now()
	port, err := policy.ParsePort(r.URL.Port())
	if err != nil {
		port = 0 // unknown
	}
	return &exchange{began: now, entry: Entry{
		Time: now.UTC().Format(time.RFC3339Nano), Method: clip(r.Method, 32), Host: clip(r.URL.Hostname(), 300), Port: port, Verdict: Allowed,
	}}
}

// end logs a request.
func (p *proxy) end(x *exchange) {
	if x.entry.Verdict == Refused {
		p.refused.Add(1)
	}
	x.entry.BytesUp, x.entry.BytesDown = x.up.Load(), x.down.Load()
	x.entry.DurationSeconds = p.cfg.Now().Sub(x.began).Seconds()
	p.log.add(x.entry)
}

// fail records why a request failed, and returns the answer for the program.
func (x *exchange) fail(err error) (status int, text string) {
	if no, ok := errors.AsType[*RefusedError](err); ok {
		x.entry.Verdict, x.entry.Rule = Refused, clip(no.Rule, 500)
		return http.StatusForbidden, "refused by the sandbox: " + no.Rule + "\n"
	}
	x.entry.Error = clip(err.Error(), 500)
	return http.StatusBadGateway, "the sandbox could not pass the request on: " + reason(err) + "\n"
}

// reason omits the addresses from an error of the network.
func reason(err error) string {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err.Error()
	}
	return err.Error()
}

// admit decides about the host of a request.
func (p *proxy) admit(x *exchange, host string, port uint16) (policy.HostVerdict, error) {
	x.entry.Port = port
	if name, _, err := policy.NormalizeHost(host); err == nil {
		x.entry.Host = name
	}
	switch limits := p.cfg.Limits; {
	case p.requests.Load() > int64(limits.Requests):
		return policy.HostVerdict{}, &RefusedError{"the limit of requests is reached"}
	case p.spent():
		return policy.HostVerdict{}, &RefusedError{"the limit of bytes is reached"}
	}
	v := p.cfg.Rules.Host(host, port)
	x.entry.Rule = v.Rule
	if !v.Allowed {
		return v, &RefusedError{v.Rule}
	}
	return v, nil
}

// spent reports whether all bytes of the run are used up.
func (p *proxy) spent() bool { return p.up.Load()+p.down.Load() >= int64(p.cfg.Limits.Bytes) }
