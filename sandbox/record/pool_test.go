package record_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
)

// TestAWaitingDirectoryBecomesARecord once, with what is in it.
func TestAWaitingDirectoryBecomesARecord(t *testing.T) {
	s, err := record.Open(t.TempDir())
	require.NoError(t, err)
	dir, err := s.Reserve("a")
	require.NoError(t, err)
	require.True(t, s.IsWaiting("a"))
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	held, err := os.Open(file)
	require.NoError(t, err)
	defer held.Close()

	_, err = s.Reserve("a")
	require.ErrorContains(t, err, "cannot be made")
	require.FileExists(t, file, "the one that has it keeps it")
	ids, err := s.IDs()
	require.NoError(t, err)
	require.Empty(t, ids, "it is no record")

	taken, err := s.Take("a")
	require.NoError(t, err)
	require.Equal(t, s.RecordDir("a"), taken)
	require.False(t, s.IsWaiting("a"))
	before, err := held.Stat()
	require.NoError(t, err)
	after, err := os.Stat(filepath.Join(taken, "file"))
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	entries, err := os.ReadDir(taken)
	require.NoError(t, err)
	require.Len(t, entries, 1, "the note of its owner is not part of a record")
	require.True(t, s.IsOpen("a"))
	note, err := s.Journal("a")
	require.NoError(t, err)
	require.Equal(t, owner.This().String(), note.Owner)
	orphans, err := s.Orphans()
	require.NoError(t, err)
	require.Empty(t, orphans)

	_, err = s.Take("a")
	require.ErrorContains(t, err, "cannot be made")
	require.FileExists(t, filepath.Join(taken, "file"))
	require.NoError(t, s.Unreserve("a"), "there is none any more")
	require.FileExists(t, filepath.Join(taken, "file"))
	require.NoError(t, s.Discard("a"))
	require.False(t, s.IsOpen("a"))
}

// TestARecordIsNotReplaced by a waiting directory of its name.
func TestARecordIsNotReplaced(t *testing.T) {
	s, err := record.Open(t.TempDir())
	require.NoError(t, err)
	dir, err := s.Create("a")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o600))
	_, err = s.Reserve("a")
	require.NoError(t, err)
	_, err = s.Take("a")
	require.Error(t, err)
	require.FileExists(t, filepath.Join(dir, "mine"))
	require.NoError(t, s.Unreserve("a"))
}

// TestAbandoned tells the directories of the dead from those of the living.
func TestAbandoned(t *testing.T) {
	s, err := record.Open(t.TempDir())
	require.NoError(t, err)
	dead, unseen, err := s.Abandoned()
	require.NoError(t, err)
	require.Empty(t, append(dead, unseen...))

	elsewhere := owner.This()
	elsewhere.Boot = "another"
	old := time.Now().Add(-time.Hour)
	for name, test := range map[string]struct {
		owner string
		old   bool
	}{
		"living":      {owner.This().String(), true},
		"dead":        {recordtest.DeadOwner().String(), false},
		"unseen":      {elsewhere.String(), true},
		"unseen, new": {elsewhere.String(), false},
		"empty":       {"", true},
		"empty, new":  {"", false},
		"none":        {"-", true},
		"none, new":   {"-", false},
		"nonsense":    {"nonsense", true},
	} {
		dir, err := s.Reserve(name)
		require.NoError(t, err)
		if test.owner == "-" {
			require.NoError(t, os.Remove(filepath.Join(dir, "owner")))
		} else {
			require.NoError(t, os.WriteFile(filepath.Join(dir, "owner"), []byte(test.owner), 0o600))
		}
		if test.old {
			require.NoError(t, os.Chtimes(dir, old, old))
		}
	}
	require.NoError(t, os.Mkdir(filepath.Join(s.PoolDir(), ".evalbox-probe-1"), 0o700))
	dead, unseen, err = s.Abandoned()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"dead", "empty", "none", "nonsense"}, dead)
	require.Equal(t, []string{"unseen"}, unseen)
}

// TestReserveWithoutAStateDirectory says what is wrong.
func TestReserveWithoutAStateDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	s, err := record.Open(dir)
	require.NoError(t, err)
	_, err = s.Reserve("a")
	require.Error(t, err)
	_, err = s.Take("a")
	require.ErrorContains(t, err, dir)
}
