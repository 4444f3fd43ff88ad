package web

import (
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
)

const secret = "hunter2/with+odd=chars"

// serve starts a server, and returns its host and port.
func serve(t *testing.T, handler http.HandlerFunc) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// permit is the egress that reaches some hosts.
func permit(t *testing.T, hosts ...string) policy.Egress {
	t.Helper()
	return applied(t, policy.Egress{Level: policy.API, Allow: hosts})
}

func applied(t *testing.T, asked policy.Egress) policy.Egress {
	t.Helper()
	e, err := policy.Policy{AllowEgress: policy.Open, AllowPrivateEgress: true, Registries: []string{"pypi.org"}}.ApplyEgress(&asked)
	require.NoError(t, err)
	return *e
}

// call is a request for GET / at a host that is permitted.
func call(t *testing.T, host string) Request {
	t.Helper()
	return Request{
		API:       API{BaseURL: "http://" + host, Endpoints: map[string]string{"get": "GET /", "post": "POST /", "head": "HEAD /"}},
		AdapterID: "ADP-002", Operation: "get", Timeout: time.Minute, Egress: permit(t, host),
		LookupEnv: func(name string) (string, bool) {
			value, found := map[string]string{"ADP_002_TOKEN": secret, "ID": "client-id", "SECRET": secret}[name]
			return value, found
		},
	}
}

func do(t *testing.T, r Request) (*Response, error) {
	t.Helper()
	return new(Client).Do(t.Context(), r)
}

// requireRefused checks that a rule refused a call.
func requireRefused(t *testing.T, err error, rule string) {
	t.Helper()
	var no *RefusedError
	require.ErrorAs(t, err, &no)
	require.Contains(t, no.Rule, rule)
	require.NotEmpty(t, no.Host)
}

func TestDo(t *testing.T) {
	host := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		assertNoError(t, err)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Retry-After", "7")
		w.Header().Set("Set-Cookie", "a=b")
		w.WriteHeader(http.StatusTeapot)
		fmt.Fprintf(w, `{"method":%q,"path":%q,"body":%q,"type":%q,"agent":%q,"version":%q}`,
			r.Method, r.URL.RequestURI(), body, r.Header.Get("Content-Type"), r.UserAgent(), r.Header.Get("X-Version"))
	})
	r := call(t, host)
	r.API.BaseURL += "/v1/"
	r.API.Headers = map[string]string{"x-version": "2", "user-agent": "test"}
	r.API.Endpoints["put"] = "PUT /items/{id}"
	r.Operation, r.Parameters = "put", map[string]any{"id": "a/b", "n": 1}
	got, err := do(t, r)
	require.NoError(t, err)
	require.Equal(t, http.StatusTeapot, got.Status)
	require.JSONEq(t, `{"method":"PUT","path":"/v1/items/a%2Fb","body":"{\"n\":1}","type":"application/json","agent":"test","version":"2"}`, string(got.Body))
	require.Equal(t, http.Header{"Content-Type": {"application/json"}, "Retry-After": {"7"}}, got.Header)
	require.Equal(t, "application/json", got.ContentType)
	require.Equal(t, "http://"+host+"/v1/items/a%2Fb", got.URL)
	require.Equal(t, int64(len(got.Body)), got.BodyBytes)
	require.False(t, got.Truncated)
	require.Positive(t, got.Duration)
	require.Empty(t, got.Redirects)
}

func assertNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func TestDoSendsNothingThatIsWrong(t *testing.T) {
	host := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	for name, test := range map[string]struct {
		change func(*Request)
		as     any
	}{
		"document":  {func(r *Request) { r.API.Headers = map[string]string{"Authorization": secret} }, new(*InvalidError)},
		"operation": {func(r *Request) { r.Operation = "unknown" }, new(*OperationError)},
		"parameter": {func(r *Request) { r.Parameters = map[string]any{"a": map[string]any{}} }, new(*ParameterError)},
		"secret":    {func(r *Request) { r.API.AuthMethod, r.AdapterID = AuthBearer, "other" }, new(*SecretError)},
		"egress":    {func(r *Request) { r.Egress.Allow = []string{"a b"} }, new(*policy.FieldError)},
	} {
		t.Run(name, func(t *testing.T) {
			r := call(t, host)
			test.change(&r)
			got, err := do(t, r)
			require.Nil(t, got)
			require.ErrorAs(t, err, test.as)
			require.NotContains(t, err.Error(), "hunter2")
		})
	}
}

