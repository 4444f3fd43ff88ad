package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
)

// world is a proxy with servers on loopback addresses.
type world struct {
	t      *testing.T
	proxy  *proxy
	socket string
	log    *safeBuffer
	// port is that of the plain server, on 127.0.0.5; tlsPort that of the TLS
	// server, on 127.0.0.6, whose certificates roots know.
	port, tlsPort uint16
	roots         *x509.CertPool
	seen          chan *http.Request
	resolver      *table
	dialled       *recordingDialer
}

type safeBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// table is a resolver; answers of one name come one after the other.
type table struct {
	mu      sync.Mutex
	answers map[string][][]netip.Addr
	asked   []string
}

func (r *table) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, host)
	answers := r.answers[host]
	if network != "ip" || len(answers) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(answers) > 1 {
		r.answers[host] = answers[1:]
	}
	return answers[0], nil
}

type recordingDialer struct {
	mu        sync.Mutex
	addresses []string
}

func (d *recordingDialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d.mu.Lock()
	d.addresses = append(d.addresses, address)
	d.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	return listener
}

func serve(t *testing.T, address string, encrypted bool, handler http.Handler) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	require.NoError(t, server.Listener.Close())
	server.Listener = listen(t, address)
	if encrypted {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server
}

func portOf(listener net.Listener) uint16 {
	return uint16(listener.Addr().(*net.TCPAddr).Port)
}

func addrs(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// newWorld makes a proxy; change completes what it permits.
func newWorld(t *testing.T, change func(w *world, e *policy.Egress, cfg *config)) *world {
	t.Helper()
	w := &world{t: t, log: &safeBuffer{}, seen: make(chan *http.Request, 100), resolver: &table{answers: map[string][][]netip.Addr{}}, dialled: &recordingDialer{}}
	handler := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		r.Body = io.NopCloser(strings.NewReader(mustRead(r.Body)))
		w.seen <- r
		rw.Header().Set("Proxy-Secret", "1")
		rw.Header().Set("X-Kept", "1")
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(rw, r, "http://elsewhere.example/", http.StatusFound)
		case "/large":
			_, _ = io.Copy(rw, io.LimitReader(zeros{}, 1<<20))
		default:
			fmt.Fprintf(rw, "hello %s", r.Host)
		}
	})
	plain := serve(t, "127.0.0.5:0", false, handler)
	encrypted := serve(t, "127.0.0.6:0", true, handler)
	w.port, w.tlsPort = portOf(plain.Listener), portOf(encrypted.Listener)
	w.roots = x509.NewCertPool()
	w.roots.AddCert(encrypted.Certificate())
	// The certificate of httptest is of example.com.
	w.resolver.answers["plain.example."] = [][]netip.Addr{addrs("127.0.0.5")}
	w.resolver.answers["example.com."] = [][]netip.Addr{addrs("127.0.0.6")}
	e := policy.Egress{Level: policy.API, Allow: []string{
		"plain.example:" + strconv.Itoa(int(w.port)), "127.0.0.5:" + strconv.Itoa(int(w.port)),
		"127.0.0.6:" + strconv.Itoa(int(w.tlsPort)), "example.com:" + strconv.Itoa(int(w.tlsPort)),
		"unknown.example:80",
	}}
	cfg := config{
		Limits: policy.EgressLimits{Connections: 8, Requests: 100, Bytes: 100 << 20, ConnectionTime: time.Minute},
		Log:    w.log, LogLimit: 1 << 20, Resolver: w.resolver, Dialer: w.dialled,
	}
	if change != nil {
		change(w, &e, &cfg)
	}
	var err error
	cfg.Rules, err = e.Rules(nil, nil)
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "egress")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	w.socket = filepath.Join(dir, "s")
	listener, err := net.Listen("unix", w.socket)
	require.NoError(t, err)
	w.proxy = start(listener, cfg)
	t.Cleanup(func() { w.proxy.Close() })
	return w
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

func mustRead(r io.Reader) string {
	text, err := io.ReadAll(r)
	if err != nil {
		return "error: " + err.Error()
	}
	return string(text)
}

