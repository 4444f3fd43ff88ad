//go:build linux

package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/spec"

	"github.com/evalbox/evalbox/internal/treetest"
)

// deadOwner is a process of this boot that is gone: its start time is not that
// of any process.
func deadOwner() owner.Owner {
	o := owner.This()
	o.Start = "1"
	return o
}

// addRecord makes a record as a run does: its journal, and its result if it has
// one.
func addRecord(t *testing.T, s *Store, id string, by owner.Owner, created time.Time, finished bool) string {
	t.Helper()
	dir, err := s.create(id)
	require.NoError(t, err)
	require.NoError(t, writeJSON(filepath.Join(dir, journalFile), journal{
		Schema: journalSchema, ID: id, Owner: by.String(), Container: "evalbox-" + id, Created: created,
	}))
	require.NoError(t, writeJSON(filepath.Join(dir, specFile), spec.Spec{Schema: spec.SchemaV1, Job: spec.Job{RunID: id}}))
	if finished {
		text, err := result.Result{ID: id, Status: result.StatusExited, Fault: result.FaultNone}.Encode()
		require.NoError(t, err)
		require.NoError(t, writeAtomically(filepath.Join(dir, resultFile), text, true))
	}
	return dir
}

var noon = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

func ids(records []Record) []string {
	list := []string{}
	for _, r := range records {
		list = append(list, r.ID)
	}
	return list
}

func TestStoreThatWasNeverUsed(t *testing.T) {
	s := openTestStore(t)
	records, err := s.List()
	require.NoError(t, err)
	require.Empty(t, records)
	_, err = s.Get("r1")
	require.ErrorIs(t, err, ErrNoRecord)
	require.ErrorIs(t, s.Remove("r1"), ErrNoRecord)
	require.NoDirExists(t, s.Dir(), "looking makes nothing")
}

func TestStoreDirIsAbsolute(t *testing.T) {
	t.Chdir(t.TempDir())
	s, err := OpenStore("state")
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(s.Dir()))
}

