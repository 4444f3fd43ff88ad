package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	other := errors.New("container cannot be removed")
	require.Equal(t, other, interrupted(ctx, other), "nobody interrupted")
	cause := interruption{os.Interrupt}
	cancel(cause)
	require.EqualError(t, interrupted(ctx, fmt.Errorf("asking: %w", cause)), "interrupted: interrupt")
	require.EqualError(t, interrupted(ctx, fmt.Errorf("asking: %w", context.Canceled)), "interrupted: interrupt")
	require.EqualError(t, interrupted(ctx, fmt.Errorf("%w: %w", errors.New("canceled before"), cause)), "interrupted: interrupt")
	require.EqualError(t, interrupted(ctx, errors.Join(cause, other)), "interrupted: interrupt\ncontainer cannot be removed")
}

// What nohup, or a shell that starts us in the background, ignores stays ignored.
func TestHeeded(t *testing.T) {
	require.Equal(t, []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGHUP}, heeded(func(os.Signal) bool { return false }))
	require.Equal(t, []os.Signal{syscall.SIGTERM, os.Interrupt}, heeded(func(s os.Signal) bool { return s == syscall.SIGHUP }))
	require.Equal(t, []os.Signal{syscall.SIGTERM}, heeded(func(os.Signal) bool { return true }))
}