func TestEgress(t *testing.T) {
	host := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Host) })
	_, port, err := net.SplitHostPort(host)
	require.NoError(t, err)
	named := "api.example:" + port
	resolve := map[string][]netip.Addr{"api.example": {netip.MustParseAddr("127.0.0.1")}}
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")

	r := call(t, named)
	r.Egress = applied(t, policy.Egress{Level: policy.API, Allow: []string{named, host}, Resolve: resolve})
	got, err := do(t, r)
	require.NoError(t, err, "no proxy of the environment")
	require.Equal(t, named, string(got.Body))

	for name, test := range map[string]struct {
		egress policy.Egress
		want   string
	}{
		"offline":      {policy.Egress{}, "the level is offline"},
		"other host":   {permit(t, "other.example"), "no permitted host matches"},
		"other port":   {permit(t, "api.example"), "is not one of api.example"},
		"private name": {applied(t, policy.Egress{Level: policy.API, Allow: []string{named}, Resolve: resolve}), "127.0.0.1: the address is loopback"},
		"open":         {applied(t, policy.Egress{Level: policy.Open, Resolve: resolve}), "127.0.0.1: the address is loopback"},
		"denied":       {applied(t, policy.Egress{Level: policy.Open, Deny: []string{"*.example"}, Resolve: resolve}), "denied by *.example"},
	} {
		t.Run(name, func(t *testing.T) {
			r := call(t, named)
			r.Egress = test.egress
			_, err := do(t, r)
			requireRefused(t, err, test.want)
		})
	}
}

func TestRegistryLevelReadsOnly(t *testing.T) {
	host := serve(t, func(http.ResponseWriter, *http.Request) {})
	r := call(t, host)
	r.Egress = applied(t, policy.Egress{Level: policy.Registry, Allow: []string{host}})
	_, err := do(t, r)
	require.NoError(t, err)
	r.Operation = "post"
	_, err = do(t, r)
	requireRefused(t, err, "the level registry permits GET and HEAD")
}

func TestRedirects(t *testing.T) {
	var hops atomic.Int32
	other := serve(t, func(w http.ResponseWriter, r *http.Request) {
		for name := range r.Header {
			if strings.Contains(r.Header.Get(name), "hunter2") {
				t.Errorf("a secret was sent to another port: %s", name)
			}
		}
		fmt.Fprint(w, "other")
	})
	_, otherPort, err := net.SplitHostPort(other)
	require.NoError(t, err)
	var host string
	host = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization")+r.Header.Get("X-Api-Key") == "" {
			t.Error("no credentials")
		}
		switch to := r.URL.Query().Get("to"); to {
		case "":
			fmt.Fprint(w, "here")
		case "loop":
			hops.Add(1)
			http.Redirect(w, r, r.URL.String(), http.StatusFound)
		default:
			http.Redirect(w, r, strings.ReplaceAll(to, "HERE", host), http.StatusTemporaryRedirect)
		}
	})
	for _, method := range []string{AuthBearer, AuthAPIKey} {
		r := call(t, host)
		r.API.AuthMethod, r.Egress = method, permit(t, host, other, "other.example")
		to := func(target string) (*Response, error) {
			r.Parameters = map[string]any{"to": target}
			return do(t, r)
		}
		got, err := to("/")
		require.NoError(t, err)
		require.Equal(t, "here", string(got.Body))
		require.Equal(t, []string{"http://" + host + "/"}, got.Redirects)
		require.Equal(t, "http://"+host+"/", got.URL)

		got, err = to("http://" + other + "/?a=" + url.QueryEscape(secret))
		require.NoError(t, err, "another port that is permitted")
		require.Equal(t, "other", string(got.Body))
		require.Equal(t, "http://"+other+"/?a=[secret]", got.URL)
		require.Equal(t, []string{"http://" + other + "/?a=[secret]"}, got.Redirects)

		hops.Store(0)
		_, err = to("loop")
		requireRefused(t, err, "more than 5 redirects")
		require.EqualValues(t, 6, hops.Load(), "the first request and 5 redirects")

		for target, want := range map[string]string{
			"http://other.example/":           "a redirect to another host",
			"http://127.0.0.2:" + otherPort:   "a redirect to another host",
			"http://127.0.0.1:1/":             "port 1 is not one of 127.0.0.1:",
			"ftp://HERE/":                     "a scheme other than http and https",
			"http://user:pass@HERE/":          "a redirect with a user name",
			"http://127.1:" + otherPort + "/": "a redirect to another host",
		} {
			_, err := to(target)
			requireRefused(t, err, want)
		}
	}
}

