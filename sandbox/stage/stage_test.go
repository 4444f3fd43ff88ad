//go:build linux

package stage

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
	"github.com/evalbox/evalbox/sandbox/spec"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/hostpath"
)

// workSpec is a run as the program's user that needs no handing over.
func workSpec(id string) spec.Spec {
	user := "64646:64646"
	if !treetest.IsRoot() {
		user = fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())
	}
	return spec.Spec{Class: spec.Class{User: user}, Job: spec.Job{RunID: id}}
}

// open opens a stage whose warnings fail nothing.
func open(store *record.Store, plan spec.Spec) (*Stage, error) {
	return Open(Options{Store: store, Plan: plan, Log: slog.New(slog.DiscardHandler), Warn: func(string, ...any) {}})
}

func TestStageOfARunThatNamesNothing(t *testing.T) {
	store := recordtest.Open(t)
	w, err := open(store, workSpec("r1"))
	require.NoError(t, err)
	record := filepath.Join(store.Dir(), "runs", "r1")
	require.Equal(t, record, w.Dir)
	require.Equal(t, engine.Sources{spec.RoleInput: record + "/input", spec.RoleFinal: record + "/final",
		spec.RolePasswd: record + "/accounts/passwd", spec.RoleGroup: record + "/accounts/group"}, w.Sources)
	require.Equal(t, []string{"accounts", "accounts/group", "accounts/passwd", "final", "input", "journal.json", "reserve"}, treetest.Everything(t, record))
	info, err := os.Stat(filepath.Join(record, "reserve"))
	require.NoError(t, err)
	require.Equal(t, int64(resultReserve), info.Size(), "room for the result is set aside")

	require.NoError(t, w.Begin(t.Context()))
	require.NoError(t, w.Close())
	require.Equal(t, []string{"final", "input", "journal.json"}, treetest.Everything(t, record), "the record stays")

	_, err = open(store, workSpec("r1"))
	require.ErrorContains(t, err, "recorded already")
	require.Equal(t, []string{"final", "input", "journal.json"}, treetest.Everything(t, record), "a refused run leaves the other's record alone")
}

func TestStageKeepsTheProgramThatRan(t *testing.T) {
	store := recordtest.Open(t)
	script := filepath.Join(t.TempDir(), "main.py")
	require.NoError(t, os.WriteFile(script, []byte("print(1)\n"), 0o600))
	plan := workSpec("r1")
	plan.Job.Script = script
	w, err := open(store, plan)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(script, []byte("print(2)\n"), 0o600))
	text, err := os.ReadFile(w.Sources[spec.RoleProgram])
	require.NoError(t, err)
	require.Equal(t, "print(1)\n", string(text))
	info, err := os.Stat(w.Sources[spec.RoleProgram])
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o444), info.Mode().Perm(), "any user may read it, nobody may write it")
	require.NotEqual(t, filepath.Dir(w.Sources[spec.RoleProgram]), w.Dir, "the directory that is mounted holds nothing else")
	require.NoError(t, w.Discard(t.Context()))
	require.FileExists(t, script)
}

// What is mounted must be readable for a user who is nobody on this host, and
// administrators like a strict umask.
func TestStageUnderAStrictUmask(t *testing.T) {
	store := recordtest.Open(t)
	script := filepath.Join(t.TempDir(), "main.py")
	require.NoError(t, os.WriteFile(script, []byte("1"), 0o600))
	plan := workSpec("r1")
	plan.Job.Script = script
	before := unix.Umask(0o077)
	defer unix.Umask(before)
	w, err := open(store, plan)
	require.NoError(t, err)
	require.NoError(t, w.Begin(t.Context()))
	for path, mode := range map[string]os.FileMode{
		w.Sources[spec.RoleInput]: 0o755, filepath.Dir(w.Sources[spec.RoleProgram]): 0o755, w.Sources[spec.RoleProgram]: 0o444, w.Dir: 0o700,
	} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), path)
	}
	require.NoError(t, w.Close())
}

