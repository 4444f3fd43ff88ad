package egress

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elazarl/goproxy"

	"github.com/evalbox/evalbox/policy"
)

// Bounds that no caller changes.
const (
	headerTime     = 10 * time.Second // for the head of a request, and for a TLS hello
	dialTime       = 10 * time.Second // to find out and reach one host
	idleTime       = time.Minute      // of a connection between two requests
	halfClosedTime = 5 * time.Minute  // of a tunnel that one side has ended
	maxHeader      = 64 << 10
	maxAddresses   = 64 // of one name
)

// Resolver finds the addresses of a name; a [*net.Resolver] is one. The name ends in
// a dot.
type resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Dialer connects to an address; a [*net.Dialer] is one.
type dialer interface {
	DialContext(ctx context.Context, network, address string) (net.Conn, error)
}

// Config is what a proxy is made of. Rules must be set; the limits must all be set,
// see [policy.Policy.ApplyEgress].
type config struct {
	Rules  *policy.EgressRules
	Limits policy.EgressLimits
	// Hosts are names, in their normal form, that are not looked up.
	Hosts map[string][]netip.Addr
	// Log gets one line of JSON for each request, see [Entry], LogLimit bytes at most;
	// nil is none. Its writes come one after the other.
	Log      io.Writer
	LogLimit int64
	// Resolver and Dialer default to those of the system, Now to the system's clock.
	Resolver resolver
	Dialer   dialer
	Now      func() time.Time
}

// Stats are what a proxy has done so far.
type stats struct {
	// Requests are all requests, Refused those among them that no rule permitted.
	Requests, Refused int64
	// BytesUp went to hosts, BytesDown came from them.
	BytesUp, BytesDown int64
	// LogDropped are lines that found no room in the log.
	LogDropped int64
}

// Proxy serves one run until it is closed.
type proxy struct {
	cfg     config
	server  *http.Server
	forward *goproxy.ProxyHttpServer
	log     *requestLog

	ctx    context.Context //nolint:containedctx // ends with the proxy that owns it
	cancel context.CancelFunc

	requests, refused, up, down atomic.Int64

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{} // all that are open, of both sides
	// clients counts those of the program.
	clients int
	busy    sync.WaitGroup
}

// Start serves the connections of a listener, which the proxy closes.
func start(listener net.Listener, cfg config) *proxy {
	if cfg.Resolver == nil {
		// The C library may know more services of names; not all of them let go when
		// they are told to.
		cfg.Resolver = &net.Resolver{PreferGo: true}
	}
	if cfg.Dialer == nil {
		cfg.Dialer = &net.Dialer{}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	p := &proxy{cfg: cfg, conns: map[net.Conn]struct{}{}, log: &requestLog{to: cfg.Log, limit: cfg.LogLimit}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.forward = p.newForwarder()
	p.server = &http.Server{
		Handler: p, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		// Only HTTP/1: a request of HTTP/2 has no connection of its own.
		Protocols: http1(), ConnContext: limitContext,
		// "OPTIONS *" is a request like others: counted, logged and refused.
		DisableGeneralOptionsHandler: true,
	}
	p.busy.Go(func() { _ = p.server.Serve(&boundedListener{listener, p}) }) // ends with Close only
	return p
}

func http1() *http.Protocols {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &protocols
}

// Stats may be called at any time.
func (p *proxy) Stats() stats {
	return stats{
		Requests: p.requests.Load(), Refused: p.refused.Load(),
		BytesUp: p.up.Load(), BytesDown: p.down.Load(), LogDropped: p.log.dropped.Load(),
	}
}

// Close ends all connections, waits for what was being done for them, and returns
// the final figures. It may be called again.
func (p *proxy) Close() stats {
	p.cancel()
	_ = p.server.Close() // the listener; a second close has nothing to say
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
	p.forward.ServeHTTP(keepBuffered{w}, r.WithContext(ctx))
	if x.bodyErr != nil {
		// The end of a body that was cut must not look like an end.
		panic(http.ErrAbortHandler)
	}
}

type (
	exchangeKey struct{}
	limitKey    struct{}
)

// exchange is one request on its way.
type exchange struct {
	entry    Entry
	began    time.Time
	deadline time.Time
	up, down atomic.Int64
	// bodyErr is why the body of an answer could not be passed on.
	bodyErr error
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
		port = 0 // there is none that could be told
	}
	return &exchange{began: now, entry: Entry{
		Time: now.UTC().Format(time.RFC3339Nano), Method: clip(r.Method, 32), Host: clip(r.URL.Hostname(), 300), Port: port, Verdict: Allowed,
	}}
}

// end writes a request down.
func (p *proxy) end(x *exchange) {
	if x.entry.Verdict == Refused {
		p.refused.Add(1)
	}
	x.entry.BytesUp, x.entry.BytesDown = x.up.Load(), x.down.Load()
	x.entry.DurationSeconds = p.cfg.Now().Sub(x.began).Seconds()
	p.log.add(x.entry)
}

// A refusal is what no rule permits.
type refusal struct{ rule string }

func (r *refusal) Error() string { return r.rule }

// fail writes down why a request did not go through, and says it for the program.
func (x *exchange) fail(err error) (status int, text string) {
	var no *refusal
	if errors.As(err, &no) {
		x.entry.Verdict, x.entry.Rule = Refused, clip(no.rule, 500)
		return http.StatusForbidden, "refused by the sandbox: " + no.rule + "\n"
	}
	x.entry.Error = clip(err.Error(), 500)
	return http.StatusBadGateway, "the sandbox could not pass the request on: " + reason(err) + "\n"
}

// reason leaves out which address of ours or of theirs failed.
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
		return policy.HostVerdict{}, &refusal{"the limit of requests is reached"}
	case p.spent():
		return policy.HostVerdict{}, &refusal{"the limit of bytes is reached"}
	}
	v := p.cfg.Rules.Host(host, port)
	x.entry.Rule = v.Rule
	if !v.Allowed {
		return v, &refusal{v.Rule}
	}
	return v, nil
}

// spent reports whether all bytes of the run are used up.
func (p *proxy) spent() bool { return p.up.Load()+p.down.Load() >= int64(p.cfg.Limits.Bytes) }
