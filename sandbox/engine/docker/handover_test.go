package docker

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestSilenceIsNoRefusal: an init that did not answer in time, because its container was
// paused or its engine stands still, may run the program later. Only its end tells.
func TestSilenceIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newInstance(newAdapter(nil, nil), "c1")
		c.workDir = "/"
		sent, stdin := io.Pipe()
		c.line = &line{receiver: wire.NewReceiver(), over: make(chan struct{}), close: stdin.Close, stdin: stdin}
		received := make(chan []byte)
		go func() {
			all, _ := io.ReadAll(sent) // what was sent until the line is cut
			received <- all
		}()
		job := spec.Job{Command: []string{"true"}, TimeoutSeconds: 1, Stdin: true}
		began := time.Now()
		err := c.Start(t.Context(), job, engine.Streams{Stdin: strings.NewReader("input")})
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.Equal(t, acceptPatience, time.Since(began))
		synctest.Wait()
		c.Disconnect()
		require.Contains(t, string(<-received), "input", "a program that begins later has its stdin")
		now, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = c.Wait(now)
		require.ErrorIs(t, err, context.Canceled, "its end can be waited for")
	})
}