func TestDefaultStateDir(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	for set, want := range map[string]string{"/xdg": "/xdg/evalbox", "": "", "relative/is/ignored": ""} {
		t.Setenv("XDG_STATE_HOME", set)
		if want == "" {
			if want = "/home/me/.local/state/evalbox"; isRoot() {
				want = "/var/lib/evalbox"
			}
		}
		got, err := DefaultStateDir()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestListIsOldestFirst(t *testing.T) {
	s := openTestStore(t)
	addRecord(t, s, "newest", deadOwner(), noon.Add(2*time.Hour), true)
	addRecord(t, s, "same-b", deadOwner(), noon, true)
	addRecord(t, s, "same-a", deadOwner(), noon, false)
	addRecord(t, s, "middle", deadOwner(), noon.Add(time.Hour), true)
	records, err := s.List()
	require.NoError(t, err)
	require.Equal(t, []string{"same-a", "same-b", "middle", "newest"}, ids(records))
	require.Equal(t, noon, records[0].Created)
	require.Equal(t, "same-a", records[0].Spec.Job.RunID)
	require.Equal(t, filepath.Join(s.Dir(), "runs", "same-a", "stdout.log"), records[0].StdoutPath())
	require.Equal(t, filepath.Join(s.Dir(), "runs", "same-a", "stderr.log"), records[0].StderrPath())
}

func TestStatesOfARecord(t *testing.T) {
	s := openTestStore(t)
	elsewhere := owner.This()
	elsewhere.Boot = "another machine"
	for id, c := range map[string]struct {
		by       owner.Owner
		finished bool
		want     RecordState
	}{
		"alive":             {owner.This(), false, RecordRunning},
		"alive-finished":    {owner.This(), true, RecordFinished},
		"dead":              {deadOwner(), false, RecordLost},
		"dead-finished":     {deadOwner(), true, RecordFinished},
		"elsewhere":         {elsewhere, false, RecordLost},
		"elsewhere-is-done": {elsewhere, true, RecordFinished},
	} {
		addRecord(t, s, id, c.by, noon, c.finished)
		record, err := s.Get(id)
		require.NoError(t, err)
		require.Equal(t, c.want, record.State, id)
		require.Equal(t, c.finished, record.Result != nil, id)
	}
}

func TestGetByPrefix(t *testing.T) {
	s := openTestStore(t)
	for _, id := range []string{"abc", "abcd", "abce", "x1", "y"} {
		addRecord(t, s, id, deadOwner(), noon, true)
	}
	for id, want := range map[string]string{"abc": "abc", "abcd": "abcd", "x": "x1", "x1": "x1", "y": "y"} {
		record, err := s.Get(id)
		require.NoError(t, err, id)
		require.Equal(t, want, record.ID, id)
	}
	for _, id := range []string{"ab", "a", "z", "x12"} {
		_, err := s.Get(id)
		require.Error(t, err, id)
		require.Error(t, s.Remove(id), id)
	}
	_, err := s.Get("ab")
	require.ErrorContains(t, err, "3 runs begin so")
}

func TestNamesThatAreNoIDs(t *testing.T) {
	s := openTestStore(t)
	addRecord(t, s, "r1", deadOwner(), noon, true)
	treetest.Write(t, s.Dir(), map[string]string{"precious": "x"})
	for _, id := range []string{"", ".", "..", "../precious", "r1/../..", "/", "r1/", "-r", "r1\n"} {
		var rule *policy.FieldError
		_, err := s.Get(id)
		require.ErrorAs(t, err, &rule, "%q", id)
		require.ErrorAs(t, s.Remove(id), &rule, "%q", id)
	}
	require.FileExists(t, filepath.Join(s.Dir(), "precious"))
	require.DirExists(t, filepath.Join(s.runsDir(), "r1"))
}

func TestCreateTakesAnIDOnce(t *testing.T) {
	s := openTestStore(t)
	var made, refused int
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			_, err := s.create("r1")
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made++
				return
			}
			if rule, ok := err.(*policy.FieldError); ok && rule.Field == "id" { //nolint:errorlint // returned bare
				refused++
			}
		})
	}
	all.Wait()
	require.Equal(t, []int{1, 19}, []int{made, refused})
}

func TestRemove(t *testing.T) {
	s := openTestStore(t)
	outside := t.TempDir()
	treetest.Write(t, outside, map[string]string{"canary": "x"})
	dir := addRecord(t, s, "r1", deadOwner(), noon, true)
	treetest.Write(t, dir, map[string]string{"final/a/b": "x"})
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "final/link")))
	addRecord(t, s, "lost", deadOwner(), noon, false)
	running := addRecord(t, s, "running", owner.This(), noon, false)

	require.NoError(t, s.Remove("r1"))
	require.NoError(t, s.Remove("los"), "by its beginning too")
	require.ErrorIs(t, s.Remove("running"), ErrRunning)
	require.FileExists(t, filepath.Join(running, journalFile))
	require.FileExists(t, filepath.Join(outside, "canary"))
	records, err := s.List()
	require.NoError(t, err)
	require.Equal(t, []string{"running"}, ids(records))
}

func TestDamagedRecordsAreNamedAndTheOthersListed(t *testing.T) {
	s := openTestStore(t)
	addRecord(t, s, "good", deadOwner(), noon, true)
	damage := map[string]struct{ file, text string }{
		"bad-journal":   {journalFile, "{"},
		"empty-journal": {journalFile, ""},
		"bad-spec":      {specFile, "[]"},
		"bad-result":    {resultFile, "not json"},
		"empty-result":  {resultFile, ""},
		"foreign":       {resultFile, `{"schema":"evalbox/result/v99"}`},
		"no-status":     {resultFile, fmt.Sprintf(`{"schema":%q}`, result.SchemaV1)},
	}
	for id, d := range damage {
		dir := addRecord(t, s, id, deadOwner(), noon, true)
		require.NoError(t, os.WriteFile(filepath.Join(dir, d.file), []byte(d.text), 0o600))
	}
	treetest.Write(t, s.runsDir(), map[string]string{"a file that is no record": "x"})
	records, err := s.List()
	require.Equal(t, []string{"good"}, ids(records))
	require.Equal(t, len(damage), strings.Count(err.Error(), "record "), "%v", err)
	for id := range damage {
		require.ErrorContains(t, err, "record "+id+":")
		_, getErr := s.Get(id)
		require.ErrorContains(t, getErr, "record "+id+":")
	}
	for id := range damage {
		require.NoError(t, s.Remove(id), "what nobody can read can still be deleted")
	}
	_, err = s.List()
	require.NoError(t, err)
}

