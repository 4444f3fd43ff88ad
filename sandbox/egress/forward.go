package egress

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/textproto"
	"strings"
	"sync/atomic"

	"github.com/evalbox/evalbox/policy"
)

// newForwarder returns the standard library's proxy, which forwards plain requests that are
// admitted.
func (p *proxy) newForwarder() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: rewrite, Transport: roundTripper(p.roundTrip), ModifyResponse: checkAnswer, ErrorHandler: refuse,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
}

// forward answers a plain request.
func (p *proxy) forward(w http.ResponseWriter, r *http.Request) {
	var err error = &RefusedError{"a request must name its whole URL: this is a proxy"}
	if r.URL.IsAbs() {
		err = p.admitRequest(exchangeOf(r), r)
	}
	if err != nil {
		refuse(w, r, err)
		return
	}
	p.forwarder.ServeHTTP(w, r)
}

// refuse answers in place of a host.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	status, text := exchangeOf(r).fail(err)
	http.Error(w, strings.TrimSpace(text), status)
}

// rewrite sets what is sent to the host: what came, without the headers of one connection. The
// library would leave out more.
func rewrite(r *httputil.ProxyRequest) {
	r.Out.URL, r.Out.Header = r.In.URL, r.In.Header.Clone()
	stripHeader(r.Out.Header)
	// The rules were checked for the URL, so the Host header must be that of the URL.
	r.Out.Host = r.In.URL.Host
}

// admitRequest decides about a plain request.
func (p *proxy) admitRequest(x *exchange, r *http.Request) error {
	if r.URL.Scheme != "http" {
		return &RefusedError{"the scheme must be http; others go through CONNECT"}
	}
	if r.URL.User != nil {
		return &RefusedError{"the URL holds a user name"}
	}
	host, port := r.URL.Hostname(), uint16(80)
	if text := r.URL.Port(); text != "" {
		var err error
		if port, err = policy.ParsePort(text); err != nil {
			return &RefusedError{"the URL " + err.Error()}
		}
	}
	verdict, err := p.admit(x, host, port)
	switch {
	case err != nil:
		return err
	case port == 443:
		return &RefusedError{"port 443 is for tunnels (CONNECT)"}
	case r.Method == http.MethodTrace:
		return &RefusedError{"TRACE would show what the proxy adds"}
	case verdict.ReadOnly && r.Method != http.MethodGet && r.Method != http.MethodHead:
		return &RefusedError{"the level registry permits GET and HEAD"}
	case verdict.ReadOnly && (r.ContentLength != 0 || len(r.TransferEncoding) > 0):
		return &RefusedError{"the level registry permits no body in a request"}
	}
	return nil
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements [http.RoundTripper].
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// roundTrip sends a request to the host, on a connection of its own to a checked address.
func (p *proxy) roundTrip(r *http.Request) (*http.Response, error) {
	x := exchangeOf(r)
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
		b.x.entry.Error = clip(reason(err), 500)
	}
	return n, err
}

// checkAnswer refuses the answer of a host that changed the protocol: the bytes that follow are of
// another one.
func checkAnswer(answer *http.Response) error {
	if answer.StatusCode == http.StatusSwitchingProtocols {
		return &RefusedError{"the host changed the protocol"} // the library closes the connection
	}
	stripHeader(answer.Header)
	return nil
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
