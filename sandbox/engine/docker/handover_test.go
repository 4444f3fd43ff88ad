package docker

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestSilenceIsNoRefusal: an init that did not answer in time, because its container was
// paused or its engine is stuck, may still run the program later. Only the end of the job
// decides.
func TestSilenceIsNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newInstance(newAdapter(nil, nil), "c1")
		c.workDir = "/"
		sent, stdin := io.Pipe()
		closed := make(chan struct{})
		c.line = c.engine.listen(&line{receiver: wire.NewReceiver(), stdin: stdin, close: sync.OnceValue(func() error {
			close(closed)
			return stdin.Close()
		})}, func(io.Writer, io.Writer) error {
			<-closed
			return net.ErrClosed
		})
		received := make(chan []byte)
		go func() {
			all, _ := io.ReadAll(sent) // until the line is cut
			received <- all
		}()
		job := spec.Job{Command: []string{"true"}, TimeoutSeconds: 1, Stdin: true}
		began := time.Now()
		err := c.Start(t.Context(), job, engine.Streams{Stdin: strings.NewReader("input")})
		require.ErrorIs(t, err, engine.ErrUnavailable)
		require.Equal(t, acceptPatience, time.Since(began))
		synctest.Wait()
		c.Disconnect()
		require.Contains(t, string(<-received), "input", "a program that starts later has its stdin")
		now, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = c.Wait(now)
		require.ErrorIs(t, err, context.Canceled, "its end can be waited for")
	})
}

// TestDisconnectedStreams: after Disconnect the caller may close the streams'
// destinations.
func TestDisconnectedStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newInstance(newAdapter(nil, nil), "c1")
		receiver := wire.NewReceiver()
		sink, to := io.Pipe() // a slow reader
		read, write := io.Pipe()
		c.line = c.engine.listen(&line{receiver: receiver, close: read.Close}, func(_, stderr io.Writer) error {
			_, err := io.Copy(stderr, read)
			return err
		})
		receiver.Begin(wire.NewNonce(), io.Discard, to)
		go func() { _, _ = write.Write([]byte("a last word")) }() // fails when the line is cut
		synctest.Wait()
		disconnected := make(chan struct{})
		go func() {
			c.Disconnect()
			close(disconnected)
		}()
		synctest.Wait()
		select {
		case <-disconnected:
			t.Error("the stream is still being written to")
		default:
		}
		require.NoError(t, sink.Close())
		<-disconnected
	})
}
