// Package recordtest makes records for tests.
package recordtest

import (
	"os"
	"path/filepath"
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
		Schema: record.JournalSchema, ID: id, Owner: by.String(), Container: "evalbox-" + id, Created: created,
	}))
	require.NoError(t, record.WriteJSON(filepath.Join(dir, record.SpecFile), spec.Spec{Schema: spec.SchemaV1, Job: spec.Job{RunID: id}}))
	if finished {
		text, err := result.Result{ID: id, Status: result.StatusExited, Fault: result.FaultNone}.Encode()
		require.NoError(t, err)
		require.NoError(t, fsx.WriteFile(filepath.Join(dir, record.ResultFile), text, 0o600, true))
	}
	return dir
}

// BegunBy makes another process the one that began a run, as it is known without a journal.
func BegunBy(t testing.TB, s *record.Store, id string, by owner.Owner) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir(), "open", id), []byte(by.String()), 0o600))
}