func (w *world) dial(context.Context, string, string) (net.Conn, error) {
	return net.Dial("unix", w.socket)
}

// client is an HTTP client behind the proxy; it follows no redirects.
func (w *world) client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy:           http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.invalid:1"}),
			DialContext:     w.dial,
			TLSClientConfig: &tls.Config{RootCAs: w.roots},
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       20 * time.Second,
	}
}

func (w *world) get(url string) (int, string) {
	w.t.Helper()
	client := w.client()
	defer client.CloseIdleConnections()
	resp, err := client.Get(url)
	require.NoError(w.t, err)
	defer resp.Body.Close()
	return resp.StatusCode, mustRead(resp.Body)
}

// entries closes the proxy and reads its log.
func (w *world) entries() []Entry {
	w.t.Helper()
	w.proxy.Close()
	var all []Entry
	for line := range strings.Lines(w.log.String()) {
		var entry Entry
		require.NoError(w.t, json.Unmarshal([]byte(line), &entry))
		all = append(all, entry)
	}
	return all
}

func (w *world) last() Entry {
	w.t.Helper()
	all := w.entries()
	require.NotEmpty(w.t, all)
	return all[len(all)-1]
}

// raw sends bytes to the proxy and reads what comes back until the end.
func (w *world) raw(text string) string {
	w.t.Helper()
	conn, err := net.Dial("unix", w.socket)
	require.NoError(w.t, err)
	defer conn.Close()
	require.NoError(w.t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	head, complete := strings.CutSuffix(text, "\r\n\r\n")
	require.True(w.t, complete)
	_, err = io.WriteString(conn, head+"\r\nConnection: close\r\n\r\n")
	require.NoError(w.t, err)
	return mustRead(conn)
}

func TestPlainRequest(t *testing.T) {
	w := newWorld(t, nil)
	target := fmt.Sprintf("plain.example:%d", w.port)
	conn, err := net.Dial("unix", w.socket)
	require.NoError(t, err)
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST http://%s/path?q=1;r&s=%%zz HTTP/1.1\r\nHost: other.example\r\nProxy-Authorization: Basic x\r\nProxy-Anything: y\r\n"+
		"Connection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nUpgrade: websocket\r\nAccept-Encoding: br\r\nX-Forwarded-For: 192.0.2.1\r\nContent-Length: 4\r\n\r\nbody", target)
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 200, resp.StatusCode)
	require.Equal(t, "hello "+target, mustRead(resp.Body))
	require.Empty(t, resp.Header.Get("Proxy-Secret"))
	require.Equal(t, "1", resp.Header.Get("X-Kept"))
	r := <-w.seen
	require.Equal(t, target, r.Host)
	require.Equal(t, "/path?q=1;r&s=%zz", r.URL.String(), "as it came")
	require.Equal(t, "body", mustRead(r.Body))
	require.Equal(t, http.Header{"Accept-Encoding": {"br"}, "Content-Length": {"4"}, "Connection": {"close"}, "X-Forwarded-For": {"192.0.2.1"}}, r.Header)

	entry := w.last()
	require.Equal(t, "POST", entry.Method)
	require.Equal(t, "plain.example", entry.Host)
	require.Equal(t, w.port, entry.Port)
	require.Equal(t, "127.0.0.5", entry.Address)
	require.Equal(t, Allowed, entry.Verdict)
	require.Equal(t, 200, entry.Status)
	require.Contains(t, entry.Rule, "allowed by plain.example")
	require.Positive(t, entry.BytesUp)
	require.Positive(t, entry.BytesDown)
	require.Equal(t, []string{"plain.example."}, w.resolver.asked, "looked up once, without a search list")
	require.Equal(t, []string{fmt.Sprintf("127.0.0.5:%d", w.port)}, w.dialled.addresses)
	require.Equal(t, stats{Requests: 1, BytesUp: entry.BytesUp, BytesDown: entry.BytesDown}, w.proxy.Stats())
}

