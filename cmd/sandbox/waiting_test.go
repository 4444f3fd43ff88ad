package main

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/settings"
)

// An interrupted wait is one line: there is no program to end. It needs an engine
// with stand-ins for GPUs; another refuses at once.
func TestEngineInterruptedWhileWaiting(t *testing.T) {
	state := t.TempDir()
	t.Setenv("SANDBOX_STATE_DIR", state)
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(state, "xdg")) // not the lock of the user who runs the tests
	api, err := settings.Settings{}.Client()
	require.NoError(t, err)
	said, err := api.Info(t.Context())
	require.NoError(t, err)
	require.NoError(t, api.Close())
	args := []string{"run", "--gpus", "all", "--gpu-wait", "5m", "--gpu-driver", "cdi", "--", "true"}
	if len(said.DiscoveredDevices) == 0 {
		_, errs := runHere(t, cli.ExitSandbox, args...)
		require.Contains(t, errs, "CDI")
		return
	}
	// The holder's program goes on until its stdin ends.
	stdin, more := io.Pipe()
	stdout, printed := io.Pipe()
	code := make(chan int, 1)
	go func() {
		args := []string{"run", "-i", "--id", "holder", "--gpus", "device=2", "--", "cat"}
		code <- Run(context.Background(), args, cli.Streams{In: stdin, Out: printed, Err: io.Discard})
	}()
	_, err = io.WriteString(more, "held\n")
	require.NoError(t, err)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "held\n", line)

	ctx, cancel := context.WithCancelCause(t.Context())
	errsR, errsW := io.Pipe()
	lines := make(chan string, 10)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(errsR); scanner.Scan(); {
			lines <- scanner.Text()
			cancel(cli.SignalError{Signal: os.Interrupt})
		}
	}()
	require.Equal(t, cli.ExitInterrupted, Run(ctx, args, cli.Streams{Out: io.Discard, Err: errsW}))
	require.NoError(t, errsW.Close())
	require.Contains(t, <-lines, "sandbox: waiting up to 5m0s for GPUs: GPU 2 is held by run holder")
	require.Equal(t, "sandbox: interrupted (Ctrl-C)", <-lines)
	require.Empty(t, <-lines)
	require.NoError(t, more.Close())
	require.Zero(t, <-code)
}
