//go:build linux

package stage

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/record/recordtest"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// openAhead opens the stage of a run whose container has waited. mounted is what it has mounted as
// ./final.
func openAhead(t *testing.T, store *record.Store, plan spec.Spec) (s *Stage, mounted *os.Root) {
	t.Helper()
	o := Options{Store: store, Plan: plan, Log: slog.New(slog.DiscardHandler), Warn: func(string, ...any) {}}
	o.Plan.Job = spec.Job{RunID: plan.Job.RunID, Script: plan.Job.Script}
	ahead, err := OpenAhead(o)
	require.NoError(t, err)
	mounted, err = os.OpenRoot(ahead.Sources[spec.RoleFinal])
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, mounted.Close()) })
	o.Plan, o.Waited = plan, true
	s, err = Open(o)
	require.NoError(t, err)
	return s, mounted
}

// state is what a caller sees of a directory.
func state(t *testing.T, dir string) (mode os.FileMode, uid, gid int) {
	t.Helper()
	info, err := os.Lstat(dir)
	require.NoError(t, err)
	uid, gid, _ = fsx.OwnerOf(info)
	return info.Mode(), uid, gid
}

// TestTheDirectoryOfAWaitingContainerBecomesFinal with the owner and the permissions of the old one. A
// run that does not start leaves the content as it was.
func TestTheDirectoryOfAWaitingContainerBecomesFinal(t *testing.T) {
	for name, test := range map[string]struct {
		make     func(t *testing.T, final string)
		asRoot   bool
		missing  bool
		contents []string
	}{
		"missing": {make: func(*testing.T, string) {}, missing: true},
		"empty":   {make: func(t *testing.T, final string) { require.NoError(t, os.Mkdir(final, 0o700)) }},
		"with content": {make: func(t *testing.T, final string) {
			require.NoError(t, os.Mkdir(final, 0o755))
			require.NoError(t, os.Mkdir(filepath.Join(final, "sub"), 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(final, "sub", "mine"), nil, 0o600))
		}, contents: []string{"sub", "sub/mine"}},
		"group": {make: func(t *testing.T, final string) {
			require.NoError(t, os.Mkdir(final, 0o755))
			require.NoError(t, os.Chmod(final, 0o770|os.ModeSetgid|os.ModeSticky))
		}},
		"of another user": {make: func(t *testing.T, final string) {
			require.NoError(t, os.Mkdir(final, 0o755))
			require.NoError(t, os.Chown(final, 1234, 5678))
			require.NoError(t, os.Chmod(final, 0o750|os.ModeSetgid))
		}, asRoot: true},
	} {
		if test.asRoot && !treetest.IsRoot() {
			continue
		}
		for _, ends := range []string{"handed back", "rolled back", "discarded", "discarded early"} {
			t.Run(name+", "+ends, func(t *testing.T) {
				store := recordtest.Open(t)
				final := filepath.Join(t.TempDir(), "out")
				test.make(t, final)
				plan := workSpec("r1")
				plan.Job.Final = final
				require.Empty(t, CanReplace(store, final))
				var mode os.FileMode
				var uid, gid int
				if !test.missing {
					mode, uid, gid = state(t, final)
				}
				s, mounted := openAhead(t, store, plan)
				if ends != "discarded early" {
					require.NoError(t, s.Grant(t.Context()))
					inside, err := mounted.Stat(".")
					require.NoError(t, err)
					outside, err := os.Lstat(final)
					require.NoError(t, err)
					require.True(t, os.SameFile(inside, outside), "the container has ./final")
					require.Empty(t, treetest.Everything(t, final))
					_, err = open(recordtest.Open(t), func() spec.Spec { p := plan; p.Job.RunID = "r2"; return p }())
					require.ErrorIs(t, err, ErrBusy, "of another state directory")
				}
				switch ends {
				case "handed back":
					require.NoError(t, mounted.WriteFile("model", nil, 0o600))
					require.NoError(t, handBackAll(s))
					require.Equal(t, []string{"model"}, treetest.Everything(t, final))
					require.NoError(t, s.Close())
				case "rolled back":
					require.NoError(t, s.Rollback())
					require.ElementsMatch(t, test.contents, treetest.Everything(t, final))
					require.NoError(t, s.Close())
				default:
					require.NoError(t, s.Discard(t.Context()))
					if test.missing {
						require.NoFileExists(t, final)
						return
					}
					require.ElementsMatch(t, test.contents, treetest.Everything(t, final))
				}
				if !test.missing {
					nowMode, nowUID, nowGID := state(t, final)
					require.Equal(t, mode, nowMode)
					require.Equal(t, []int{uid, gid}, []int{nowUID, nowGID})
				}
				require.False(t, store.IsWaiting("r1"))
			})
		}
	}
}

