package cli

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/trial"
)

// scrape asks a server for a path, under the name of a host.
func scrape(t *testing.T, method, url, host string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	req.Host = host
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(body)
}

func TestServeMetrics(t *testing.T) {
	var said strings.Builder
	a := &App{Streams: Streams{Err: &said}}
	s, err := a.ServeMetrics(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	url, ok := strings.CutPrefix(strings.TrimSpace(said.String()), "sandbox: metrics at ")
	require.True(t, ok, said.String())

	s.Expect(5)
	s.Expect(3)
	s.Event(trial.Event{Kind: trial.EventStarted})
	code, body := scrape(t, http.MethodGet, url, "")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "\nevalbox_jobs_waiting 2\n")
	require.Contains(t, body, "\nevalbox_jobs_running 1\n")
	code, body = scrape(t, http.MethodHead, url, "localhost")
	require.Equal(t, http.StatusOK, code)
	require.Empty(t, body)
	code, _ = scrape(t, http.MethodPost, url, "")
	require.Equal(t, http.StatusMethodNotAllowed, code)
	code, _ = scrape(t, http.MethodGet, strings.TrimSuffix(url, "metrics"), "")
	require.Equal(t, http.StatusNotFound, code)
	code, _ = scrape(t, http.MethodGet, url, "evil.example")
	require.Equal(t, http.StatusForbidden, code, "a web page whose name leads here")

	s.Close()
	_, err = http.Get(url) //nolint:bodyclose // there is no answer
	require.Error(t, err)
	require.Equal(t, 1, strings.Count(said.String(), "\n"), said.String())
}

func TestNoMetricsWithoutAnAddress(t *testing.T) {
	s, err := (&App{}).ServeMetrics(t.Context(), "")
	require.NoError(t, err)
	require.Nil(t, s)
	require.Nil(t, s.Box(nil))
	s.Expect(1)
	s.Event(trial.Event{})
	s.Close()
}
