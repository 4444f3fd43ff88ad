// Package recordtest makes records for tests.
package recordtest

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Open opens an empty store in a directory of the test.
func Open(t testing.TB) *record.Store {
	t.Helper()
	store, err := record.Open(filepath.Join(t.TempDir(), "state"))
	require.NoError(t, err)
	return store
}

// OpenCopy opens a copy of a state directory.
func OpenCopy(t testing.TB, from string) *record.Store {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.CopyFS(dir, os.DirFS(from)))
	store, err := record.Open(dir)
	require.NoError(t, err)
	return store
}

// DeadOwner is a process of this boot that has ended: no process has its start time.
func DeadOwner() owner.Owner {
	o := owner.This()
	o.Start = "1"
	return o
}

// Add makes a record as a run does: its journal, and a result if it has finished. It
// returns the directory of the record.
func Add(t testing.TB, s *record.Store, id string, by owner.Owner, created time.Time, finished bool) string {
	t.Helper()
	dir, err := s.Create(id)
	require.NoError(t, err)
	require.NoError(t, record.WriteJSON(filepath.Join(dir, record.JournalFile), record.Journal{
		Schema: record.JournalSchema, ID: id, Owner: by.String(), Container: "evalbox-" + id, Created: created, Deadline: created.Add(time.Hour),
	}))
	require.NoError(t, record.WriteJSON(filepath.Join(dir, record.SpecFile), spec.Spec{Schema: spec.SchemaV1, Job: spec.Job{RunID: id}}))
	if finished {
		text, err := result.Result{ID: id, Status: result.StatusExited, Fault: result.FaultNone}.Encode()
		require.NoError(t, err)
		require.NoError(t, fsx.WriteFile(filepath.Join(dir, record.ResultFile), text, 0o600, true))
	}
	return dir
}

// Run is a whole record.
type Run struct {
	ID      string
	Owner   owner.Owner
	Created time.Time
	Job     spec.Job
	// Result is nil for a run that has none. Its outputs are made from Final.
	Result         *result.Result
	Stdout, Stderr string
	// Final has the contents of the files of ./final by their paths.
	Final map[string]string
}

// Write makes a whole record, and returns its directory.
func Write(t testing.TB, s *record.Store, r Run) string {
	t.Helper()
	dir := Add(t, s, r.ID, r.Owner, r.Created, false)
	r.Job.RunID = r.ID
	require.NoError(t, record.WriteJSON(filepath.Join(dir, record.SpecFile), spec.Spec{Schema: spec.SchemaV1, Job: r.Job}))
	for name, content := range map[string]string{record.StdoutFile: r.Stdout, record.StderrFile: r.Stderr} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	if r.Result == nil {
		return dir
	}
	res := *r.Result
	res.ID, res.Name, res.Labels, res.Outputs = r.ID, r.Job.Name, r.Job.Labels, nil
	for _, path := range slices.Sorted(maps.Keys(r.Final)) {
		file := filepath.Join(dir, record.OwnFinal, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(r.Final[path]), 0o600))
		res.Outputs = append(res.Outputs, result.Output{
			Path: path, SizeBytes: int64(len(r.Final[path])), SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(r.Final[path]))), Mode: "0600",
		})
	}
	text, err := res.Encode()
	require.NoError(t, err)
	require.NoError(t, fsx.WriteFile(filepath.Join(dir, record.ResultFile), text, 0o600, true))
	require.NoError(t, s.Settle(r.ID))
	return dir
}

// BegunBy makes another process the one that began a run, as it is known without a journal.
func BegunBy(t testing.TB, s *record.Store, id string, by owner.Owner) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir(), "open", id), []byte(by.String()), 0o600))
}
