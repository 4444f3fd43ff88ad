package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
)

// TestListedStates checks every state that an engine reports for a container.
func TestListedStates(t *testing.T) {
	want := map[string]struct{ running, ended bool }{
		"created": {false, false}, "running": {true, false}, "paused": {true, false}, "restarting": {true, false},
		"removing": {false, false}, "exited": {false, true}, "dead": {false, true},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var listed []container.Summary
		for state := range want {
			listed = append(listed, container.Summary{ID: state, State: state})
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(listed); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	api, err := client.NewClientWithOpts(client.WithHost("tcp://"+server.Listener.Addr().String()), client.WithVersion(OldestAPI))
	require.NoError(t, err)
	containers, err := New(api).List(t.Context())
	require.NoError(t, err)
	require.Len(t, containers, len(want))
	for _, c := range containers {
		require.Equal(t, want[c.ID].running, c.Running, c.ID)
		require.Equal(t, want[c.ID].ended, c.Ended, c.ID)
	}
}

// TestACutConnectionIsALoss includes connections that the client has handed over.
func TestACutConnectionIsALoss(t *testing.T) {
	for _, err := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		require.ErrorIs(t, engineError(t.Context(), fmt.Errorf("reading: %w", err)), engine.ErrUnavailable)
	}
	refused := errors.New("it does not like it")
	require.Equal(t, refused, engineError(t.Context(), refused))
}
