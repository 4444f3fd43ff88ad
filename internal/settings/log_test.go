//go:build unix

package settings

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
)

// TestLeftContainerIsLogged: nobody waits for a removal, so that its failure has no caller.
func TestLeftContainerIsLogged(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	daemon := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})}
	go func() { _ = daemon.Serve(listener) }() // until it is closed
	t.Cleanup(func() { require.NoError(t, daemon.Close()) })
	t.Setenv("DOCKER_HOST", "unix://"+socket)
	t.Setenv("DOCKER_CONTEXT", "")

	read, write := io.Pipe()
	log := slog.New(slog.NewTextHandler(write, nil))
	e, err := Settings{}.OpenEngine(log, nil)
	require.NoError(t, err)
	c, err := e.Open(t.Context(), engine.Ref{ID: "c1", Nonce: wire.NewNonce().String()}, engine.Streams{})
	require.NoError(t, err)
	require.NoError(t, c.Remove(t.Context()), "it was asked for")
	line := make([]byte, 1<<10)
	n, err := read.Read(line)
	require.NoError(t, err)
	require.Contains(t, string(line[:n]), "level=WARN msg=\"a container is left behind\" container=c1")
	require.NoError(t, e.Close())
}