// TestFinalThatCannotBeReplaced is noticed before anything is changed.
func TestFinalThatCannotBeReplaced(t *testing.T) {
	mountAt := func(t *testing.T, source, at, kind string, flags uintptr) {
		t.Helper()
		if err := unix.Mount(source, at, kind, flags, ""); err != nil {
			t.Skip("nothing can be mounted here: ", err)
		}
		t.Cleanup(func() { require.NoError(t, unix.Unmount(at, unix.MNT_DETACH)) })
	}
	for name, test := range map[string]struct {
		make   func(t *testing.T, final string)
		reason string
	}{
		"in the record": {func(t *testing.T, final string) { require.NoError(t, os.Mkdir(final, 0o755)) }, ""},
		"another file system at it": {func(t *testing.T, final string) {
			require.NoError(t, os.Mkdir(final, 0o755))
			mountAt(t, "none", final, "tmpfs", 0)
		}, "another file system"},
		"another file system above it": {func(t *testing.T, final string) {
			mountAt(t, "none", filepath.Dir(final), "tmpfs", 0)
			require.NoError(t, os.Mkdir(final, 0o755))
		}, "another file system"},
		"another file system above it, missing": {func(t *testing.T, final string) {
			mountAt(t, "none", filepath.Dir(final), "tmpfs", 0)
		}, "another file system"},
		"another directory mounted at it": {func(t *testing.T, final string) {
			require.NoError(t, os.Mkdir(final, 0o755))
			mountAt(t, t.TempDir(), final, "", unix.MS_BIND)
		}, "is a mount point"},
		"its directory mounted once more": {func(t *testing.T, final string) {
			mountAt(t, filepath.Dir(final), filepath.Dir(final), "", unix.MS_BIND)
			require.NoError(t, os.Mkdir(final, 0o755))
		}, "no directory can be moved"},
		"its directory mounted once more, missing": {func(t *testing.T, final string) {
			mountAt(t, filepath.Dir(final), filepath.Dir(final), "", unix.MS_BIND)
		}, "no directory can be moved"},
		"attributes": {func(t *testing.T, final string) {
			require.NoError(t, os.Mkdir(final, 0o755))
			if err := unix.Setxattr(final, "user.colour", []byte("blue"), 0); err != nil {
				t.Skip("no attributes here: ", err)
			}
		}, "has an ACL or attributes"},
		"flags": {func(t *testing.T, final string) {
			require.NoError(t, os.Mkdir(final, 0o755))
			setFlags(t, final, unix.STATX_ATTR_NODUMP)
		}, "has an ACL or attributes"},
		"append only": {func(t *testing.T, final string) {
			require.NoError(t, os.Mkdir(final, 0o755))
			setFlags(t, final, unix.STATX_ATTR_APPEND)
		}, "has an ACL or attributes"},
		"no directory": {func(t *testing.T, final string) { require.NoError(t, os.WriteFile(final, nil, 0o600)) }, "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			store := recordtest.Open(t)
			final := filepath.Join(t.TempDir(), "out")
			test.make(t, final)
			before := treetest.Everything(t, filepath.Dir(final))
			reason := CanReplace(store, final)
			if test.reason == "" {
				require.Empty(t, reason)
			} else {
				require.Contains(t, reason, test.reason)
			}
			require.Equal(t, before, treetest.Everything(t, filepath.Dir(final)))
			require.Empty(t, treetest.Everything(t, store.PoolDir()))
		})
	}
	require.Empty(t, CanReplace(recordtest.Open(t), ""))
}

// TestEachFinalIsProbedAgain: a mount may have come since the last run.
func TestEachFinalIsProbedAgain(t *testing.T) {
	store, parent := recordtest.Open(t), t.TempDir()
	for range 2 {
		before := time.Unix(1, 0)
		require.NoError(t, os.Chtimes(parent, before, before))
		require.Empty(t, CanReplace(store, filepath.Join(parent, "out")))
		info, err := os.Stat(parent)
		require.NoError(t, err)
		require.NotEqual(t, before, info.ModTime(), "a directory was moved there, and removed")
	}
}

// setFlags sets flags of chattr(1).
func setFlags(t *testing.T, path string, flags int) {
	t.Helper()
	dir, err := os.Open(path)
	require.NoError(t, err)
	defer dir.Close()
	if err := unix.IoctlSetPointerInt(int(dir.Fd()), unix.FS_IOC_SETFLAGS, flags); err != nil {
		t.Skip("no flags here: ", err)
	}
	t.Cleanup(func() {
		dir, err := os.Open(path)
		require.NoError(t, err)
		defer dir.Close()
		require.NoError(t, unix.IoctlSetPointerInt(int(dir.Fd()), unix.FS_IOC_SETFLAGS, 0))
	})
}

