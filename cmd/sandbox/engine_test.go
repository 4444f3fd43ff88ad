package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
)

// While one run goes on, with the engine: another may not have its ./final, its
// record stays, its container is not swept, and its log can be followed.
func TestEngineWhileRunning(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("SANDBOX_STATE_DIR", filepath.Join(dir, "state"))
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "xdg")) // not the lock of the user who runs the tests

	// The program goes on until its stdin ends.
	stdin, more := io.Pipe()
	stdout, printed := io.Pipe()
	code := make(chan int, 1)
	go func() {
		args := []string{"run", "-i", "--id", "first", "--final", "out", "--timeout", "60s", "--",
			"sh", "-c", "echo one; cat > final/kept; echo two"}
		code <- Run(context.Background(), args, cli.Streams{In: stdin, Out: printed, Err: io.Discard})
		printed.Close()
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "one\n", line)
	go io.Copy(io.Discard, stdout)

	out, errs := runHere(t, cli.ExitSandbox, "run", "--final", "out", "--", "true")
	require.Empty(t, out)
	require.Contains(t, errs, "in use by another run")
	require.Contains(t, errs, "sandbox: hint: see what runs with: sandbox ps")
	_, errs = runHere(t, cli.ExitSandbox, "rm", "first")
	require.Contains(t, errs, "run first: is not over")
	require.Contains(t, errs, "sandbox: hint: stop it with: sandbox stop first")
	out, _ = runHere(t, 0, "ps", "--json")
	require.Contains(t, out, `"run_id": "first"`)
	out, _ = runHere(t, 0, "gc", "--kept", "--dry-run", "--json") // other tests keep containers, too
	require.Contains(t, out, "evalbox-first")
	require.Contains(t, out, "its owner, process")
	out, _ = runHere(t, 0, "ls", "--json")
	require.Contains(t, out, `"state": "running"`)
	out, _ = runHere(t, 0, "show", "first")
	require.Contains(t, out, "running")
	_, errs = runHere(t, cli.ExitSandbox, "show", "first", "--json")
	require.Contains(t, errs, "run first: has no result: it is running")

	followed, begun := io.Pipe()
	followCode := make(chan int, 1)
	go func() {
		followCode <- Run(context.Background(), []string{"logs", "--follow", "first"}, cli.Streams{Out: begun, Err: io.Discard})
		begun.Close()
	}()
	log := bufio.NewReader(followed)
	line, err = log.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "one\n", line)

	_, err = io.WriteString(more, "kept")
	require.NoError(t, err)
	require.NoError(t, more.Close())
	rest, err := io.ReadAll(log)
	require.NoError(t, err)
	require.Equal(t, "two\n", string(rest))
	require.Zero(t, <-followCode)
	require.Zero(t, <-code)
	require.FileExists(t, filepath.Join(dir, "out", "kept"))
	runHere(t, 0, "rm", "first")
}

// A context that ended before anything began runs nothing and leaves nothing.
func TestCanceledBefore(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("SANDBOX_STATE_DIR", filepath.Join(dir, "state"))
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "xdg")) // not the lock of the user who runs the tests
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cli.SignalError{Signal: os.Interrupt})
	var errs strings.Builder
	require.Equal(t, cli.ExitInterrupted, Run(ctx, []string{"run", "--", "true"}, cli.Streams{Out: io.Discard, Err: &errs}))
	require.Equal(t, "sandbox: interrupted (Ctrl-C)\n", errs.String())
	out, _ := runHere(t, 0, "ls", "--json")
	require.Contains(t, out, `"runs": []`)
}

// runHere runs one command line in this process.
func runHere(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code := Run(t.Context(), args, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &errs})
	require.Equal(t, want, code, "sandbox %s: %s%s", strings.Join(args, " "), out.String(), errs.String())
	return out.String(), errs.String()
}
