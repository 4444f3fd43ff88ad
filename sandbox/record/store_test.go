//go:build linux

package record_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
	"github.com/evalbox/evalbox/sandbox/spec"

	"github.com/evalbox/evalbox/internal/treetest"
)

var noon = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

func ids(records []record.Record) []string {
	list := []string{}
	for _, r := range records {
		list = append(list, r.ID)
	}
	return list
}

func TestStoreThatWasNeverUsed(t *testing.T) {
	s := recordtest.Open(t)
	records, err := s.List()
	require.NoError(t, err)
	require.Empty(t, records)
	_, err = s.Get("r1")
	require.ErrorIs(t, err, record.ErrNoRecord)
	require.ErrorIs(t, s.Remove("r1"), record.ErrNoRecord)
	require.NoDirExists(t, s.Dir(), "looking makes nothing")
}

func TestStoreDirIsAbsolute(t *testing.T) {
	t.Chdir(t.TempDir())
	s, err := record.Open("state")
	require.NoError(t, err)
	require.True(t, filepath.IsAbs(s.Dir()))
}

func TestDefaultStateDir(t *testing.T) {
	t.Setenv("HOME", "/home/me")
	for set, want := range map[string]string{"/xdg": "/xdg/evalbox", "": "", "relative/is/ignored": ""} {
		t.Setenv("XDG_STATE_HOME", set)
		if want == "" {
			if want = "/home/me/.local/state/evalbox"; treetest.IsRoot() {
				want = "/var/lib/evalbox"
			}
		}
		got, err := record.DefaultDir()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

func TestListIsOldestFirst(t *testing.T) {
	s := recordtest.Open(t)
	recordtest.Add(t, s, "newest", recordtest.DeadOwner(), noon.Add(2*time.Hour), true)
	recordtest.Add(t, s, "same-b", recordtest.DeadOwner(), noon, true)
	recordtest.Add(t, s, "same-a", recordtest.DeadOwner(), noon, false)
	recordtest.Add(t, s, "middle", recordtest.DeadOwner(), noon.Add(time.Hour), true)
	records, err := s.List()
	require.NoError(t, err)
	require.Equal(t, []string{"same-a", "same-b", "middle", "newest"}, ids(records))
	require.Equal(t, noon, records[0].Created)
	require.Equal(t, "same-a", records[0].Spec.Job.RunID)
	require.Equal(t, filepath.Join(s.Dir(), "runs", "same-a", "stdout.log"), records[0].StdoutPath())
	require.Equal(t, filepath.Join(s.Dir(), "runs", "same-a", "stderr.log"), records[0].StderrPath())
}

func TestStatesOfARecord(t *testing.T) {
	s := recordtest.Open(t)
	elsewhere := owner.This()
	elsewhere.Boot = "another machine"
	for id, c := range map[string]struct {
		by       owner.Owner
		finished bool
		want     record.State
	}{
		"alive":             {owner.This(), false, record.Running},
		"alive-finished":    {owner.This(), true, record.Finished},
		"dead":              {recordtest.DeadOwner(), false, record.Lost},
		"dead-finished":     {recordtest.DeadOwner(), true, record.Finished},
		"elsewhere":         {elsewhere, false, record.Lost},
		"elsewhere-is-done": {elsewhere, true, record.Finished},
	} {
		recordtest.Add(t, s, id, c.by, noon, c.finished)
		kept, err := s.Get(id)
		require.NoError(t, err)
		require.Equal(t, c.want, kept.State, id)
		require.Equal(t, c.finished, kept.Result != nil, id)
	}
}

func TestGetByPrefix(t *testing.T) {
	s := recordtest.Open(t)
	for _, id := range []string{"abc", "abcd", "abce", "x1", "y"} {
		recordtest.Add(t, s, id, recordtest.DeadOwner(), noon, true)
	}
	for id, want := range map[string]string{"abc": "abc", "abcd": "abcd", "x": "x1", "x1": "x1", "y": "y"} {
		kept, err := s.Get(id)
		require.NoError(t, err, id)
		require.Equal(t, want, kept.ID, id)
	}
	for _, id := range []string{"ab", "a", "z", "x12"} {
		_, err := s.Get(id)
		require.Error(t, err, id)
		require.Error(t, s.Remove(id), id)
	}
	_, err := s.Get("ab")
	require.ErrorContains(t, err, "matches 3 runs")
	require.ErrorContains(t, err, "exited", "of each match, how it ended")
}

func TestNamesThatAreNoIDs(t *testing.T) {
	s := recordtest.Open(t)
	recordtest.Add(t, s, "r1", recordtest.DeadOwner(), noon, true)
	treetest.Write(t, s.Dir(), map[string]string{"precious": "x"})
	for _, id := range []string{"", ".", "..", "../precious", "r1/../..", "/", "r1/", "-r", "r1\n"} {
		var rule *policy.FieldError
		_, err := s.Get(id)
		require.ErrorAs(t, err, &rule, "%q", id)
		require.ErrorAs(t, s.Remove(id), &rule, "%q", id)
	}
	require.FileExists(t, filepath.Join(s.Dir(), "precious"))
	require.DirExists(t, filepath.Join(s.RunsDir(), "r1"))
}

func TestCreateTakesAnIDOnce(t *testing.T) {
	s := recordtest.Open(t)
	var made, refused int
	var mu sync.Mutex
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			_, err := s.Create("r1")
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
	s := recordtest.Open(t)
	outside := t.TempDir()
	treetest.Write(t, outside, map[string]string{"canary": "x"})
	dir := recordtest.Add(t, s, "r1", recordtest.DeadOwner(), noon, true)
	treetest.Write(t, dir, map[string]string{"final/a/b": "x"})
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "final/link")))
	recordtest.Add(t, s, "lost", recordtest.DeadOwner(), noon, false)
	running := recordtest.Add(t, s, "running", owner.This(), noon, false)

	require.NoError(t, s.Remove("r1"))
	require.NoError(t, s.Remove("los"), "by its beginning too")
	require.ErrorIs(t, s.Remove("running"), record.ErrRunning)
	require.FileExists(t, filepath.Join(running, record.JournalFile))
	require.FileExists(t, filepath.Join(outside, "canary"))
	records, err := s.List()
	require.NoError(t, err)
	require.Equal(t, []string{"running"}, ids(records))
}

