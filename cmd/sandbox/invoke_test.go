//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/invoke"
)

const shellTool = `echo '{"run_id": "r", "timestamp": "t", "seed": 1, "artifacts": []}' > "$4/manifest.json"
echo '{"step": 1}' > "$4/trace_pack.jsonl"
`

// invokeOnHost calls a shell script with the flags that every call has.
func invokeOnHost(t *testing.T, ctx context.Context, script string, ended func(out string)) (code int, out string, stdout, stderr *bytes.Buffer) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("SANDBOX_STATE_DIR", filepath.Join(dir, "state"))
	out = filepath.Join(dir, "out")
	require.NoError(t, os.Mkdir(out, 0o755))
	tool := filepath.Join(dir, "tool.sh")
	require.NoError(t, os.WriteFile(tool, []byte(script), 0o600))
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	args := []string{"invoke", "--engine", "host", "--exec", "sh '" + tool + "'", "--config", tool, "--output", out, "--json"}
	code = Run(ctx, args, Streams{In: &bytes.Buffer{}, Out: stdout, Err: stderr, Ended: func() { ended(out) }})
	return code, out, stdout, stderr
}

// TestInvokeKeepsSignals: signals are ours until the artifacts were looked at, so that an
// interrupted verification ends with a result.
func TestInvokeKeepsSignals(t *testing.T) {
	given := 0
	code, _, stdout, _ := invokeOnHost(t, t.Context(), shellTool, func(out string) {
		given++
		require.NoError(t, os.Remove(filepath.Join(out, "manifest.json")), "it was looked at already")
	})
	require.Zero(t, code, stdout)
	require.Equal(t, 1, given)
}

// TestInvokedVerify: what is known of a call is not lost when its artifacts cannot be
// looked at.
func TestInvokedVerify(t *testing.T) {
	_, out, stdout, _ := invokeOnHost(t, t.Context(), shellTool, func(string) {})
	var res invoke.RunResult
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &res))
	require.Equal(t, filepath.Join(out, "manifest.json"), res.ManifestPath)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(interruption{Signal: syscall.SIGINT})
	told := invoke.NewCall(res, nil)
	err := told.Check(ctx, invoke.VerifyOptions{})
	require.ErrorAs(t, err, new(interruption))
	require.Equal(t, exitInterrupted, invokedCode(told, err))
	require.Equal(t, invoke.ReasonUnverified, told.Reason)
	require.Equal(t, "exited 0, but its artifacts were not verified: interrupted (Ctrl-C)", told.Error)
	require.Nil(t, told.Verification)
	require.Equal(t, res, told.RunResult)

	res.ManifestPath = filepath.Join(out, "none", "manifest.json")
	told = invoke.NewCall(res, nil)
	err = told.Check(t.Context(), invoke.VerifyOptions{})
	require.Equal(t, exitSandbox, invokedCode(told, err))
}