func TestTunnel(t *testing.T) {
	w := newWorld(t, nil)
	status, body := w.get(fmt.Sprintf("https://example.com:%d/", w.tlsPort))
	require.Equal(t, 200, status)
	require.Equal(t, fmt.Sprintf("hello example.com:%d", w.tlsPort), body)
	entry := w.last()
	require.Equal(t, "CONNECT", entry.Method)
	require.Equal(t, "example.com", entry.Host)
	require.Equal(t, "127.0.0.6", entry.Address)
	require.Equal(t, Allowed, entry.Verdict)
	require.Positive(t, entry.BytesUp)
	require.Positive(t, entry.BytesDown)
}

func TestRedirectsAreNewRequests(t *testing.T) {
	w := newWorld(t, nil)
	status, _ := w.get(fmt.Sprintf("http://plain.example:%d/redirect", w.port))
	require.Equal(t, 302, status)
	status, body := w.get("http://elsewhere.example/")
	require.Equal(t, 403, status)
	require.Contains(t, body, "no permitted host matches")
	require.NotContains(t, w.resolver.asked, "elsewhere.example.", "a name that is not permitted is not looked up")
}

func TestRefusals(t *testing.T) {
	port := func(w *world) string { return strconv.Itoa(int(w.port)) }
	tests := map[string]struct {
		request func(w *world) string
		status  string
		rule    string
	}{
		"other host":          {func(*world) string { return "GET http://evil.example/ HTTP/1.1\r\nHost: plain.example\r\n\r\n" }, "403", "no permitted host"},
		"other port":          {func(*world) string { return "GET http://plain.example:1/ HTTP/1.1\r\nHost: x\r\n\r\n" }, "403", "port 1 is not one of"},
		"loopback":            {func(w *world) string { return "GET http://127.0.0.1:" + port(w) + "/ HTTP/1.1\r\nHost: x\r\n\r\n" }, "403", "no permitted host"},
		"address in disguise": {func(w *world) string { return "GET http://127.5:" + port(w) + "/ HTTP/1.1\r\nHost: x\r\n\r\n" }, "403", "ends in a number"},
		"not absolute":        {func(*world) string { return "GET / HTTP/1.1\r\nHost: plain.example\r\n\r\n" }, "403", "whole URL"},
		"https scheme":        {func(w *world) string { return "GET https://plain.example:" + port(w) + "/ HTTP/1.1\r\nHost: x\r\n\r\n" }, "403", "scheme must be http"},
		"ftp scheme":          {func(*world) string { return "GET ftp://plain.example/ HTTP/1.1\r\nHost: x\r\n\r\n" }, "403", "scheme must be http"},
		"user name": {func(w *world) string {
			return "GET http://a@plain.example:" + port(w) + "/ HTTP/1.1\r\nHost: x\r\n\r\n"
		}, "403", "user name"},
		"trace": {func(w *world) string {
			return "TRACE http://plain.example:" + port(w) + "/ HTTP/1.1\r\nHost: x\r\n\r\n"
		}, "403", "TRACE"},
		"port of tunnels":  {func(*world) string { return "GET http://web.example:443/ HTTP/1.1\r\nHost: x\r\n\r\n" }, "403", "port 443 is for tunnels"},
		"port 0":           {func(*world) string { return "GET http://plain.example:0/ HTTP/1.1\r\nHost: x\r\n\r\n" }, "403", "must have a port"},
		"tunnel elsewhere": {func(*world) string { return "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n" }, "403", "no permitted host"},
		"tunnel of a user": {func(w *world) string {
			return "CONNECT a@plain.example:" + port(w) + " HTTP/1.1\r\nHost: x\r\n\r\n"
		}, "403", "user name"},
		"options of the proxy": {func(*world) string { return "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n" }, "403", "whole URL"},
		"tunnel without port":  {func(*world) string { return "CONNECT plain.example HTTP/1.1\r\nHost: x\r\n\r\n" }, "403", "host and a port"},
		"tunnel to a path":     {func(*world) string { return "CONNECT /plain.example HTTP/1.1\r\nHost: plain.example:80\r\n\r\n" }, "403", "host and a port"},
		"rebinding":            {func(w *world) string { return "GET http://rebind.example:" + port(w) + "/ HTTP/1.1\r\nHost: x\r\n\r\n" }, "403", "127.0.0.7: the address is loopback"},
		"rebinding tunnel":     {func(w *world) string { return "CONNECT rebind.example:" + port(w) + " HTTP/1.1\r\nHost: x\r\n\r\n" }, "403", "127.0.0.7: the address is loopback"},
		"metadata by name":     {func(*world) string { return "GET http://meta.example/ HTTP/1.1\r\nHost: x\r\n\r\n" }, "403", "metadata service"},
		"unknown":              {func(*world) string { return "GET http://unknown.example/ HTTP/1.1\r\nHost: x\r\n\r\n" }, "502", ""},
		"unknown tunnel":       {func(*world) string { return "CONNECT unknown.example:80 HTTP/1.1\r\nHost: x\r\n\r\n" }, "502", ""},
		"nobody listens":       {func(*world) string { return "GET http://closed.example:1/ HTTP/1.1\r\nHost: x\r\n\r\n" }, "502", ""},
		"two hosts in one URL": {func(w *world) string {
			return "GET http://plain.example:" + port(w) + "\\@evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n"
		}, "400", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(w *world, e *policy.Egress, _ *config) {
				w.resolver.answers["rebind.example."] = [][]netip.Addr{addrs("127.0.0.5", "127.0.0.7")}
				w.resolver.answers["meta.example."] = [][]netip.Addr{addrs("169.254.169.254")}
				w.resolver.answers["closed.example."] = [][]netip.Addr{addrs("127.0.0.5")}
				e.Allow = append(e.Allow, "rebind.example:"+port(w), "meta.example", "169.254.0.0/16", "closed.example:1", "127.0.0.5:1", "web.example")
			})
			answer := w.raw(test.request(w))
			require.Contains(t, answer, "HTTP/1.1 "+test.status, answer)
			if test.status == "400" {
				require.Empty(t, w.entries()) // no request
				return
			}
			entry := w.last()
			if test.status == "403" {
				require.Equal(t, Refused, entry.Verdict)
				require.Contains(t, entry.Rule, test.rule)
				require.Contains(t, answer, "refused by the sandbox: ")
				require.Empty(t, w.dialled.addresses)
				require.EqualValues(t, 1, w.proxy.Stats().Refused)
			} else {
				require.Equal(t, Allowed, entry.Verdict)
				require.NotEmpty(t, entry.Error)
			}
			require.Empty(t, w.seen)
		})
	}
}

