//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/hostpath"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// mountTmpfs mounts a file system in memory; only root can.
func mountTmpfs(t *testing.T, dir, options string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, unix.Mount("evalbox-test", dir, "tmpfs", 0, options))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

// workSpec is a run as the program's user that needs no handing over.
func workSpec(id string) spec.Spec {
	user := "64646:64646"
	if !isRoot() {
		user = defaultUser(os.Getuid(), os.Getgid())
	}
	return spec.Spec{Class: spec.Class{User: user}, Job: spec.Job{RunID: id}}
}

func openTestStore(t *testing.T) *Store {
	t.Helper()
	store, err := OpenStore(filepath.Join(t.TempDir(), "state"))
	require.NoError(t, err)
	return store
}

func TestWorkspaceOfARunThatNamesNothing(t *testing.T) {
	store := openTestStore(t)
	w, err := openWorkspace(store, workSpec("r1"))
	require.NoError(t, err)
	record := filepath.Join(store.Dir(), "runs", "r1")
	require.Equal(t, record, w.record)
	require.Equal(t, engine.Sources{spec.RoleInput: record + "/input", spec.RoleFinal: record + "/final"}, w.paths)
	require.Equal(t, []string{"final", "input", "reserve"}, everything(t, record))
	info, err := os.Stat(filepath.Join(record, "reserve"))
	require.NoError(t, err)
	require.Equal(t, int64(resultReserve), info.Size(), "room for the result is set aside")

	require.NoError(t, w.handOver(t.Context()))
	require.NoError(t, w.handBack())
	require.NoError(t, w.release())
	require.Equal(t, []string{"final", "input"}, everything(t, record), "the record stays")

	_, err = openWorkspace(store, workSpec("r1"))
	require.ErrorContains(t, err, "recorded already")
	require.Equal(t, []string{"final", "input"}, everything(t, record), "a refused run leaves the other's record alone")
}

func TestWorkspaceKeepsTheProgramThatRan(t *testing.T) {
	store := openTestStore(t)
	script := filepath.Join(t.TempDir(), "main.py")
	require.NoError(t, os.WriteFile(script, []byte("print(1)\n"), 0o600))
	s := workSpec("r1")
	s.Job.Script = script
	w, err := openWorkspace(store, s)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(script, []byte("print(2)\n"), 0o600))
	text, err := os.ReadFile(w.paths[spec.RoleProgram])
	require.NoError(t, err)
	require.Equal(t, "print(1)\n", string(text))
	info, err := os.Stat(w.paths[spec.RoleProgram])
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o444), info.Mode().Perm(), "any user may read it, nobody may write it")
	require.NotEqual(t, filepath.Dir(w.paths[spec.RoleProgram]), w.record, "the folder that is mounted holds nothing else")
	require.NoError(t, w.discard())
	require.FileExists(t, script)
}

// What is mounted must be readable for a user who is nobody on this host, and
// administrators like a strict umask.
func TestWorkspaceUnderAStrictUmask(t *testing.T) {
	store := openTestStore(t)
	script := filepath.Join(t.TempDir(), "main.py")
	require.NoError(t, os.WriteFile(script, []byte("1"), 0o600))
	s := workSpec("r1")
	s.Job.Script = script
	before := unix.Umask(0o077)
	defer unix.Umask(before)
	w, err := openWorkspace(store, s)
	require.NoError(t, err)
	require.NoError(t, w.handOver(t.Context()))
	for path, mode := range map[string]os.FileMode{
		w.paths[spec.RoleInput]: 0o755, filepath.Dir(w.paths[spec.RoleProgram]): 0o755, w.paths[spec.RoleProgram]: 0o444, w.record: 0o700,
	} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm(), path)
	}
	require.NoError(t, w.release())
}

