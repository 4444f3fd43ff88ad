package dockerhost

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
)

// clientOf is a client of a server that answers so.
func clientOf(t *testing.T, handle http.HandlerFunc) *Client {
	t.Helper()
	server := httptest.NewServer(handle)
	t.Cleanup(server.Close)
	endpoint, err := find(Address{Host: strings.Replace(server.URL, "http://", "tcp://", 1)}, func(string) string { return "" }, "")
	require.NoError(t, err)
	api, err := endpoint.Client()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, api.Close()) })
	return api
}

// Podman is recognized in whatever it answers first.
func TestPodman(t *testing.T) {
	for _, header := range [][2]string{{"Server", "Libpod/5.2.0 (linux)"}, {"Libpod-API-Version", "4.3.1"}} {
		api := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(header[0], header[1])
			w.Header().Set("API-Version", "1.41")
			_, _ = fmt.Fprint(w, "{}")
		})
		_, err := api.Info(t.Context())
		problem := Explain(err)
		require.NotNil(t, problem, "%v", err)
		require.Equal(t, KindPodman, problem.Kind)
		require.ErrorIs(t, problem, engine.ErrUnavailable)
		require.NotContains(t, problem.Error(), "\n")
		require.Contains(t, problem.Hint(), "name a Docker Engine")
	}
	_, err := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Server", "Docker/28.5.2 (linux)")
		_, _ = fmt.Fprint(w, "{}")
	}).Info(t.Context())
	require.NoError(t, err)
}

// A message of any length becomes a bounded error, with a mark.
func TestLongMessages(t *testing.T) {
	api := clientOf(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_, _ = fmt.Fprintf(w, `{"message": "open %s: file name too long"}`, strings.Repeat("{}", 10_000))
	})
	_, err := api.ContainerCreate(t.Context(), &container.Config{}, nil, nil, nil, "")
	require.Less(t, len(err.Error()), 1200)
	require.Regexp(t, `open \{\}.*\[… \d+ bytes left out …\].*: file name too long$`, err.Error())
}