// A name may change what it stands for between two questions: there is only one.
func TestTheCheckedAddressIsDialled(t *testing.T) {
	w := newWorld(t, func(w *world, e *policy.Egress, _ *config) {
		w.resolver.answers["flip.example."] = [][]netip.Addr{addrs("127.0.0.5"), addrs("127.0.0.7")}
		e.Allow = append(e.Allow, "flip.example:"+strconv.Itoa(int(w.port)))
	})
	status, _ := w.get(fmt.Sprintf("http://flip.example:%d/", w.port))
	require.Equal(t, 200, status)
	status, body := w.get(fmt.Sprintf("http://flip.example:%d/", w.port))
	require.Equal(t, 403, status, body)
	require.Equal(t, []string{fmt.Sprintf("127.0.0.5:%d", w.port)}, w.dialled.addresses)
}

func TestHostsTable(t *testing.T) {
	w := newWorld(t, func(w *world, e *policy.Egress, cfg *config) {
		e.Allow = append(e.Allow, "*.mapped.example:"+strconv.Itoa(int(w.port)))
		cfg.Hosts = map[string][]netip.Addr{"a.mapped.example": addrs("127.0.0.5"), "b.mapped.example": addrs("127.0.0.8")}
	})
	status, _ := w.get(fmt.Sprintf("http://A.mapped.example.:%d/", w.port))
	require.Equal(t, 200, status)
	status, body := w.get(fmt.Sprintf("http://b.mapped.example:%d/", w.port))
	require.Equal(t, 403, status)
	require.Contains(t, body, "loopback", "the table permits nothing")
	require.Empty(t, w.resolver.asked)
}