// TestDamagedRecordsAreListed: a damaged file is a state of its record, never an error of the others.
// Only files that a live process may still replace, and the plan and the journal of a run that has its
// result, make no record unreadable.
func TestDamagedRecordsAreListed(t *testing.T) {
	s := recordtest.Open(t)
	recordtest.Add(t, s, "good", recordtest.DeadOwner(), noon, true)
	want := map[string]record.State{"good": record.Finished}
	damage := func(id, file, text string, by owner.Owner, finished bool, state record.State) {
		t.Helper()
		dir := recordtest.Add(t, s, id, by, noon, finished)
		recordtest.BegunBy(t, s, id, by)
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
		want[id] = state
	}
	for i, text := range []string{"", "{", "{}", "null", "\x00\x00\x00", `{"schema":"evalbox/other/v1"}`, "not json"} {
		for _, file := range []string{record.JournalFile, record.SpecFile} {
			damage(fmt.Sprintf("lost-%s-%d", file, i), file, text, recordtest.DeadOwner(), false, record.Unreadable)
			damage(fmt.Sprintf("alive-%s-%d", file, i), file, text, owner.This(), false, record.Running)
			damage(fmt.Sprintf("over-%s-%d", file, i), file, text, recordtest.DeadOwner(), true, record.Finished)
		}
		damage(fmt.Sprintf("result-%d", i), record.ResultFile, text, recordtest.DeadOwner(), true, record.Unreadable)
	}
	damage("no-status", record.ResultFile, fmt.Sprintf(`{"schema":%q}`, result.SchemaV1), recordtest.DeadOwner(), true, record.Unreadable)
	dir := recordtest.Add(t, s, "no-spec", recordtest.DeadOwner(), noon, false)
	require.NoError(t, os.Remove(filepath.Join(dir, record.SpecFile)))
	want["no-spec"] = record.Unreadable
	treetest.Write(t, s.RunsDir(), map[string]string{"a file that is no record": "x"})

	for name, list := range map[string]func() ([]record.Record, error){"whole": s.List, "brief": s.ListBrief} {
		records, err := list()
		require.NoError(t, err, name)
		got := map[string]record.State{}
		for _, r := range records {
			got[r.ID] = r.State
			require.Equal(t, r.State == record.Finished, r.Result != nil, r.ID)
			if r.ID == "good" {
				require.NoError(t, r.Damage)
				continue
			}
			require.ErrorIs(t, r.Damage, record.ErrUnreadable, r.ID)
			require.ErrorContains(t, r.Damage, "run "+r.ID+": its ")
			require.False(t, r.Created.IsZero(), r.ID)
		}
		require.Equal(t, want, got, name)
	}
	for id, state := range want {
		got, err := s.State(id)
		require.NoError(t, err)
		require.Equal(t, state, got, id)
		if state == record.Running {
			require.ErrorIs(t, s.Remove(id), record.ErrRunning, id)
			continue
		}
		require.NoError(t, s.Remove(id), "an unreadable record can still be deleted: %s", id)
	}
}

