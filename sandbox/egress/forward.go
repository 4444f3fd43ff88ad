package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"sync/atomic"

	"github.com/elazarl/goproxy"

	"github.com/evalbox/evalbox/policy"
)

// newForwarder returns the library's proxy, which forwards plain requests, behind the rules
// of this package.
func (p *proxy) newForwarder() *goproxy.ProxyHttpServer {
	forward := goproxy.NewProxyHttpServer()
	forward.Logger = silent{}
	// Every request has its own round tripper. These would read the environment of this
	// process.
	forward.Tr, forward.ConnectDial = nil, nil
	forward.KeepAcceptEncoding = true
	forward.NonproxyHandler = http.HandlerFunc(p.refuseDirect)
	forward.OnRequest().HandleConnectFunc(p.handleConnect)
	forward.OnRequest().DoFunc(p.handleRequest)
	forward.OnResponse().DoFunc(p.handleResponse)
	return forward
}

// silent is a logger of the library that prints nothing.
type silent struct{}

func (silent) Printf(string, ...any) {}

// refuseDirect answers requests to the proxy itself.
func (p *proxy) refuseDirect(w http.ResponseWriter, r *http.Request) {
	status, text := exchangeOf(r).fail(&refusal{"a request must name its whole URL: this is a proxy"})
	http.Error(w, strings.TrimSpace(text), status)
}

// handleRequest decides about a plain request, and sets how it is forwarded.
func (p *proxy) handleRequest(r *http.Request, ctx *goproxy.ProxyCtx) (*http.Request, *http.Response) {
	x := exchangeOf(r)
	if err := p.admitRequest(x, r); err != nil {
		status, text := x.fail(err)
		return r, goproxy.NewResponse(r, goproxy.ContentTypeText, status, text)
	}
	stripHeader(r.Header)
	// The rules were checked for the URL, so the Host header must be that of the URL.
	r.Host = r.URL.Host
	if _, says := r.Header["User-Agent"]; !says {
		r.Header["User-Agent"] = []string{""} // none, instead of the library's
	}
	ctx.RoundTripper = goproxy.RoundTripperFunc(func(r *http.Request, _ *goproxy.ProxyCtx) (*http.Response, error) {
		return p.roundTrip(x, r)
	})
	return r, nil
}

// admitRequest decides about a plain request.
func (p *proxy) admitRequest(x *exchange, r *http.Request) error {
	if r.URL.Scheme != "http" {
		return &refusal{"the scheme must be http; others go through CONNECT"}
	}
	if r.URL.User != nil {
		return &refusal{"the URL holds a user name"}
	}
	host, port := r.URL.Hostname(), uint16(80)
	if text := r.URL.Port(); text != "" {
		var err error
		if port, err = policy.ParsePort(text); err != nil {
			return &refusal{"the URL " + err.Error()}
		}
	}
	verdict, err := p.admit(x, host, port)
	switch {
	case err != nil:
		return err
	case port == 443:
		return &refusal{"port 443 is for tunnels (CONNECT)"}
	case r.Method == http.MethodTrace:
		return &refusal{"TRACE would show what the proxy adds"}
	case verdict.ReadOnly && r.Method != http.MethodGet && r.Method != http.MethodHead:
		return &refusal{"the level registry permits GET and HEAD"}
	case verdict.ReadOnly && (r.ContentLength != 0 || len(r.TransferEncoding) > 0):
		return &refusal{"the level registry permits no body in a request"}
	}
	return nil
}

// roundTrip sends a request to the host, on a connection of its own to a checked address.
func (p *proxy) roundTrip(x *exchange, r *http.Request) (*http.Response, error) {
	conn, err := p.connect(r.Context(), x, r.URL.Hostname(), x.entry.Port)
	if err != nil {
		return nil, err
	}
	var used atomic.Bool
	transport := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			if used.Swap(true) {
				return nil, errors.New("the connection is used up")
			}
			return conn, nil
		},
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 4 * maxHeader,
		Protocols: http1(),
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return nil, errors.Join(err, ignoreClosed(conn.Close()))
	}
	x.entry.Status = answer.StatusCode
	answer.Body = &watchedBody{answer.Body, x}
	return answer, nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// watchedBody records why a body ended too early.
type watchedBody struct {
	io.ReadCloser
	x *exchange
}

func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		b.x.bodyErr = err
		b.x.entry.Error = clip(reason(err), 500)
	}
	return n, err
}

// handleResponse answers in place of a host that did not answer, or changed the protocol.
func (p *proxy) handleResponse(answer *http.Response, ctx *goproxy.ProxyCtx) *http.Response {
	if answer == nil {
		status, text := exchangeOf(ctx.Req).fail(ctx.Error)
		return goproxy.NewResponse(ctx.Req, goproxy.ContentTypeText, status, text)
	}
	if answer.StatusCode == http.StatusSwitchingProtocols {
		_ = answer.Body.Close() // the bytes that follow are of another protocol
		status, text := exchangeOf(ctx.Req).fail(&refusal{"the host changed the protocol"})
		return goproxy.NewResponse(ctx.Req, goproxy.ContentTypeText, status, text)
	}
	stripHeader(answer.Header)
	return answer
}

// hopHeaders are headers of one connection (RFC 9110, 7.6.1).
var hopHeaders = []string{"Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// stripHeader removes the headers of one connection, and those for a proxy.
func stripHeader(header http.Header) {
	for _, list := range header["Connection"] {
		for name := range strings.SplitSeq(list, ",") {
			header.Del(textproto.TrimString(name))
		}
	}
	for _, name := range hopHeaders {
		header.Del(name)
	}
	for name := range header {
		if strings.HasPrefix(strings.ToLower(name), "proxy-") {
			delete(header, name)
		}
	}
}