func TestRegistryIsReadOnly(t *testing.T) {
	w := newWorld(t, func(_ *world, e *policy.Egress, _ *config) { e.Level = policy.Registry })
	status, _ := w.get(fmt.Sprintf("http://plain.example:%d/", w.port))
	require.Equal(t, 200, status)
	client := w.client()
	resp, err := client.Post(fmt.Sprintf("http://plain.example:%d/", w.port), "text/plain", strings.NewReader("secret"))
	require.NoError(t, err)
	defer resp.Body.Close()
	require.Equal(t, 403, resp.StatusCode)
	require.Contains(t, mustRead(resp.Body), "GET and HEAD")
	client.CloseIdleConnections()
	require.Len(t, w.seen, 1)
	for _, request := range []string{
		"GET http://plain.example:%d/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 6\r\n\r\nsecret\r\n\r\n",
		"HEAD http://plain.example:%d/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nsecret\r\n0\r\n\r\n",
	} {
		w := newWorld(t, func(_ *world, e *policy.Egress, _ *config) { e.Level = policy.Registry })
		require.Contains(t, w.raw(fmt.Sprintf(request, w.port)), "HTTP/1.1 403")
		require.Contains(t, w.last().Rule, "no body")
		require.Empty(t, w.seen)
	}
}

// The log has a host without its port, also one that is none.
func TestLoggedHosts(t *testing.T) {
	for target, want := range map[string]Entry{
		"0177.0.0.9:18080":     {Host: "0177.0.0.9", Port: 18080},
		"a@127.0.0.9:18080":    {Host: "127.0.0.9", Port: 18080},
		"a@127.0.0.9:0":        {Host: "127.0.0.9"},
		"[::ffff:127.0.0.9]:8": {Host: "127.0.0.9", Port: 8},
	} {
		w := newWorld(t, nil)
		w.raw("GET http://" + target + "/ HTTP/1.1\r\nHost: x\r\n\r\n")
		got := w.last()
		require.Equal(t, want, Entry{Host: got.Host, Port: got.Port}, target)
		require.Equal(t, Refused, got.Verdict)
	}
}

// connect opens a tunnel and returns it once it is granted.
func (w *world) connect(target string) net.Conn {
	w.t.Helper()
	conn, err := net.Dial("unix", w.socket)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { conn.Close() })
	require.NoError(w.t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	_, err = fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	require.NoError(w.t, err)
	answer := make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n"))
	_, err = io.ReadFull(conn, answer)
	require.NoError(w.t, err)
	require.Contains(w.t, string(answer), "200")
	return conn
}

// tlsWorld has a TLS server that tunnels to web.example:443 lead to.
func tlsWorld(t *testing.T) *world {
	t.Helper()
	return newWorld(t, func(w *world, e *policy.Egress, cfg *config) {
		cfg.Hosts = map[string][]netip.Addr{"example.com": addrs("127.0.0.6")}
		e.Allow = []string{"example.com", "127.0.0.6"}
		cfg.Dialer = redirectingDialer{fmt.Sprintf("127.0.0.6:%d", w.tlsPort)}
	})
}

// redirectingDialer stands in for servers on ports that only root may have.
type redirectingDialer struct{ to string }

func (d redirectingDialer) DialContext(ctx context.Context, network, _ string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, d.to)
}

