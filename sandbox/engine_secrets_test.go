//go:build linux

package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestEngineSecretsAreNowhereElse: a program has its secret; the engine's description of the
// container, command lines of processes, the engine's copy of the output, the record, the
// result and the log do not.
func TestEngineSecretsAreNowhereElse(t *testing.T) {
	const planted = "planted-0815-secret"
	t.Setenv("PLANTED_KEY", planted)
	api := testAPI(t)
	state := filepath.Join(t.TempDir(), "state")
	var log bytes.Buffer
	r := newRunner(t, sandbox.WithStateDir(state), sandbox.WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	req := python(t, `
import hashlib, os, sys
print(hashlib.sha256(os.environ["PLANTED_KEY"].encode()).hexdigest(), flush=True)
sys.stdin.read()`)
	req.ID, req.Secrets = "secret-"+filepath.Base(t.TempDir()), []sandbox.Secret{{Name: "PLANTED_KEY"}}

	stdin, end := io.Pipe()
	output, stdout := io.Pipe()
	defer end.Close()
	var res *result.Result
	done := make(chan error, 1)
	go func() {
		var err error
		res, err = r.Run(t.Context(), req, sandbox.IO{Stdin: stdin, Stdout: stdout})
		stdout.Close()
		done <- err
	}()
	lines := bufio.NewScanner(output)
	require.True(t, lines.Scan())
	require.Equal(t, fmt.Sprintf("%x", sha256.Sum256([]byte(planted))), lines.Text(), "the program has it")

	name := spec.Job{RunID: req.ID}.ContainerName()
	_, described, err := api.ContainerInspectWithRaw(t.Context(), name, true)
	require.NoError(t, err)
	require.Contains(t, string(described), req.ID)
	require.NotContains(t, string(described), planted)
	// The line may be in the log a moment after it is here.
	logs, err := api.ContainerLogs(t.Context(), name, container.LogsOptions{ShowStdout: true, ShowStderr: true, Follow: true})
	require.NoError(t, err)
	copied := bufio.NewScanner(logs)
	for copied.Scan() && !strings.Contains(copied.Text(), lines.Text()) {
		require.NotContains(t, copied.Text(), planted)
	}
	require.Contains(t, copied.Text(), lines.Text(), "%v", copied.Err())
	require.NoError(t, logs.Close())
	commands, err := filepath.Glob("/proc/[0-9]*/cmdline")
	require.NoError(t, err)
	require.NotEmpty(t, commands)
	for _, file := range commands {
		text, err := os.ReadFile(file)
		if err == nil { // else the process is gone
			require.NotContains(t, string(text), planted, file)
		}
	}

	require.NoError(t, end.Close())
	go io.Copy(io.Discard, output) // until the stream ends
	require.NoError(t, <-done)
	text, err := res.Encode()
	require.NoError(t, err)
	require.NotContains(t, string(text), planted)
	plan, err := r.Plan(context.WithoutCancel(t.Context()), req)
	require.NoError(t, err)
	require.NotContains(t, fmt.Sprintf("%+v", plan), planted)
	require.NotContains(t, log.String(), planted)
	require.NotEmpty(t, log.String())
	files := 0
	require.NoError(t, filepath.Walk(state, func(path string, info os.FileInfo, err error) error {
		require.NoError(t, err)
		if info.Mode().IsRegular() {
			files++
			text, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NotContains(t, string(text), planted, path)
		}
		return nil
	}))
	require.Greater(t, files, 3)
}
