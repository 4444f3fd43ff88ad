package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	other := errors.New("container cannot be removed")
	require.Equal(t, other, Interrupted(ctx, other), "nobody interrupted")
	cause := SignalError{os.Interrupt}
	cancel(cause)
	require.EqualError(t, Interrupted(ctx, fmt.Errorf("asking: %w", cause)), "interrupted (Ctrl-C)")
	require.EqualError(t, Interrupted(ctx, fmt.Errorf("asking: %w", context.Canceled)), "interrupted (Ctrl-C)")
	require.EqualError(t, Interrupted(ctx, fmt.Errorf("%w: %w", errors.New("canceled before"), cause)), "interrupted (Ctrl-C)")
	require.EqualError(t, Interrupted(ctx, errors.Join(cause, other)), "interrupted (Ctrl-C)\ncontainer cannot be removed")
}

// The first signal asks, the second ends; a signal that comes no more ends the watch.
func TestHeed(t *testing.T) {
	for n, want := range []string{"", "interrupt", "interrupt twice"} {
		asked, got := make(chan os.Signal, 3), ""
		for range n {
			asked <- os.Interrupt
		}
		close(asked)
		heed(asked, func(s os.Signal) { got = s.String() }, func() { got += " twice" })
		require.Equal(t, want, got)
	}
}

func TestInterruption(t *testing.T) {
	for signal, want := range map[os.Signal]string{
		os.Interrupt: "interrupted (Ctrl-C)", syscall.SIGTERM: "interrupted (SIGTERM)", syscall.SIGHUP: "interrupted (SIGHUP)",
	} {
		require.EqualError(t, SignalError{signal}, want)
	}
}

func TestRunsInFlight(t *testing.T) {
	var r Runs
	require.True(t, r.none())
	end := r.Begin()
	require.False(t, r.none())
	end()
	require.True(t, r.none())
	(*Runs)(nil).Begin()()
}

// A read that nobody answers does not keep a command from being interrupted.
func TestInterruptibly(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	got, err := Interruptibly(ctx, func() (int, error) { return 3, io.EOF })
	require.Equal(t, 3, got)
	require.Equal(t, io.EOF, err)
	forever := make(chan int)
	defer close(forever)
	cancel(SignalError{os.Interrupt})
	_, err = Interruptibly(ctx, func() (int, error) { return <-forever, nil })
	require.Equal(t, SignalError{os.Interrupt}, err)
}

// What nohup, or a shell that starts us in the background, ignores stays ignored.
func TestHeeded(t *testing.T) {
	require.Equal(t, []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGHUP}, heeded(func(os.Signal) bool { return false }))
	require.Equal(t, []os.Signal{syscall.SIGTERM, os.Interrupt}, heeded(func(s os.Signal) bool { return s == syscall.SIGHUP }))
	require.Equal(t, []os.Signal{syscall.SIGTERM}, heeded(func(os.Signal) bool { return true }))
}