func TestFailuresOfAStageLeaveNothing(t *testing.T) {
	place := t.TempDir()
	treetest.Write(t, place, map[string]string{"empty.py": " \n\t\n", "nothing.py": "", "file": "x", "final/kept": "x", "parent/": "", "ok.py": "1"})
	for name, c := range map[string]struct {
		change func(*spec.Spec)
		want   string
	}{
		"script is blank":       {func(s *spec.Spec) { s.Job.Script = place + "/empty.py" }, "is empty"},
		"script is empty":       {func(s *spec.Spec) { s.Job.Script = place + "/nothing.py" }, "is empty"},
		"script is gone":        {func(s *spec.Spec) { s.Job.Script = place + "/gone.py" }, "cannot be read"},
		"script is a directory": {func(s *spec.Spec) { s.Job.Script = place }, "cannot be read"},
		"final is a file":       {func(s *spec.Spec) { s.Job.Final = place + "/file" }, "cannot be opened"},
		"parent is gone":        {func(s *spec.Spec) { s.Job.Final = place + "/no/final" }, "cannot be made"},
		"user has a name":       {func(s *spec.Spec) { s.Class.User, s.Job.Final = "root:root", place+"/parent/new" }, "not numeric"},
		"user has a name (2)":   {func(s *spec.Spec) { s.Class.User, s.Job.Final = "root", place+"/final" }, "not numeric"},
	} {
		t.Run(name, func(t *testing.T) {
			store := recordtest.Open(t)
			before := treetest.Everything(t, place)
			plan := workSpec("r1")
			plan.Job.Script = place + "/ok.py"
			c.change(&plan)
			w, err := open(store, plan)
			require.ErrorContains(t, err, c.want)
			require.Nil(t, w)
			require.Empty(t, treetest.Everything(t, store.RunsDir()))
			require.Equal(t, before, treetest.Everything(t, place))
			if plan.Job.Final != "" {
				// The lock is free again.
				lock, err := lockFinal(store, plan.Job.Final)
				require.NoError(t, err)
				require.NoError(t, lock.Close())
			}
		})
	}
}

func TestScriptThatGrewTooLarge(t *testing.T) {
	// Between the check and the copy; only so much of it is read.
	dir := t.TempDir()
	script := filepath.Join(dir, "big.py")
	require.NoError(t, os.WriteFile(script, []byte("1"), 0o600))
	require.NoError(t, os.Truncate(script, hostpath.MaxScript+1))
	_, err := readScript(script)
	require.ErrorContains(t, err, "has more than 67108864 bytes")
}

func TestScriptThatCannotBeRead(t *testing.T) {
	dir := treetest.OtherUsersDir(t)
	script := filepath.Join(dir, "secret.py")
	require.NoError(t, os.WriteFile(script, []byte("1"), 0o000))
	treetest.AsOtherUser(t, func() {
		if _, err := readScript(script); !errors.Is(err, os.ErrPermission) {
			t.Errorf("readScript: %v", err)
		}
	})
}

func TestTwoRunsWithOneFinal(t *testing.T) {
	store := recordtest.Open(t)
	final := filepath.Join(t.TempDir(), "final")
	named := func(id string) spec.Spec {
		s := workSpec(id)
		s.Job.Final = final
		return s
	}
	first, err := open(store, named("r1"))
	require.NoError(t, err)
	_, err = open(store, named("r2"))
	require.ErrorIs(t, err, ErrBusy)
	require.DirExists(t, final, "the refused run takes nothing of the other's away")
	require.NoDirExists(t, filepath.Join(store.RunsDir(), "r2"))

	other := named("r3")
	other.Job.Final = final + "2"
	beside, err := open(store, other)
	require.NoError(t, err, "another ./final is free")
	require.NoError(t, beside.Discard(t.Context()))
	require.NoDirExists(t, final+"2")

	require.NoError(t, first.Close())
	second, err := open(store, named("r2"))
	require.NoError(t, err, "after the first run, the second may")
	require.NoError(t, second.Close())
}

func TestDiscardTakesBackWhatWasMadeAndNothingElse(t *testing.T) {
	store := recordtest.Open(t)
	base := t.TempDir()
	treetest.Write(t, base, map[string]string{"theirs/kept": "x"})
	for name, c := range map[string]struct {
		final string
		left  []string
	}{
		"a directory of the caller": {base + "/theirs", []string{"theirs", "theirs/kept"}},
		"a directory that we made":  {base + "/ours", []string{"theirs", "theirs/kept"}},
	} {
		t.Run(name, func(t *testing.T) {
			plan := workSpec("r1")
			plan.Job.Final = c.final
			w, err := open(store, plan)
			require.NoError(t, err)
			require.NoError(t, w.Discard(t.Context()))
			require.Equal(t, c.left, treetest.Everything(t, base))
			require.Empty(t, treetest.Everything(t, store.RunsDir()))
		})
	}

	plan := workSpec("r1")
	plan.Job.Final = base + "/ours"
	w, err := open(store, plan)
	require.NoError(t, err)
	treetest.Write(t, base, map[string]string{"ours/from somebody else": "x"})
	require.Error(t, w.Discard(t.Context()), "what is left behind is told")
	require.FileExists(t, base+"/ours/from somebody else")
	require.Empty(t, treetest.Everything(t, store.RunsDir()))
}

