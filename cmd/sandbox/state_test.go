package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
)

// TestStateDirectoryOfThisVersion: what the commands show of the state directory that
// sandbox.TestStateDirectory wrote.
func TestStateDirectoryOfThisVersion(t *testing.T) {
	store := recordtest.OpenCopy(t, "../../sandbox/record/testdata/state")
	t.Setenv("SANDBOX_STATE_DIR", store.Dir())
	shown := func(args ...string) string {
		var out, errs bytes.Buffer
		require.Zero(t, Run(t.Context(), args, cli.Streams{Out: &out, Err: &errs}), errs.String())
		return out.String()
	}
	got := shown("ls", "--json")
	for _, id := range []string{"finished", "failed", "timed_out", "running", "lost"} {
		got += shown("show", id)
	}
	got = strings.ReplaceAll(got, store.Dir(), "/state")
	got = regexp.MustCompile(`"size_bytes": \d+|\(\d+ KiB\)|created .*`).ReplaceAllStringFunc(got, func(ofThisMachine string) string {
		return regexp.MustCompile(`\d.*\d`).ReplaceAllString(ofThisMachine, "…")
	})
	treetest.Golden(t, "testdata/state.txt", got)

	written, err := os.ReadFile(filepath.Join(store.RecordDir("finished"), record.ResultFile))
	require.NoError(t, err)
	require.JSONEq(t, string(written), shown("show", "finished", "--json"))
}