// TestOrphansWithDamagedRecords: they are orphans as others are, and hide none.
func TestOrphansWithDamagedRecords(t *testing.T) {
	s := recordtest.Open(t)
	recordtest.Add(t, s, "lost", recordtest.DeadOwner(), noon, false)
	for id, by := range map[string]owner.Owner{"damaged": recordtest.DeadOwner(), "alive": owner.This()} {
		dir := recordtest.Add(t, s, id, by, noon, false)
		recordtest.BegunBy(t, s, id, by)
		require.NoError(t, os.WriteFile(filepath.Join(dir, record.JournalFile), nil, 0o600))
	}
	orphans, err := s.Orphans()
	require.NoError(t, err)
	require.Equal(t, []string{"damaged", "lost"}, orphans)
	_, err = s.Claim(t.Context(), "damaged", noon)
	require.ErrorIs(t, err, record.ErrUnreadable)
	require.NoError(t, s.Disclaim(t.Context(), "damaged", noon), "nobody owns it")
}

// TestUnreadableFilesAreAnError: a file that the system does not let this process read is not damaged.
func TestUnreadableFilesAreAnError(t *testing.T) {
	s := recordtest.Open(t)
	recordtest.Add(t, s, "good", recordtest.DeadOwner(), noon, true)
	for _, file := range []string{record.JournalFile, record.SpecFile, record.ResultFile} {
		dir := recordtest.Add(t, s, file, recordtest.DeadOwner(), noon, true)
		require.NoError(t, os.Remove(filepath.Join(dir, file)))
		require.NoError(t, os.Mkdir(filepath.Join(dir, file), 0o700))
		_, err := s.Get(file)
		require.ErrorContains(t, err, "record "+file+": ")
		require.NotErrorIs(t, err, record.ErrUnreadable)
	}
	records, err := s.List()
	require.Equal(t, []string{"good"}, ids(records))
	require.Equal(t, 3, strings.Count(err.Error(), "record "), "%v", err)
}

// TestClaimWaitsForTheLockOnly as long as its caller does.
func TestClaimWaitsForTheLockOnly(t *testing.T) {
	s := recordtest.Open(t)
	lock, err := fsx.LockWait(t.Context(), recordtest.Add(t, s, "lost", recordtest.DeadOwner(), noon, false))
	require.NoError(t, err)
	gaveUp := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gaveUp)
	_, err = s.Claim(ctx, "lost", noon)
	require.ErrorIs(t, err, gaveUp)
	require.NoError(t, lock.Close())
	_, err = s.Claim(t.Context(), "lost", noon)
	require.NoError(t, err)
}

// What a crash leaves at each step of making a record is listed as lost, and can
// be removed.
// TestCreateBesideALookForOrphans loses no run: the look deletes what has no record.
func TestCreateBesideALookForOrphans(t *testing.T) {
	s := recordtest.Open(t)
	created := make(chan struct{})
	var look sync.WaitGroup
	look.Go(func() {
		for {
			select {
			case <-created:
				return
			default:
				orphans, err := s.Orphans()
				assert.NoError(t, err)
				assert.Empty(t, orphans)
			}
		}
	})
	for n := range 500 {
		id := fmt.Sprintf("r%d", n)
		_, err := s.Create(id)
		require.NoError(t, err)
		require.True(t, s.IsOpen(id))
	}
	close(created)
	look.Wait()
}

