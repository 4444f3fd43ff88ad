package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
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

// fakeDaemon serves requests on a socket.
func fakeDaemon(t *testing.T, handle http.HandlerFunc) *adapter {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	listener, err := new(net.ListenConfig).Listen(t.Context(), "unix", socket)
	require.NoError(t, err)
	server := &http.Server{Handler: handle, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }() // until the listener is closed
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	api, err := client.NewClientWithOpts(client.WithHost("unix://"+socket), client.WithVersion(OldestAPI))
	require.NoError(t, err)
	return newAdapter(api, nil)
}

// TestRemovalIsCertainOnceItIsWritten: nobody has to wait for the engine's answer.
func TestRemovalIsCertainOnceItIsWritten(t *testing.T) {
	asked, answer := make(chan string, 1), make(chan struct{})
	e := fakeDaemon(t, func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.URL.String()
		<-answer
		w.WriteHeader(http.StatusNoContent)
	})
	require.NoError(t, e.removeSoon(t.Context(), "c1"))
	require.NoError(t, e.Close(), "every removal is certain")
	require.Equal(t, "DELETE /v1.41/containers/c1?force=1&v=1", <-asked)
	close(answer)
}

// TestRemovalsDoNotWaitForEachOther: the second caller may have less time than the first one.
func TestRemovalsDoNotWaitForEachOther(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	var calls atomic.Int32
	api, err := client.NewClientWithOpts(client.WithVersion(OldestAPI), client.WithHost("tcp://engine.example:1"), client.WithHTTPClient(&http.Client{
		Transport: transport(func(*http.Request) (*http.Response, error) {
			if calls.Add(1) == 1 {
				close(asked)
				<-answer
			}
			return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
		})}))
	require.NoError(t, err)
	c := newInstance(newAdapter(api, nil), "c1", wire.Nonce{})
	c.line = c.engine.listen(&line{receiver: wire.NewReceiver(), close: func() error { return nil }}, func(_, _ io.Writer) error { return nil })
	removed := make(chan error, 2)
	remove := func() { removed <- c.Remove(t.Context()) }
	go remove()
	<-asked
	go remove()
	select {
	case err := <-removed:
		require.NoError(t, err)
	case <-time.After(10 * time.Second):
		t.Error("the second removal waits for the first one")
	}
	close(answer)
	require.NoError(t, <-removed)
}

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// TestRemovalIsRepeated: the engine may fail at first, and no caller is waiting to retry.
func TestRemovalIsRepeated(t *testing.T) {
	var asked atomic.Int32
	gone := make(chan struct{})
	e := fakeDaemon(t, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		w.WriteHeader(http.StatusNoContent)
		close(gone)
	})
	require.NoError(t, e.removeSoon(t.Context(), "c1"))
	<-gone
}

// TestRemovalThatCannotBeAskedFor: without a connection the removal is not certain.
func TestRemovalThatCannotBeAskedFor(t *testing.T) {
	api, err := client.NewClientWithOpts(client.WithHost("unix://"+filepath.Join(t.TempDir(), "nobody")), client.WithVersion(OldestAPI))
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the caller has gone"))
	require.True(t, isLoss(newAdapter(api, nil).removeSoon(ctx, "c1")))
}

// TestSignalEndsWithItsContext: repeating a request that hangs must not accumulate
// requests.
func TestSignalEndsWithItsContext(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	e := fakeDaemon(t, func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-answer
	})
	defer close(answer)
	ctx, cancel := context.WithCancel(t.Context())
	sent := make(chan error, 1)
	go func() { sent <- newInstance(e, "c1", wire.Nonce{}).Signal(ctx, engine.Stop) }()
	<-asked
	cancel()
	select {
	case err := <-sent:
		require.ErrorIs(t, err, context.Canceled)
	case <-time.After(callTimeout / 3):
		t.Error("it goes on without its caller")
	}
}