func TestFailuresOfAWorkspaceLeaveNothing(t *testing.T) {
	place := t.TempDir()
	treetest.Write(t, place, map[string]string{"empty.py": " \n\t\n", "nothing.py": "", "file": "x", "final/kept": "x", "parent/": "", "ok.py": "1"})
	for name, c := range map[string]struct {
		change func(*spec.Spec)
		want   string
	}{
		"script is blank":     {func(s *spec.Spec) { s.Job.Script = place + "/empty.py" }, "is empty"},
		"script is empty":     {func(s *spec.Spec) { s.Job.Script = place + "/nothing.py" }, "is empty"},
		"script is gone":      {func(s *spec.Spec) { s.Job.Script = place + "/gone.py" }, "cannot be read"},
		"script is a folder":  {func(s *spec.Spec) { s.Job.Script = place }, "cannot be read"},
		"final is a file":     {func(s *spec.Spec) { s.Job.Final = place + "/file" }, "cannot be opened"},
		"parent is gone":      {func(s *spec.Spec) { s.Job.Final = place + "/no/final" }, "cannot be made"},
		"user has a name":     {func(s *spec.Spec) { s.Class.User, s.Job.Final = "root:root", place+"/parent/new" }, "not numeric"},
		"user has a name (2)": {func(s *spec.Spec) { s.Class.User, s.Job.Final = "root", place+"/final" }, "not numeric"},
	} {
		t.Run(name, func(t *testing.T) {
			store := openTestStore(t)
			before := everything(t, place)
			s := workSpec("r1")
			s.Job.Script = place + "/ok.py"
			c.change(&s)
			w, err := openWorkspace(store, s)
			require.ErrorContains(t, err, c.want)
			require.Nil(t, w)
			require.Empty(t, everything(t, store.runsDir()))
			require.Equal(t, before, everything(t, place))
			if s.Job.Final != "" {
				// The lock is free again.
				lock, err := lockFinal(store, s.Job.Final)
				require.NoError(t, err)
				require.NoError(t, lock.release())
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
	_, err := copyScript(script, filepath.Join(dir, "to"))
	require.ErrorContains(t, err, "has more than 67108864 bytes")
	require.NoDirExists(t, filepath.Join(dir, "to"))
}

func TestScriptThatCannotBeRead(t *testing.T) {
	dir := strangersFolder(t)
	script := filepath.Join(dir, "secret.py")
	require.NoError(t, os.WriteFile(script, []byte("1"), 0o000))
	asStranger(t, func() {
		if _, err := copyScript(script, filepath.Join(dir, "to")); !errors.Is(err, os.ErrPermission) {
			t.Errorf("copyScript: %v", err)
		}
	})
}

func TestTwoRunsWithOneFinal(t *testing.T) {
	store := openTestStore(t)
	final := filepath.Join(t.TempDir(), "final")
	s := func(id string) spec.Spec {
		s := workSpec(id)
		s.Job.Final = final
		return s
	}
	first, err := openWorkspace(store, s("r1"))
	require.NoError(t, err)
	_, err = openWorkspace(store, s("r2"))
	require.ErrorIs(t, err, ErrBusy)
	require.DirExists(t, final, "the refused run takes nothing of the other's away")
	require.NoDirExists(t, filepath.Join(store.runsDir(), "r2"))

	other := s("r3")
	other.Job.Final = final + "2"
	beside, err := openWorkspace(store, other)
	require.NoError(t, err, "another ./final is free")
	require.NoError(t, beside.discard())
	require.NoDirExists(t, final+"2")

	require.NoError(t, first.release())
	second, err := openWorkspace(store, s("r2"))
	require.NoError(t, err, "after the first run, the second may")
	require.NoError(t, second.release())
}

func TestHandOverEmptiesAndLends(t *testing.T) {
	store := openTestStore(t)
	final := t.TempDir()
	treetest.Write(t, final, map[string]string{"old/result": "x"})
	s := workSpec("r1")
	s.Job.Final = final
	w, err := openWorkspace(store, s)
	require.NoError(t, err)
	require.Equal(t, []string{"old", "old/result"}, everything(t, final), "opening changes nothing of the caller's")
	before := owners(t, final)
	require.NoError(t, w.handBack(), "what was not handed over is not handed back")

	require.NoError(t, w.handOver(t.Context()))
	require.Empty(t, everything(t, final))
	if isRoot() {
		require.Equal(t, []uint32{64646}, owners(t, final))
		require.Equal(t, finalJournal{Path: final, Lent: true, UID: 0, GID: 0, ToUID: 64646, ToGID: 64646}, w.lent)
	}
	treetest.Write(t, final, map[string]string{"new/result": "x"})
	if isRoot() {
		require.NoError(t, chownTree(w.final, -1, 64646, 64646))
	}
	require.NoError(t, w.handBack())
	require.Equal(t, append(before, before...), owners(t, final, filepath.Join(final, "new/result")))
	require.NoError(t, w.release())
	require.Equal(t, []string{"new", "new/result"}, everything(t, final))
}

func TestHandBackGoesToWhoeverItBelongedTo(t *testing.T) {
	if !isRoot() {
		return // only root lends
	}
	store := openTestStore(t)
	final := t.TempDir()
	require.NoError(t, os.Chown(final, 12345, 12345))
	s := workSpec("r1")
	s.Job.Final = final
	w, err := openWorkspace(store, s)
	require.NoError(t, err)
	require.NoError(t, w.handOver(t.Context()))
	treetest.Write(t, final, map[string]string{"a/b": "x", "foreign": "x"})
	require.NoError(t, os.Lchown(final+"/a", 64646, 64646))
	require.NoError(t, os.Lchown(final+"/a/b", 64646, 64646))
	require.NoError(t, w.handBack())
	require.Equal(t, []uint32{12345, 12345, 12345}, owners(t, final, final+"/a", final+"/a/b"))
	require.Equal(t, []uint32{0}, owners(t, final+"/foreign"), "not the program's")
	require.NoError(t, w.release())
}

func TestDiscardTakesBackWhatWasMadeAndNothingElse(t *testing.T) {
	store := openTestStore(t)
	base := t.TempDir()
	treetest.Write(t, base, map[string]string{"theirs/kept": "x"})
	for name, c := range map[string]struct {
		final string
		left  []string
	}{
		"a folder of the caller": {base + "/theirs", []string{"theirs", "theirs/kept"}},
		"a folder that we made":  {base + "/ours", []string{"theirs", "theirs/kept"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := workSpec("r1")
			s.Job.Final = c.final
			w, err := openWorkspace(store, s)
			require.NoError(t, err)
			require.NoError(t, w.discard())
			require.Equal(t, c.left, everything(t, base))
			require.Empty(t, everything(t, store.runsDir()))
		})
	}

	s := workSpec("r1")
	s.Job.Final = base + "/ours"
	w, err := openWorkspace(store, s)
	require.NoError(t, err)
	treetest.Write(t, base, map[string]string{"ours/from somebody else": "x"})
	require.Error(t, w.discard(), "what is left behind is told")
	require.FileExists(t, base+"/ours/from somebody else")
	require.Empty(t, everything(t, store.runsDir()))
}

// The folder that was opened is the one that is emptied, or none.
func TestFinalThatIsReplacedIsRefused(t *testing.T) {
	store := openTestStore(t)
	base := t.TempDir()
	treetest.Write(t, base, map[string]string{"final/old": "x", "precious/canary": "x"})
	s := workSpec("r1")
	s.Job.Final = base + "/final"
	w, err := openWorkspace(store, s)
	require.NoError(t, err)
	require.NoError(t, os.Rename(base+"/final", base+"/was"))
	require.NoError(t, os.Symlink("precious", base+"/final"))
	require.ErrorContains(t, w.handOver(t.Context()), "was replaced")
	require.FileExists(t, base+"/precious/canary")
	require.FileExists(t, base+"/was/old")
	require.NoError(t, w.release())
}

func TestFinalThatBecameALinkIsNotTakenForOurs(t *testing.T) {
	final := t.TempDir()
	s := workSpec("r1")
	s.Job.Final = final
	w, err := openWorkspace(openTestStore(t), s)
	require.NoError(t, err)
	require.False(t, w.made)
	require.NoError(t, w.discard())
	require.DirExists(t, final)
}

func TestFinalThatTheProgramsUserCannotWrite(t *testing.T) {
	state := strangersFolder(t)
	final := strangersFolder(t)
	store, err := OpenStore(filepath.Join(state, "state"))
	require.NoError(t, err)
	if isRoot() {
		return // root lends; defaultUser keeps the others from this case
	}
	s := workSpec("r1")
	s.Class.User, s.Job.Final = "64646:64646", final
	_, err = openWorkspace(store, s)
	require.ErrorContains(t, err, "is not writable for user 64646:64646")
	require.Empty(t, everything(t, store.runsDir()))
	require.NoError(t, os.Chmod(final, 0o777))
	w, err := openWorkspace(store, s)
	require.NoError(t, err)
	require.NoError(t, w.discard())
}

func TestFullDiskIsToldBeforeAnythingRuns(t *testing.T) {
	if !isRoot() {
		return // needs a small file system
	}
	for name, options := range map[string]string{"too little space": "size=1m", "too few inodes": "size=200m,nr_inodes=3"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "disk")
			mountTmpfs(t, dir, options)
			store, err := OpenStore(dir)
			require.NoError(t, err)
			final := filepath.Join(t.TempDir(), "final")
			s := workSpec("r1")
			s.Job.Final = final
			_, err = openWorkspace(store, s)
			require.ErrorIs(t, err, ErrNoSpace)
			require.ErrorContains(t, err, dir)
			require.NoDirExists(t, filepath.Join(dir, "runs/r1"))
			require.NoDirExists(t, final)
		})
	}

	dir := filepath.Join(t.TempDir(), "disk")
	mountTmpfs(t, dir, "size=100m")
	store, err := OpenStore(dir)
	require.NoError(t, err)
	w, err := openWorkspace(store, workSpec("r1"))
	require.NoError(t, err)
	require.NoError(t, w.discard())
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
		{0o666, false, false, mayWrite, false}, // a folder is not entered without x
	} {
		require.Equal(t, test.want, permits(test.mode, test.owner, test.group, test.need), "%+v", test)
	}
}

func TestInputThatTheProgramCannotReadIsRefused(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	require.NoError(t, checkReadable(dir, fmt.Sprintf("%d:%d", os.Getuid(), os.Getgid())))
	err := checkReadable(dir, spec.DedicatedUser)
	var path *PathError
	require.ErrorAs(t, err, &path)
	require.Equal(t, "input", path.Field)
	require.ErrorContains(t, err, "mode 0700")
}
