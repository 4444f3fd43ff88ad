package record_test

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
)

// TestVersionOfANewDirectory: many processes make a state directory at once, and others look into it.
// It has its version before it has a record, so nobody takes it for an older one.
func TestVersionOfANewDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	treetest.Write(t, dir, map[string]string{"trials/index.jsonl": "{}\n", "runs/a-plot/events": "x"})
	var all sync.WaitGroup
	for _, id := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		all.Go(func() {
			s, err := record.Open(dir)
			if !assert.NoError(t, err) {
				return
			}
			made, err := s.Create(id)
			assert.NoError(t, err)
			assert.NoError(t, record.WriteJSON(filepath.Join(made, record.JournalFile), record.Journal{Schema: record.JournalSchema, ID: id}))
			_, err = record.Open(dir)
			assert.NoError(t, err)
		})
	}
	all.Wait()
	text, err := os.ReadFile(filepath.Join(dir, record.StateFile))
	require.NoError(t, err)
	require.JSONEq(t, `{"schema": "evalbox/state/v1"}`, string(text))
}

// TestAnotherVersion: a state directory of another version is refused by all who open it, until what
// the error lists is deleted.
func TestAnotherVersion(t *testing.T) {
	tests := map[string]struct{ state, version, says string }{
		"older":   {"", "", "has records of an older sandbox, without a version"},
		"newer":   {`{"schema": "evalbox/state/v2", "more": []}`, "evalbox/state/v2", `has version "evalbox/state/v2"`},
		"damaged": {`{"schema": "evalb`, "", "its state.json is damaged and names no version"},
		"empty":   {"\n", "", "its state.json is damaged and names no version"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := recordtest.OpenCopy(t, "testdata/state")
			treetest.Write(t, s.Dir(), map[string]string{"trials/index.jsonl": "{}\n"})
			file := filepath.Join(s.Dir(), record.StateFile)
			require.NoError(t, os.Remove(file))
			if test.state != "" {
				require.NoError(t, os.WriteFile(file, []byte(test.state), 0o600))
			}
			_, err := record.Open(s.Dir())
			var other *record.VersionError
			require.ErrorAs(t, err, &other)
			require.Equal(t, []string{s.Dir(), test.version}, []string{other.Dir, other.Version})
			require.ErrorContains(t, err, s.Dir())
			require.ErrorContains(t, err, test.says)
			require.ErrorContains(t, err, "evalbox/state/v1")
			_, err = s.Create("new") // of a process that has it open
			require.ErrorAs(t, err, &other)
			require.NoDirExists(t, s.RecordDir("new"))

			for _, path := range other.Records {
				require.NoError(t, os.RemoveAll(path))
			}
			s, err = record.Open(s.Dir())
			require.NoError(t, err)
			_, err = s.Create("new")
			require.NoError(t, err)
			require.FileExists(t, filepath.Join(s.Dir(), "trials", "index.jsonl"))
		})
	}
}