func TestTunnelsHoldTLSOfTheirHost(t *testing.T) {
	hello := func(serverName string, change func(*tls.Config)) func(conn net.Conn) {
		return func(conn net.Conn) {
			cfg := &tls.Config{ServerName: serverName, InsecureSkipVerify: true}
			if change != nil {
				change(cfg)
			}
			_ = tls.Client(conn, cfg).Handshake()
		}
	}
	write := func(text string) func(conn net.Conn) {
		return func(conn net.Conn) {
			_, _ = io.WriteString(conn, text)
			_ = conn.(*net.UnixConn).CloseWrite()
			_, _ = io.Copy(io.Discard, conn)
		}
	}
	for name, test := range map[string]struct {
		target  string
		speak   func(conn net.Conn)
		verdict string
		rule    string
	}{
		"its name":         {"example.com:443", hello("example.com", nil), Allowed, "allowed by"},
		"capitals":         {"EXAMPLE.com.:443", hello("Example.COM", nil), Allowed, "allowed by"},
		"another name":     {"example.com:443", hello("evil.example", nil), Refused, `the TLS server name is "evil.example"`},
		"below":            {"example.com:443", hello("www.example.com", nil), Refused, `"www.example.com"`},
		"no name":          {"example.com:443", hello("", nil), Refused, "TLS without a server name"},
		"no name for IP":   {"127.0.0.6:443", hello("", nil), Allowed, "allowed by"},
		"name for IP":      {"127.0.0.6:443", hello("example.com", nil), Refused, `"example.com"`},
		"old TLS":          {"example.com:443", hello("evil.example", func(c *tls.Config) { c.MaxVersion = tls.VersionTLS12 }), Refused, `"evil.example"`},
		"HTTP in a tunnel": {"example.com:80", write("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"), Refused, "the tunnel holds no TLS"},
		"SSH in a tunnel":  {"example.com:443", write("SSH-2.0-x\r\n"), Refused, "the tunnel holds no TLS"},
		"half a hello":     {"example.com:443", write("\x16\x03\x01\x02\x00\x01\x00"), Refused, "the tunnel holds no TLS"},
		"nothing":          {"example.com:443", write(""), Allowed, "allowed by"},
	} {
		t.Run(name, func(t *testing.T) {
			w := tlsWorld(t)
			conn := w.connect(test.target)
			test.speak(conn)
			conn.Close()
			entry := w.last()
			require.Equal(t, test.verdict, entry.Verdict, entry.Rule)
			require.Contains(t, entry.Rule, test.rule)
			if test.verdict == Refused {
				require.Zero(t, entry.BytesUp, "nothing reached the host")
			}
		})
	}
}

// echHello is a hello whose server name is right, and which hides another one.
func TestEncryptedServerNamesAreRefused(t *testing.T) {
	require.ErrorContains(t, checkHello(&tls.ClientHelloInfo{ServerName: "example.com", Extensions: []uint16{0, extensionECH}}, "example.com", netip.Addr{}), "encrypted")
	require.ErrorContains(t, checkHello(&tls.ClientHelloInfo{ServerName: "example.com", Extensions: []uint16{extensionESNI}}, "example.com", netip.Addr{}), "encrypted")
	require.NoError(t, checkHello(&tls.ClientHelloInfo{ServerName: "example.com", Extensions: []uint16{0}}, "example.com", netip.Addr{}))
}

// A client need not wait for the answer before it speaks.
func TestEarlyHelloIsNotLost(t *testing.T) {
	w := tlsWorld(t)
	conn, err := net.Dial("unix", w.socket)
	require.NoError(t, err)
	defer conn.Close()
	client := &earlyConn{Conn: conn, before: "CONNECT example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n", skip: "HTTP/1.1 200 Connection established\r\n\r\n"}
	secure := tls.Client(client, &tls.Config{ServerName: "example.com", RootCAs: w.roots})
	require.NoError(t, secure.Handshake())
}

// earlyConn sends something together with the first bytes, and skips its answer.
type earlyConn struct {
	net.Conn
	before, skip string
}

func (c *earlyConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(append([]byte(c.before), b...))
	n -= len(c.before)
	c.before = ""
	return n, err
}

func (c *earlyConn) Read(b []byte) (int, error) {
	if c.skip != "" {
		if _, err := io.ReadFull(c.Conn, make([]byte, len(c.skip))); err != nil {
			return 0, err
		}
		c.skip = ""
	}
	return c.Conn.Read(b)
}