func TestRecordsOfACrash(t *testing.T) {
	s := recordtest.Open(t)
	_, err := s.Create("only-a-folder")
	require.NoError(t, err)
	dir, err := s.Create("half-a-journal")
	require.NoError(t, err)
	treetest.Write(t, dir, map[string]string{".journal.json-123": `{"schema`})
	for _, id := range []string{"only-a-folder", "half-a-journal"} {
		recordtest.BegunBy(t, s, id, recordtest.DeadOwner())
	}
	dir, err = s.Create("no-spec")
	require.NoError(t, err)
	require.NoError(t, record.WriteJSON(filepath.Join(dir, record.JournalFile), record.Journal{Schema: record.JournalSchema, ID: "no-spec", Owner: recordtest.DeadOwner().String(), Created: noon}))
	dir = recordtest.Add(t, s, "half-a-result", recordtest.DeadOwner(), noon, false)
	treetest.Write(t, dir, map[string]string{".result.json-456": `{"schema":`, record.ReserveFile: "", record.StdoutFile: "x"})

	records, err := s.List()
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"only-a-folder", "half-a-journal", "no-spec", "half-a-result"}, ids(records))
	for _, r := range records {
		require.Equal(t, record.Lost, r.State, r.ID)
		require.Nil(t, r.Result, r.ID)
		require.False(t, r.Created.IsZero(), r.ID)
		require.NoError(t, s.Remove(r.ID))
	}
	require.Empty(t, treetest.Everything(t, s.RunsDir()))
}

func TestOnlyTheOwnerMayLook(t *testing.T) {
	s := recordtest.Open(t)
	dir := recordtest.Add(t, s, "r1", recordtest.DeadOwner(), noon, true)
	for _, path := range []string{s.Dir(), s.RunsDir(), s.LocksDir(), dir} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), path)
	}
	for _, name := range []string{record.JournalFile, record.SpecFile, record.ResultFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), info.Mode().Perm(), name)
	}
}

func TestStateFolderThatCannotBeMade(t *testing.T) {
	base := t.TempDir()
	treetest.Write(t, base, map[string]string{"file": "x"})
	s, err := record.Open(filepath.Join(base, "file", "state"))
	require.NoError(t, err)
	_, err = s.Create("r1")
	var broken *spec.PathError
	require.ErrorAs(t, err, &broken)
	require.Equal(t, "state directory", broken.Field)
}

// TestStateDirectoryOfThisVersion: the state directory that sandbox.TestStateDirectory wrote is read
// on any machine.
func TestStateDirectoryOfThisVersion(t *testing.T) {
	s := recordtest.OpenCopy(t, "testdata/state")
	records, err := s.List()
	require.NoError(t, err)
	states := map[string]record.State{}
	for _, r := range records {
		states[r.ID] = r.State
		require.Equal(t, "run-"+r.ID, r.Spec.Job.Name)
		require.Equal(t, "/srv/example/train.py", r.Spec.Job.Script)
	}
	require.Equal(t, map[string]record.State{
		"finished": record.Finished, "failed": record.Finished, "timed_out": record.Finished, "running": record.Running, "lost": record.Lost,
	}, states)

	finished, err := s.Get("finished")
	require.NoError(t, err)
	require.InDelta(t, 0.75, *finished.Result.Score, 0)
	require.Len(t, finished.Result.Outputs, 2)
	timedOut, err := s.Get("timed_out")
	require.NoError(t, err)
	require.Equal(t, result.StatusTimedOut, timedOut.Result.Status)
	journal, err := s.Journal("lost")
	require.NoError(t, err)
	require.Equal(t, "evalbox-lost", journal.Container)
	orphans, err := s.Orphans()
	require.NoError(t, err)
	require.Equal(t, []string{"lost"}, orphans)
	require.NoError(t, s.Remove("finished"))
	require.ErrorIs(t, s.Remove("running"), record.ErrRunning)
}

