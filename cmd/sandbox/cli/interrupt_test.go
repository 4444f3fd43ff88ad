package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

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

// TestHeed: the first request asks, the second ends, and after it each signal ends this process.
// Signals within a second are one request: supervisors signal a process and then its group.
func TestHeed(t *testing.T) {
	const never = -1
	for name, c := range map[string]struct {
		signals  []time.Duration
		released time.Duration
		want     []string
	}{
		"none": {nil, 3 * time.Second, []string{"over 3s"}},
		"one":  {[]time.Duration{time.Second}, 3 * time.Second, []string{"interrupt 1s", "over 3s"}},
		"process and group": {[]time.Duration{time.Second, time.Second + time.Millisecond}, 10 * time.Second,
			[]string{"interrupt 1s", "over 10s"}},
		"many within a second": {[]time.Duration{0, 100 * time.Millisecond, 500 * time.Millisecond, 999 * time.Millisecond}, 10 * time.Second,
			[]string{"interrupt 0s", "over 10s"}},
		"twice": {[]time.Duration{0, 1001 * time.Millisecond}, never,
			[]string{"interrupt 0s", "twice 1.001s", "over 2.001s"}},
		"process and group, twice": {[]time.Duration{0, time.Millisecond, 5 * time.Second, 5*time.Second + time.Millisecond}, never,
			[]string{"interrupt 0s", "twice 5s", "over 6s"}},
		"the run ends between process and group": {[]time.Duration{0, 2 * time.Millisecond}, time.Millisecond,
			[]string{"interrupt 0s", "over 1s"}},
		"the run ends after the kill": {[]time.Duration{0, 2 * time.Second, 2*time.Second + 2*time.Millisecond}, 2*time.Second + time.Millisecond,
			[]string{"interrupt 0s", "twice 2s", "over 3s"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				asked, released, began := make(chan os.Signal, 2), make(chan struct{}), time.Now()
				for _, at := range c.signals {
					time.AfterFunc(at, func() { asked <- os.Interrupt })
				}
				if c.released != never {
					time.AfterFunc(c.released, func() { close(released) })
				}
				var got []string
				note := func(what string) { got = append(got, fmt.Sprint(what, " ", time.Since(began))) }
				heed(asked, released, func(s os.Signal) { note(s.String()) }, func() { note("twice") }, func() { note("over") })
				require.Equal(t, c.want, got)
				synctest.Wait()
				require.Empty(t, asked, "a signal that nobody takes is lost")
			})
		})
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
