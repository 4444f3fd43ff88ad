package web

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/egress"
)

const (
	maxRedirects  = 5
	maxHeader     = 1 << 20          // of a response, in bytes
	handshakeTime = 10 * time.Second // of TLS
)

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// guard checks every request against the rules for hosts.
type guard struct {
	rules *policy.EgressRules
	next  http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := g.check(req); err != nil {
		if req.Body != nil {
			_ = req.Body.Close() // in memory
		}
		return nil, err
	}
	return g.next.RoundTrip(req)
}

func (g *guard) check(req *http.Request) error {
	port, err := portOf(req.URL)
	if err != nil {
		return refused(req.URL, "the URL "+err.Error())
	}
	verdict := g.rules.Host(req.URL.Hostname(), port)
	switch {
	case !verdict.Allowed:
		return refused(req.URL, verdict.Rule)
	case verdict.ReadOnly && req.Method != http.MethodGet && req.Method != http.MethodHead:
		return refused(req.URL, "the level registry permits GET and HEAD")
	}
	return nil
}

// refused is the refusal of a URL.
func refused(u *url.URL, rule string) error {
	port, err := portOf(u)
	if err != nil {
		port = 0 // unknown
	}
	return &RefusedError{Host: u.Hostname(), Port: port, Rule: rule}
}

// newTransport returns the transport of one call. Its connections end with ctx. It does not
// look at the variables for proxies, and keeps no connection: the next call may have other
// rules.
func newTransport(ctx context.Context, d *egress.Dialer, roots *x509.CertPool) *http.Transport {
	return &http.Transport{
		// The library goes on with a dial whose request has ended, so this one looks at the call.
		DialContext: func(_ context.Context, _, address string) (net.Conn, error) {
			conn, err := dial(ctx, d, address)
			if err != nil {
				return nil, err
			}
			context.AfterFunc(ctx, func() { _ = conn.Close() }) // it may be closed already
			return conn, nil
		},
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: handshakeTime,
		DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader, Protocols: http1(),
	}
}

func http1() *http.Protocols {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	return &protocols
}

// dial connects to a host and a port.
func dial(ctx context.Context, d *egress.Dialer, address string) (net.Conn, error) {
	host, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := policy.ParsePort(portText)
	if err != nil {
		return nil, err
	}
	conn, _, err := d.Dial(ctx, host, port)
	if no, ok := errors.AsType[*egress.RefusedError](err); ok {
		return nil, &RefusedError{Host: host, Port: port, Rule: no.Rule}
	}
	return conn, err
}

// checkRedirect decides about a redirect, beside the rules for hosts. It stays on the host of
// the first request, on whatever port.
func checkRedirect(next *url.URL, via []*http.Request) error {
	first, last := via[0].URL, via[len(via)-1].URL
	switch {
	case len(via) > maxRedirects:
		return refused(next, "more than 5 redirects")
	case next.Scheme != "http" && next.Scheme != "https":
		return refused(next, "a redirect to a scheme other than http and https")
	case next.User != nil:
		return refused(next, "a redirect with a user name")
	case last.Scheme == "https" && next.Scheme != "https":
		return refused(next, "a redirect from https to http")
	case !sameHost(next, first):
		return refused(next, "a redirect to another host")
	}
	return nil
}

// sameHost compares hosts without their ports.
func sameHost(a, b *url.URL) bool {
	nameA, _, errA := policy.NormalizeHost(a.Hostname())
	nameB, _, errB := policy.NormalizeHost(b.Hostname())
	return errA == nil && errB == nil && nameA == nameB
}

// sameOrigin compares scheme, host and port.
func sameOrigin(a, b *url.URL) bool {
	portA, errA := portOf(a)
	portB, errB := portOf(b)
	return errA == nil && errB == nil && portA == portB && a.Scheme == b.Scheme && sameHost(a, b)
}