// TestScriptIsNamedAsItsUserDoes: the run used a copy of the script, under another name.
func TestScriptIsNamedAsItsUserDoes(t *testing.T) {
	s := recordtest.Open(t)
	recordtest.Write(t, s, recordtest.Run{ID: "r1", Owner: owner.This(), Job: spec.Job{Command: []string{"python3", "-u", "/work/solution.py", "/work/solution.py"},
		Script: "/tmp/gone/solution.py", ScriptFrom: "/home/ada/a.py"}})
	brief, err := s.LoadBrief("r1")
	require.NoError(t, err)
	whole, err := s.Load("r1")
	require.NoError(t, err)
	for _, r := range []record.Record{brief, whole} {
		require.Equal(t, "/home/ada/a.py", r.Script())
		require.Equal(t, []string{"python3", "-u", "/home/ada/a.py", "/work/solution.py"}, r.Command())
		require.Equal(t, "/work/solution.py", r.Spec.Job.Command[2], "the command that ran stays")
		require.Equal(t, filepath.Join(s.RecordDir("r1"), "program", "solution.py"), r.ProgramPath())
	}
	plain := record.Record{Spec: spec.Spec{Job: spec.Job{Command: []string{"python3", "/work/a.py"}, Script: "/home/ada/a.py"}}}
	require.Equal(t, "/home/ada/a.py", plain.Script())
	require.Equal(t, []string{"python3", "/work/a.py"}, plain.Command())
}

// TestListBrief: the brief list is the whole one, without what it says that it leaves out,
// and names the same damage.
func TestListBrief(t *testing.T) {
	s := recordtest.OpenCopy(t, "testdata/state")
	whole, err := s.List()
	require.NoError(t, err)
	brief, err := s.ListBrief()
	require.NoError(t, err)
	require.Len(t, brief, 5)
	for i, r := range brief {
		w := whole[i]
		require.Equal(t, []any{w.ID, w.Dir, w.State, w.Created, w.Spec.Schema}, []any{r.ID, r.Dir, r.State, r.Created, r.Spec.Schema})
		job := w.Spec.Job
		require.Equal(t, spec.Job{RunID: job.RunID, Name: job.Name, Labels: job.Labels, Command: job.Command, Script: job.Script}, r.Spec.Job)
		require.NotEmpty(t, r.Spec.Job.Command)
		if w.Result == nil {
			require.Nil(t, r.Result)
			continue
		}
		a, b := w.Result, r.Result
		require.Equal(t, []any{a.ID, a.Status, a.Fault, a.ExitCode, a.Score, a.DurationSeconds, a.Explanation, a.Enforced},
			[]any{b.ID, b.Status, b.Fault, b.ExitCode, b.Score, b.DurationSeconds, b.Explanation, b.Enforced})
		require.Empty(t, b.Outputs)
	}
	for name, damage := range map[string]string{record.ResultFile: "not json", record.SpecFile: "[]", record.JournalFile: "{"} {
		path := filepath.Join(s.RecordDir("finished"), name)
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, []byte(damage), 0o600))
		w, err := s.Load("finished")
		require.NoError(t, err)
		r, err := s.LoadBrief("finished")
		require.NoError(t, err)
		require.Equal(t, []any{w.State, w.Damage.Error()}, []any{r.State, r.Damage.Error()})
		require.ErrorContains(t, r.Damage, name)
		require.NoError(t, os.WriteFile(path, before, 0o600))
	}
}

// BenchmarkListBrief lists 10,000 finished runs, each with a few kilobytes of output.
func BenchmarkListBrief(b *testing.B) {
	s := recordtest.Open(b)
	files := map[string][]byte{}
	for _, name := range []string{record.JournalFile, record.SpecFile, record.ResultFile} {
		text, err := os.ReadFile(filepath.Join("testdata/state/runs/finished", name))
		require.NoError(b, err)
		files[name] = []byte(strings.Replace(string(text), `"stdout": "`, `"stdout": "`+strings.Repeat(`a line of output\n`, 200), 1))
	}
	for i := range 10_000 {
		dir := s.RecordDir(fmt.Sprintf("r%06d", i))
		require.NoError(b, os.MkdirAll(dir, 0o700))
		for name, text := range files {
			require.NoError(b, os.WriteFile(filepath.Join(dir, name), text, 0o600))
		}
	}
	for b.Loop() {
		records, err := s.ListBrief()
		require.NoError(b, err)
		require.Len(b, records, 10_000)
	}
}

func TestFilterCheck(t *testing.T) {
	require.NoError(t, record.Filter{Status: record.StatusNames(), Name: "a*[b]"}.Check())
	require.ErrorContains(t, record.Filter{Name: "["}.Check(), "is not a pattern")
	require.ErrorContains(t, record.Filter{Status: []string{"gone"}}.Check(), "must be one of running, lost, unreadable, succeeded, failed, exited")
}