// What a crash leaves at each step of making a record is listed as lost, and can
// be removed.
func TestRecordsOfACrash(t *testing.T) {
	s := openTestStore(t)
	_, err := s.create("only-a-folder")
	require.NoError(t, err)
	dir, err := s.create("half-a-journal")
	require.NoError(t, err)
	treetest.Write(t, dir, map[string]string{".journal.json-123": `{"schema`})
	dir, err = s.create("no-spec")
	require.NoError(t, err)
	require.NoError(t, writeJSON(filepath.Join(dir, journalFile), journal{Schema: journalSchema, ID: "no-spec", Owner: deadOwner().String(), Created: noon}))
	dir = addRecord(t, s, "half-a-result", deadOwner(), noon, false)
	treetest.Write(t, dir, map[string]string{".result.json-456": `{"schema":`, reserveFile: "", stdoutFile: "x"})

	records, err := s.List()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"only-a-folder", "half-a-journal", "no-spec", "half-a-result"}, ids(records))
	for _, r := range records {
		require.Equal(t, RecordLost, r.State, r.ID)
		require.Nil(t, r.Result, r.ID)
		require.False(t, r.Created.IsZero(), r.ID)
		require.NoError(t, s.Remove(r.ID))
	}
	require.Empty(t, everything(t, s.runsDir()))
}

func TestOnlyTheOwnerMayLook(t *testing.T) {
	s := openTestStore(t)
	dir := addRecord(t, s, "r1", deadOwner(), noon, true)
	for _, path := range []string{s.Dir(), s.runsDir(), s.locksDir(), dir} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), path)
	}
	for _, name := range []string{journalFile, specFile, resultFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
	}
	lock, err := lockFinal(s, "/some/final")
	require.NoError(t, err)
	defer lock.release()
	info, err := os.Stat(lock.held[0].Path())
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestWriteAtomically(t *testing.T) {
	for _, durable := range []bool{false, true} {
		dir := t.TempDir()
		path := filepath.Join(dir, "file")
		require.NoError(t, writeAtomically(path, []byte("one"), durable))
		before := inodeOf(t, path)
		reader, err := os.Open(path)
		require.NoError(t, err)
		defer reader.Close()
		require.NoError(t, writeAtomically(path, []byte("two"), durable))
		require.NotEqual(t, before, inodeOf(t, path), "a new file, never the old one rewritten")
		old := make([]byte, 3)
		_, err = reader.Read(old)
		require.NoError(t, err)
		require.Equal(t, "one", string(old), "whoever reads meanwhile reads all of the old text")
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "two", string(text))
		require.Equal(t, []string{"file"}, everything(t, dir), "no temporary file is left")

		require.Error(t, writeAtomically(filepath.Join(dir, "no", "file"), nil, durable))
		treetest.Write(t, dir, map[string]string{"folder/x": ""})
		require.Error(t, writeAtomically(filepath.Join(dir, "folder"), []byte("x"), durable))
		require.Equal(t, []string{"file", "folder", "folder/x"}, everything(t, dir), "not after a failure either")
	}
}

func TestStateFolderThatCannotBeMade(t *testing.T) {
	base := t.TempDir()
	treetest.Write(t, base, map[string]string{"file": "x"})
	s, err := OpenStore(filepath.Join(base, "file", "state"))
	require.NoError(t, err)
	_, err = s.create("r1")
	var broken *PathError
	require.ErrorAs(t, err, &broken)
	require.Equal(t, "state folder", broken.Field)
}