func TestRawTunnels(t *testing.T) {
	for name, serverFirst := range map[string]bool{"client first": false, "server first": true} {
		t.Run(name, func(t *testing.T) {
			listener := listen(t, "127.0.0.5:0")
			defer listener.Close()
			go func() {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				if serverFirst {
					_, _ = io.WriteString(conn, "welcome ")
				}
				_, _ = io.Copy(conn, conn)
			}()
			w := newWorld(t, func(_ *world, e *policy.Egress, cfg *config) {
				e.Allow = append(e.Allow, fmt.Sprintf("git.example:%d", portOf(listener)), fmt.Sprintf("127.0.0.5:%d", portOf(listener)))
				cfg.Hosts = map[string][]netip.Addr{"git.example": addrs("127.0.0.5")}
			})
			conn := w.connect(fmt.Sprintf("git.example:%d", portOf(listener)))
			want := "echo"
			if serverFirst {
				greeting := make([]byte, 8)
				_, err := io.ReadFull(conn, greeting)
				require.NoError(t, err)
				require.Equal(t, "welcome ", string(greeting))
			}
			_, err := io.WriteString(conn, want)
			require.NoError(t, err)
			require.NoError(t, conn.(*net.UnixConn).CloseWrite())
			require.Equal(t, want, mustRead(conn), "one direction may end before the other")
			entry := w.last()
			require.EqualValues(t, 4, entry.BytesUp)
		})
	}
}

// TLS is checked where anything else would pass, too.
func TestRawTunnelsCheckTLS(t *testing.T) {
	w := newWorld(t, nil) // names its ports
	conn := w.connect(fmt.Sprintf("example.com:%d", w.tlsPort))
	require.Error(t, tls.Client(conn, &tls.Config{ServerName: "evil.example", InsecureSkipVerify: true}).Handshake())
	require.Equal(t, Refused, w.last().Verdict)
}

