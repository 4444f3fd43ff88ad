//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/invoke"
)

// TestEngineInvokeKeepsSignals: signals are ours until the artifacts were looked at, so that
// an interrupted verification ends with a result.
func TestEngineInvokeKeepsSignals(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	t.Setenv("SANDBOX_STATE_DIR", filepath.Join(dir, "state"))
	out, root := filepath.Join(dir, "out"), filepath.Join(dir, "root")
	require.NoError(t, errors.Join(os.Mkdir(out, 0o755), os.Mkdir(root, 0o755), os.Chmod(dir, 0o755)))
	tool := filepath.Join(root, "tool.sh")
	require.NoError(t, os.WriteFile(tool, []byte(`echo '{"run_id": "r", "timestamp": "t", "seed": 1, "artifacts": []}' > "$4/manifest.json"
echo '{"step": 1}' > "$4/trace_pack.jsonl"
`), 0o644))
	given := 0
	stdout := &bytes.Buffer{}
	code := Run(t.Context(), []string{"invoke", "--exec", "sh tool.sh", "--root", root, "--tool-config", tool, "--output", out, "--json"},
		cli.Streams{In: &bytes.Buffer{}, Out: stdout, Err: &bytes.Buffer{}, Runs: &cli.Runs{}, Ended: func() {
			given++
			require.NoError(t, os.Remove(filepath.Join(out, "manifest.json")), "it was looked at already")
		}})
	require.Zero(t, code, stdout)
	require.Equal(t, 1, given)
	var res invoke.Result
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &res))
	require.Equal(t, filepath.Join(out, "manifest.json"), res.ManifestPath)
	require.True(t, res.OK)
}
