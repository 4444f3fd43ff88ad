package mcp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

const secret = "0123456789abcdef0123"

// bearer adds the token to requests.
type bearer struct{}

func (bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+secret)
	return http.DefaultTransport.RoundTrip(r)
}

// web serves a world over HTTP.
func (w *world) web(t *testing.T) (url string) {
	t.Helper()
	site := httptest.NewServer(w.handler(secret))
	t.Cleanup(site.Close)
	return site.URL + endpoint
}

func (w *world) webClient(t *testing.T, url string) *sdk.ClientSession {
	t.Helper()
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test"}, nil).Connect(t.Context(),
		&sdk.StreamableClientTransport{Endpoint: url, HTTPClient: &http.Client{Transport: bearer{}}}, nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = session.Close() })
	return session
}

func TestHTTP(t *testing.T) {
	w := begin(t, prints("x"))
	url := w.web(t)
	require.Equal(t, "x", ask(t, w.webClient(t, url), "run_python", map[string]any{"code": "1"}).data["stdout"])

	for name, test := range map[string]struct {
		change func(r *http.Request)
		want   int
	}{
		"no token":       {func(r *http.Request) { r.Header.Del("Authorization") }, http.StatusUnauthorized},
		"wrong token":    {func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+secret+"x") }, http.StatusUnauthorized},
		"another scheme": {func(r *http.Request) { r.Header.Set("Authorization", "Basic "+secret) }, http.StatusUnauthorized},
		"another host":   {func(r *http.Request) { r.Host = "evil.example" }, http.StatusForbidden},
		"no name":        {func(r *http.Request) { r.Host = "127.0.0.1.evil.example:80" }, http.StatusForbidden},
		"another origin": {func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, http.StatusForbidden},
		"no origin":      {func(r *http.Request) { r.Header.Set("Origin", "null") }, http.StatusForbidden},
		"this machine":   {func(r *http.Request) { r.Header.Set("Origin", "http://localhost:1") }, http.StatusOK},
		"another path":   {func(r *http.Request) { r.URL.Path = "/" }, http.StatusNotFound},
		"too long":       {func(r *http.Request) { r.ContentLength = -1; r.Body = http.NoBody }, http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(hello))
			require.NoError(t, err)
			r.Header.Set("Authorization", "Bearer "+secret)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Accept", "application/json, text/event-stream")
			test.change(r)
			res, err := http.DefaultClient.Do(r)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, test.want, res.StatusCode)
		})
	}
}

// A client that closes its session ends the programs of its calls.
func TestSessionCloses(t *testing.T) {
	running := make(chan struct{}, 1)
	w := begin(t, untilTerm(running))
	url := w.web(t)
	session := w.webClient(t, url)
	go func() {
		_, _ = session.CallTool(context.WithoutCancel(t.Context()), &sdk.CallToolParams{Name: "run_python", Arguments: map[string]any{"code": "1"}})
	}()
	<-running
	r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, url, nil)
	require.NoError(t, err)
	r.Header.Set("Mcp-Session-Id", session.ID())
	res, err := bearer{}.RoundTrip(r)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, http.StatusNoContent, res.StatusCode)
	w.canceled(t)
	require.Empty(t, w.calls.ending)
}

// A client whose connection breaks does so, too: nobody would get the answer.
func TestConnectionBreaks(t *testing.T) {
	running := make(chan struct{}, 1)
	w := begin(t, untilTerm(running))
	url := w.web(t)
	session := w.webClient(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		const call = `{"jsonrpc":"2.0","id":77,"method":"tools/call","params":{"name":"run_python","arguments":{"code":"1"}}}`
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(call))
		if err != nil {
			return
		}
		r.Header.Set("Mcp-Session-Id", session.ID())
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set(postHeader, "1") // the server's own header cannot be forged
		if res, err := (bearer{}).RoundTrip(r); err == nil {
			_, _ = res.Body.Read(make([]byte, 1))
			_ = res.Body.Close()
		}
	}()
	<-running
	cancel()
	<-done
	w.canceled(t)
	require.False(t, ask(t, session, "list_runs", nil).isError, "the session goes on")
}

func TestToken(t *testing.T) {
	w := begin(t, nil)
	one, random, err := w.token()
	require.NoError(t, err)
	require.True(t, random)
	other, _, err := w.token()
	require.NoError(t, err)
	require.NotEqual(t, one, other)
	require.GreaterOrEqual(t, len(one), 20)

	dir := t.TempDir()
	for name, test := range map[string]struct {
		text string
		mode os.FileMode
		want string
	}{
		"good": {secret + "\n", 0o600, ""}, "open": {secret, 0o644, "others may use it (mode 0644)"},
		"short": {"abc", 0o600, "at least 16 characters"}, "words": {secret + " " + secret, 0o600, "one word"}, "empty": {"", 0o600, "one word"},
	} {
		w.tokenFile = filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(w.tokenFile, []byte(test.text), test.mode))
		token, random, err := w.token()
		require.False(t, random)
		if test.want == "" {
			require.NoError(t, err)
			require.Equal(t, secret, token)
			continue
		}
		require.ErrorContains(t, err, test.want)
	}
	w.tokenFile = filepath.Join(w.root, "token")
	require.NoError(t, os.WriteFile(w.tokenFile, []byte(secret), 0o600))
	_, _, err = w.token()
	require.ErrorContains(t, err, "lies in the root")
	w.tokenFile = filepath.Join(dir, "none")
	_, _, err = w.token()
	require.ErrorContains(t, err, "no such file")
}
