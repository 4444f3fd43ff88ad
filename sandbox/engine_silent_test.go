//go:build linux

package sandbox_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
)

// Every call that changes nothing ends with its context, though the other end takes the connection and
// never says a word.
func TestCallsEndWithASilentEngine(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	asked := make(chan struct{}, 10)
	held := make(chan net.Conn, 10)
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				close(held)
				return
			}
			held <- conn
			go func() {
				if _, err := conn.Read(make([]byte, 1)); err == nil {
					asked <- struct{}{}
				}
			}()
		}
	}()
	t.Cleanup(func() {
		require.NoError(t, silent.Close())
		for conn := range held {
			_ = conn.Close()
		}
	})
	// A version that is given is not asked for.
	dockerEnv(t, "DOCKER_HOST=tcp://"+silent.Addr().String(), "DOCKER_API_VERSION=1.41")
	e, err := docker.FromEnv()
	require.NoError(t, err)
	gone := errors.New("the caller is gone")
	for name, call := range map[string]func(context.Context) error{
		"info":    func(ctx context.Context) error { _, err := e.Info(ctx); return err },
		"resolve": func(ctx context.Context) error { _, err := e.Resolve(ctx, "any"); return err },
		"list":    func(ctx context.Context) error { _, err := e.List(ctx); return err },
		"open": func(ctx context.Context) error {
			ref := engine.Ref{ID: "any", Nonce: strings.Repeat("00", 32)}
			_, err := e.Open(ctx, ref, engine.Streams{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- call(ctx) }()
			<-asked
			cancel(gone)
			require.ErrorIs(t, <-ended, context.Canceled)
		})
	}
	require.NoError(t, e.Close())
}