func TestLimits(t *testing.T) {
	t.Run("requests", func(t *testing.T) {
		w := newWorld(t, func(_ *world, _ *policy.Egress, cfg *config) { cfg.Limits.Requests = 2 })
		for range 2 {
			status, _ := w.get(fmt.Sprintf("http://plain.example:%d/", w.port))
			require.Equal(t, 200, status)
		}
		status, body := w.get(fmt.Sprintf("http://plain.example:%d/", w.port))
		require.Equal(t, 403, status)
		require.Contains(t, body, "limit of requests")
	})
	t.Run("bytes of an answer", func(t *testing.T) {
		w := newWorld(t, func(_ *world, _ *policy.Egress, cfg *config) { cfg.Limits.Bytes = 200 << 10 })
		client := w.client()
		resp, err := client.Get(fmt.Sprintf("http://plain.example:%d/large", w.port))
		require.NoError(t, err)
		defer resp.Body.Close()
		n, err := io.Copy(io.Discard, resp.Body)
		require.Error(t, err, "a body that was cut must not look complete")
		require.Less(t, n, int64(400<<10))
		client.CloseIdleConnections()
		_, body := w.get(fmt.Sprintf("http://plain.example:%d/", w.port))
		require.Contains(t, body, "limit of bytes")
		entries := w.entries()
		require.Contains(t, entries[0].Error, "limit of bytes")
		require.Less(t, w.proxy.Stats().BytesDown, int64(300<<10))
	})
	t.Run("bytes of a tunnel", func(t *testing.T) {
		w := newWorld(t, func(_ *world, _ *policy.Egress, cfg *config) { cfg.Limits.Bytes = 200 << 10 })
		client := w.client()
		resp, err := client.Get(fmt.Sprintf("https://example.com:%d/large", w.tlsPort))
		require.NoError(t, err)
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		require.Error(t, err)
		client.CloseIdleConnections()
		require.Contains(t, w.last().Error, "limit of bytes")
	})
	t.Run("connections", func(t *testing.T) {
		w := newWorld(t, func(_ *world, _ *policy.Egress, cfg *config) { cfg.Limits.Connections = 2 })
		target := fmt.Sprintf("example.com:%d", w.tlsPort)
		one, _ := w.connect(target), w.connect(target)
		conn, err := net.Dial("unix", w.socket)
		require.NoError(t, err)
		defer conn.Close()
		require.Contains(t, mustRead(conn), "503")
		require.NoError(t, one.Close())
		require.Eventually(t, func() bool {
			w.proxy.mu.Lock()
			defer w.proxy.mu.Unlock()
			return w.proxy.clients == 1
		}, 10*time.Second, time.Millisecond)
		w.connect(target)
		require.Contains(t, w.entries()[0].Rule, "limit of connections")
	})
	t.Run("time", func(t *testing.T) {
		w := newWorld(t, func(_ *world, _ *policy.Egress, cfg *config) { cfg.Limits.ConnectionTime = 300 * time.Millisecond })
		conn := w.connect(fmt.Sprintf("example.com:%d", w.tlsPort))
		_, err := io.ReadAll(conn)
		require.NoError(t, err, "the proxy ends it")
		slow, err := net.Dial("unix", w.socket)
		require.NoError(t, err)
		defer slow.Close()
		_, err = io.WriteString(slow, "GET http://plain.example/ HTTP/1.1\r\nX: ") // and never ends
		require.NoError(t, err)
		_, err = io.ReadAll(slow)
		require.NoError(t, err)
	})
	t.Run("header", func(t *testing.T) {
		w := newWorld(t, nil)
		answer := w.raw("GET http://plain.example/ HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", maxHeader+8<<10) + "\r\n\r\n")
		require.Contains(t, answer, "431")
	})
	t.Run("log", func(t *testing.T) {
		w := newWorld(t, func(_ *world, _ *policy.Egress, cfg *config) { cfg.LogLimit = 700 })
		for range 5 {
			w.get("http://evil.example/")
		}
		entries := w.entries()
		require.LessOrEqual(t, w.log.Len(), 700)
		require.EqualValues(t, 5-len(entries), w.proxy.Stats().LogDropped)
		require.NotEmpty(t, entries)
		require.EqualValues(t, 5, w.proxy.Stats().Refused)
	})
	t.Run("log that fails", func(t *testing.T) {
		w := newWorld(t, func(_ *world, _ *policy.Egress, cfg *config) { cfg.Log = broken{} })
		w.get("http://evil.example/")
		require.EqualValues(t, 1, w.proxy.Close().LogDropped)
	})
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// What the program says is bytes, not lines of ours.
func TestLogEscapes(t *testing.T) {
	w := newWorld(t, nil)
	w.raw("GET http://evil.example\x1b[31m\"/ HTTP/1.1\r\nHost: x\r\n\r\n")
	w.raw("G\xc3\x28T http://evil.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
	w.raw("CONNECT " + strings.Repeat("a", 5000) + ":443 HTTP/1.1\r\nHost: x\r\n\r\n")
	w.proxy.Close()
	for line := range strings.Lines(w.log.String()) {
		require.True(t, json.Valid([]byte(line)), line)
		require.NotContains(t, line, "\x1b")
		require.Less(t, len(line), 2000)
	}
}

// Nothing goes on once the proxy is closed.
func TestCloseEndsEverything(t *testing.T) {
	blocked, release := make(chan struct{}, 1), make(chan struct{})
	server := serve(t, "127.0.0.5:0", false, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		blocked <- struct{}{}
		<-release
	}))
	defer close(release)
	w := newWorld(t, func(_ *world, e *policy.Egress, _ *config) {
		e.Allow = append(e.Allow, fmt.Sprintf("127.0.0.5:%d", portOf(server.Listener)))
	})
	tunnel := w.connect(fmt.Sprintf("example.com:%d", w.tlsPort))
	var failed atomic.Bool
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		resp, err := w.client().Get(server.URL)
		if err == nil {
			defer resp.Body.Close()
			_, err = io.ReadAll(resp.Body)
			failed.Store(err != nil || resp.StatusCode != 200)
			return
		}
		failed.Store(true)
	}()
	<-blocked
	w.proxy.Close()
	<-asked
	require.True(t, failed.Load())
	_, err := io.ReadAll(tunnel)
	require.NoError(t, err)
	_, err = net.Dial("unix", w.socket)
	require.Error(t, err)
	require.Len(t, w.entries(), 2, "what was cut is written down")
	require.Empty(t, w.proxy.conns)
}
