package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/images/lock"
)

// TestFilesOfAnEarlierVersion: the results file, the image lock and the gate directory that
// version b3bc8679 wrote are still read, as docs/guides/upgrade.md promises. The records of runs
// have a test of their own in sandbox/record.
func TestFilesOfAnEarlierVersion(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/earlier")))
	t.Setenv("SANDBOX_STATE_DIR", filepath.Join(dir, "state"))
	run := func(args ...string) string {
		var out, errs bytes.Buffer
		code := Run(t.Context(), args, cli.Streams{Out: &out, Err: &errs})
		require.Zero(t, code, errs.String())
		return out.String()
	}
	board := run("rank", filepath.Join(dir, "results.jsonl"), "--task", "../../examples/leaderboard/task.yaml", "--json")
	for _, name := range []string{"bayes", "crash", "tree"} {
		assert.Contains(t, board, `"name": "`+name+`"`)
	}
	assert.Contains(t, run("gate", "verify", filepath.Join(dir, "gate")), "PASS")

	text, err := os.ReadFile(filepath.Join(dir, "images.lock"))
	require.NoError(t, err)
	locked, err := lock.Parse(text, "images.lock")
	require.NoError(t, err)
	assert.Equal(t, []string{"debian"}, locked.Names())
}