// TestWhatHappensToFinalBeforeItIsReplaced ends the run, and nothing is lost.
func TestWhatHappensToFinalBeforeItIsReplaced(t *testing.T) {
	for name, test := range map[string]struct {
		change func(t *testing.T, final string)
		left   []string
	}{
		"another directory": {func(t *testing.T, final string) {
			require.NoError(t, os.Rename(final, final+".old"))
			require.NoError(t, os.Mkdir(final, 0o755))
		}, nil},
		"a link": {func(t *testing.T, final string) {
			require.NoError(t, os.Rename(final, final+".old"))
			require.NoError(t, os.Symlink(t.TempDir(), final))
		}, nil},
		"a new file": {func(t *testing.T, final string) {
			require.NoError(t, os.WriteFile(filepath.Join(final, "new"), nil, 0o600))
		}, []string{"mine", "new"}},
	} {
		t.Run(name, func(t *testing.T) {
			store := recordtest.Open(t)
			final := filepath.Join(t.TempDir(), "out")
			require.NoError(t, os.Mkdir(final, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(final, "mine"), nil, 0o600))
			plan := workSpec("r1")
			plan.Job.Final = final
			s, _ := openAhead(t, store, plan)
			require.NoError(t, s.final.empty(t.Context()))
			test.change(t, final)
			require.ErrorContains(t, s.final.replace(), "cannot be replaced by the directory of the container that waited")
			err := s.Discard(t.Context())
			if test.left != nil {
				require.NoError(t, err)
				require.Equal(t, test.left, treetest.Everything(t, final))
			} else if err != nil { // it says where the content is
				require.ErrorContains(t, err, final+".before-r1")
				require.FileExists(t, filepath.Join(final+".before-r1", "mine"))
			}
		})
	}
}

// TestTheProgramOfAWaitingContainer is written into the file that the container has mounted.
func TestTheProgramOfAWaitingContainer(t *testing.T) {
	store := recordtest.Open(t)
	script := filepath.Join(t.TempDir(), "main.py")
	require.NoError(t, os.WriteFile(script, []byte("print(1)\n"), 0o600))
	plan := workSpec("r1")
	plan.Job.Script = script
	o := Options{Store: store, Plan: plan, Log: slog.New(slog.DiscardHandler), Warn: func(string, ...any) {}}
	previous := unix.Umask(0o077)
	defer unix.Umask(previous)
	ahead, err := OpenAhead(o)
	require.NoError(t, err)
	require.NoFileExists(t, filepath.Join(ahead.Dir, record.JournalFile))
	mounted, err := os.Open(ahead.Sources[spec.RoleProgram])
	require.NoError(t, err)
	defer mounted.Close()
	o.Waited = true
	s, err := Open(o)
	require.NoError(t, err)
	text := make([]byte, 100)
	n, err := mounted.Read(text)
	require.NoError(t, err)
	require.Equal(t, "print(1)\n", string(text[:n]))
	info, err := mounted.Stat()
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o444), info.Mode())
	for _, dir := range []string{filepath.Join(s.Dir, record.ProgramDir), filepath.Join(s.Dir, record.OwnFinal), filepath.Join(s.Dir, record.EmptyInput)} {
		mode, _, _ := state(t, dir)
		require.Equal(t, os.FileMode(0o755)|os.ModeDir, mode, dir)
	}
	require.NoError(t, s.Discard(t.Context()))
}

// TestFailuresAheadLeaveNothing of a container that was to wait.
func TestFailuresAheadLeaveNothing(t *testing.T) {
	store := recordtest.Open(t)
	plan := workSpec("r1")
	plan.Job.Input = filepath.Join(t.TempDir(), "missing")
	_, err := OpenAhead(Options{Store: store, Plan: plan, Log: slog.New(slog.DiscardHandler)})
	require.ErrorContains(t, err, "missing")
	require.Empty(t, treetest.Everything(t, store.PoolDir()))
}

// TestAControllerThatDiesRightBehindTheReplacement: nothing is written down of it yet, and ./final gets
// its content back.
func TestAControllerThatDiesRightBehindTheReplacement(t *testing.T) {
	store := recordtest.Open(t)
	final := filepath.Join(t.TempDir(), "out")
	require.NoError(t, os.Mkdir(final, 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(final, "mine"), nil, 0o600))
	mode, uid, gid := state(t, final)
	plan := workSpec("r1")
	plan.Job.Final = final
	s, _ := openAhead(t, store, plan)
	was := s.Ownership() // in the journal
	require.NoError(t, s.final.empty(t.Context()))
	require.NoError(t, s.final.replace())
	require.NoError(t, s.Close())

	o := Options{Store: store, Plan: plan, Log: slog.New(slog.DiscardHandler), Warn: func(format string, args ...any) { t.Errorf(format, args...) }}
	resumed, err := Resume(o, record.Journal{ID: "r1", Final: was}, nil, false)
	require.NoError(t, err)
	require.NoError(t, resumed.Rollback())
	require.NoError(t, resumed.Close())
	require.Equal(t, []string{"mine"}, treetest.Everything(t, final))
	nowMode, nowUID, nowGID := state(t, final)
	require.Equal(t, mode, nowMode)
	require.Equal(t, []int{uid, gid}, []int{nowUID, nowGID})
	require.NoDirExists(t, final+".before-r1")
}