func TestRedirectFromHTTPS(t *testing.T) {
	var target string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if target != "" {
			http.Redirect(w, r, target, http.StatusFound)
		}
	}))
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	t.Cleanup(server.Close)
	host := server.Listener.Addr().String()
	r := call(t, host)
	r.API.BaseURL = "https://" + host
	_, err := do(t, r)
	var unreachable *UnreachableError
	require.ErrorAs(t, err, &unreachable, "a certificate that is not known")
	require.ErrorContains(t, err, "certificate")

	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	client := &Client{Roots: roots}
	got, err := client.Do(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, got.Status)
	target = "http://" + host + "/"
	_, err = client.Do(t.Context(), r)
	requireRefused(t, err, "a redirect from https to http")
}

func TestSecretsAreHidden(t *testing.T) {
	host := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; a="+r.Header.Get("X-Mine"))
		text, err := json.Marshal(secret)
		assertNoError(t, err)
		fmt.Fprintf(w, "%s %s %s %s %s", r.Header.Get("X-Mine"), text, url.QueryEscape(secret), url.PathEscape(secret), base64.StdEncoding.EncodeToString([]byte(secret)))
	})
	r := call(t, host)
	r.API.AuthMethod, r.API.Auth.Header = AuthAPIKey, "X-Mine"
	r.Parameters = map[string]any{"a": secret}
	got, err := do(t, r)
	require.NoError(t, err)
	require.Equal(t, `[secret] "[secret]" [secret] [secret] [secret]`, strings.ReplaceAll(string(got.Body), "==", ""))
	require.Equal(t, "text/plain; a=[secret]", got.ContentType)
	require.Equal(t, "http://"+host+"/?a=[secret]", got.URL)
	require.NotContains(t, fmt.Sprintf("%+v", *got), "hunter2")

	r.MaxBody = int64(len(secret) - 5)
	got, err = do(t, r)
	require.NoError(t, err)
	require.True(t, got.Truncated)
	require.True(t, strings.HasPrefix(string(got.Body), "[secret]"), "cut within a secret: %s", got.Body)
	require.NotContains(t, string(got.Body), "hunter2")
}

func TestErrorsHideSecrets(t *testing.T) {
	host := raw(t, func(conn net.Conn) { fmt.Fprintf(conn, "HTTP/1.1 %s is not HTTP\r\n\r\n", secret) })
	r := call(t, host)
	r.API.AuthMethod = AuthBearer
	_, err := do(t, r)
	var broken *BrokenError
	require.ErrorAs(t, err, &broken)
	require.ErrorContains(t, err, "[secret]")
	require.NotContains(t, err.Error(), "hunter2")

	host = serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "http://"+r.Header.Get("X-Api-Key")+".evil.example/")
		w.WriteHeader(302)
	})
	r = call(t, host)
	r.API.AuthMethod = AuthAPIKey
	r.LookupEnv = func(string) (string, bool) { return "hunter2", true }
	_, err = do(t, r)
	requireRefused(t, err, "another host")
	require.EqualError(t, err, "[secret].evil.example, port 80: a redirect to another host")
}

// raw starts a server that reads the header of a request and answers with any bytes.
func raw(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	t.Cleanup(func() { assertNoError(t, listener.Close()); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer conn.Close()
				buffer := make([]byte, 4096)
				if _, err := conn.Read(buffer); err == nil {
					answer(conn)
				}
			})
		}
	})
	return listener.Addr().String()
}

func TestBroken(t *testing.T) {
	for name, answer := range map[string]string{
		"nothing":     "",
		"header":      "HTTP/1.1 200 OK\r\nContent-",
		"body":        "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
		"chunk":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhal",
		"gzip":        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nhalf",
		"encoding":    "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 4\r\n\r\nhalf",
		"large":       "HTTP/1.1 200 OK\r\nX-Large: " + strings.Repeat("x", 2<<20) + "\r\n\r\n",
		"no location": "HTTP/1.1 302 Found\r\nLocation: http://%zz/\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			got, err := do(t, call(t, raw(t, func(conn net.Conn) { _, _ = io.WriteString(conn, answer) })))
			require.Nil(t, got)
			var broken *BrokenError
			require.ErrorAs(t, err, &broken)
		})
	}
}

func TestUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	_, err = do(t, call(t, listener.Addr().String()))
	var unreachable *UnreachableError
	require.ErrorAs(t, err, &unreachable)
	require.ErrorContains(t, err, "connection refused")
}

func TestTimeout(t *testing.T) {
	for name, begin := range map[string]string{"header": "", "body": "half"} {
		t.Run(name, func(t *testing.T) {
			host := serve(t, func(w http.ResponseWriter, r *http.Request) {
				if begin != "" {
					_, _ = io.WriteString(w, begin)
					_ = http.NewResponseController(w).Flush()
				}
				<-r.Context().Done()
			})
			r := call(t, host)
			r.Timeout = 50 * time.Millisecond
			_, err := do(t, r)
			var late *TimeoutError
			require.ErrorAs(t, err, &late)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.True(t, late.Sent)
			require.GreaterOrEqual(t, late.After, r.Timeout)
		})
	}
}

func TestCanceled(t *testing.T) {
	arrived := make(chan struct{})
	host := serve(t, func(_ http.ResponseWriter, r *http.Request) { close(arrived); <-r.Context().Done() })
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the session ended")
	go func() { <-arrived; cancel(why) }()
	_, err := new(Client).Do(ctx, call(t, host))
	require.ErrorIs(t, err, why)
}

func TestMaxBody(t *testing.T) {
	host := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("plain") {
			w.Header().Set("Content-Length", "10")
		}
		fmt.Fprint(w, "0123456789")
	})
	r := call(t, host)
	for most, want := range map[int64]string{5: "01234", 9: "012345678", 10: "0123456789", 0: "0123456789"} {
		r.MaxBody = most
		got, err := do(t, r)
		require.NoError(t, err)
		require.Equal(t, want, string(got.Body))
		require.Equal(t, len(want) < 10, got.Truncated)
		require.Equal(t, int64(10), max(got.BodyBytes, 10))
	}
	r.Operation = "head"
	got, err := do(t, r)
	require.NoError(t, err)
	require.Empty(t, got.Body)
	require.False(t, got.Truncated)
}

// TestHugeBodies: a gigabyte, plain or compressed, takes no more memory than what is kept.
func TestHugeBodies(t *testing.T) {
	host := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var to io.Writer = w
		if r.URL.Query().Has("gzip") {
			w.Header().Set("Content-Encoding", "gzip")
			packed := gzip.NewWriter(w)
			defer packed.Close()
			to = packed
		} else {
			w.Header().Set("Content-Length", fmt.Sprint(1<<30))
		}
		zeros := make([]byte, 64<<10)
		for range 1 << 30 / len(zeros) {
			if _, err := to.Write(zeros); err != nil {
				return
			}
		}
	})
	r := call(t, host)
	r.MaxBody, r.API.AuthMethod = 1<<20, AuthBearer
	for name, parameters := range map[string]map[string]any{"plain": nil, "gzip": {"gzip": "1"}} {
		t.Run(name, func(t *testing.T) {
			r.Parameters = parameters
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got, err := do(t, r)
			runtime.ReadMemStats(&after)
			require.NoError(t, err)
			require.Len(t, got.Body, 1<<20)
			require.True(t, got.Truncated)
			require.Greater(t, got.BodyBytes, int64(1<<20))
			if parameters == nil {
				require.Equal(t, int64(1<<30), got.BodyBytes)
			}
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(64<<20), "of both sides")
		})
	}
}

func TestConcurrent(t *testing.T) {
	host := serve(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Query().Get("n")) })
	r := call(t, host)
	r.API.AuthMethod = AuthBearer
	client := &Client{}
	errs := make([]error, 100)
	var calls sync.WaitGroup
	for i := range errs {
		calls.Go(func() {
			r := r
			r.Parameters = map[string]any{"n": i}
			got, err := client.Do(t.Context(), r)
			if err == nil && string(got.Body) != fmt.Sprint(i) {
				err = fmt.Errorf("call %d: %s", i, got.Body)
			}
			errs[i] = err
		})
	}
	calls.Wait()
	require.NoError(t, errors.Join(errs...))
}