func TestFinalThatBecameALinkIsNotTakenForOurs(t *testing.T) {
	final := t.TempDir()
	plan := workSpec("r1")
	plan.Job.Final = final
	w, err := open(recordtest.Open(t), plan)
	require.NoError(t, err)
	require.False(t, w.final.made)
	require.NoError(t, w.Discard(t.Context()))
	require.DirExists(t, final)
}

func TestFullDiskIsToldBeforeAnythingRuns(t *testing.T) {
	if !treetest.IsRoot() {
		return // needs a small file system
	}
	for name, options := range map[string]string{"too little space": "mode=0700,size=1m", "too few inodes": "mode=0700,size=200m,nr_inodes=3"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "disk")
			treetest.MountTmpfs(t, dir, options)
			store, err := record.Open(dir)
			require.NoError(t, err)
			final := filepath.Join(t.TempDir(), "final")
			plan := workSpec("r1")
			plan.Job.Final = final
			_, err = open(store, plan)
			require.ErrorIs(t, err, record.ErrNoSpace)
			require.ErrorContains(t, err, dir)
			require.NoDirExists(t, filepath.Join(dir, "runs/r1"))
			require.NoDirExists(t, final)
		})
	}

	dir := filepath.Join(t.TempDir(), "disk")
	treetest.MountTmpfs(t, dir, "mode=0700,size=100m")
	store, err := record.Open(dir)
	require.NoError(t, err)
	w, err := open(store, workSpec("r1"))
	require.NoError(t, err)
	require.NoError(t, w.Discard(t.Context()))
}

func TestPermits(t *testing.T) {
	for _, test := range []struct {
		mode         os.FileMode
		owner, group bool
		need         os.FileMode
		want         bool
	}{
		{0o755, true, true, mayWrite, true},
		{0o755, false, true, mayWrite, false},
		{0o755, false, false, mayRead, true},
		{0o750, false, false, mayRead, false},
		{0o750, false, true, mayRead, true},
		{0o070, true, true, mayRead, false}, // the owner's bits count, though the group's would do
		{0o773, false, false, mayWrite, true},
		{0o666, false, false, mayWrite, false}, // a directory is not entered without x
	} {
		require.Equal(t, test.want, permits(test.mode, test.owner, test.group, test.need), "%+v", test)
	}
}

func TestInputThatTheProgramCannotReadIsRefused(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	require.NoError(t, checkReadable("input", dir, fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())))
	err := checkReadable("input", dir, spec.DedicatedUser)
	var path *spec.PathError
	require.ErrorAs(t, err, &path)
	require.Equal(t, "input", path.Field)
	require.ErrorContains(t, err, "mode 0700")
}

func TestNestedFinalsAreOneAtATime(t *testing.T) {
	store := recordtest.Open(t)
	base := t.TempDir()
	require.NoError(t, store.Prepare())
	outer, inner, beside := filepath.Join(base, "a"), filepath.Join(base, "a", "b", "c"), filepath.Join(base, "a", "d")

	held, err := lockFinal(store, inner)
	require.NoError(t, err)
	_, err = lockFinal(store, outer)
	require.ErrorIs(t, err, ErrBusy, "it holds one that is in use")
	other, err := lockFinal(store, beside)
	require.NoError(t, err, "neighbours do not matter")
	require.NoError(t, other.Close())
	require.NoError(t, held.Close())

	held, err = lockFinal(store, outer)
	require.NoError(t, err)
	_, err = lockFinal(store, inner)
	require.ErrorIs(t, err, ErrBusy, "it lies in one that is in use")
	require.NoError(t, held.Close())
	held, err = lockFinal(store, inner)
	require.NoError(t, err)
	require.NoError(t, held.Close())
}

// TestLocksTakeOneFile: the number of lock files does not grow with the number of runs.
func TestLocksTakeOneFile(t *testing.T) {
	store := recordtest.Open(t)
	require.NoError(t, store.Prepare())
	base := t.TempDir()
	var held []*finalLock
	for i := range 50 {
		lock, err := lockFinal(store, filepath.Join(base, fmt.Sprint(i), "deep", "final"))
		require.NoError(t, err)
		held = append(held, lock)
	}
	require.Equal(t, []string{"finals"}, treetest.Everything(t, store.LocksDir()))
	for _, lock := range held {
		require.NoError(t, lock.Close())
	}
}

// TestDiskIsMeasuredAfterTheEnd: a run that ends does not wait for a measurement of ./final
// that is about to begin.
func TestDiskIsMeasuredAfterTheEnd(t *testing.T) {
	s, err := open(recordtest.Open(t), workSpec("r1"))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.False(t, s.files.(*mounts).overfull(t.Context()))
}
