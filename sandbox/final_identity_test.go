//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// leaves is a program that leaves outputs of every kind, many of which are not collected.
func leaves(p *enginetest.Program) int {
	err := errors.Join(
		os.WriteFile(p.Final("out.csv"), []byte("1\n"), 0o666),
		os.MkdirAll(p.Final("a/b/c/d/e"), 0o777),
		os.WriteFile(p.Final("a/b/c/d/e/deep"), []byte("x"), 0o644),
		os.WriteFile(p.Final("large"), make([]byte, 1000), 0o644),
		os.Symlink("out.csv", p.Final("link")),
		unix.Mkfifo(p.Final("pipe"), 0o666),
		unix.Mknod(p.Final("gone"), unix.S_IFCHR, 0),
		os.Mkdir(p.Final("empty"), 0o777),
	)
	if err != nil {
		p.PrintErr(err.Error())
		return 1
	}
	return 0
}

// identityRequest collects so little that most of what leaves made is skipped.
func identityRequest(id, final, transfer string) Request {
	req := finalRequest(id, final)
	req.Transfer = transfer
	req.Limits.OutputDepth, req.Limits.OutputFile = 2, 500
	return req
}

// TestNoFileOfTheUserIsDeleted: after a run, the user changes its ./final. Whatever the change
// is, the next run moves everything aside.
func TestNoFileOfTheUserIsDeleted(t *testing.T) {
	mine := func(path string) error { return os.WriteFile(path, []byte("mine"), 0o644) }
	instead := func(path string) error { return errors.Join(os.RemoveAll(path), mine(path)) }
	for name, c := range map[string]struct {
		change func(at func(string) string) error
		// kept is where the user's part is then.
		kept string
		// copied says that the case exists where files are copied.
		copied bool
	}{
		"a file beside the outputs":            {func(at func(string) string) error { return mine(at("mine")) }, "mine", true},
		"a file below a collected directory":   {func(at func(string) string) error { return mine(at("a/mine")) }, "a/mine", true},
		"a file below a directory too deep":    {func(at func(string) string) error { return mine(at("a/b/c/d/mine")) }, "a/b/c/d/mine", true},
		"a file in an empty directory":         {func(at func(string) string) error { return mine(at("empty/mine")) }, "empty/mine", true},
		"a directory":                          {func(at func(string) string) error { return os.Mkdir(at("mine"), 0o755) }, "mine", true},
		"in place of a skipped link":           {func(at func(string) string) error { return instead(at("link")) }, "link", false},
		"in place of a skipped pipe":           {func(at func(string) string) error { return instead(at("pipe")) }, "pipe", false},
		"in place of a skipped large file":     {func(at func(string) string) error { return instead(at("large")) }, "large", false},
		"in place of a skipped deep directory": {func(at func(string) string) error { return instead(at("a/b/c")) }, "a/b/c", false},
		"in place of an empty directory":       {func(at func(string) string) error { return instead(at("empty")) }, "empty", true},
		"in place of a whiteout":               {func(at func(string) string) error { return instead(at("gone")) }, "gone", false},
		"a link to the user's own place":       {func(at func(string) string) error { return os.Symlink("/home", at("mine")) }, "mine", true},
		"another link of the same kind": {func(at func(string) string) error {
			return errors.Join(os.Remove(at("link")), os.Symlink("/home", at("link")))
		}, "link", false},
		"other permissions of an output":         {func(at func(string) string) error { return os.Chmod(at("out.csv"), 0o600) }, "out.csv", true},
		"a line more in an output":               {func(at func(string) string) error { return os.WriteFile(at("out.csv"), []byte("1\n2\n"), 0o644) }, "out.csv", true},
		"other content of equal size":            {func(at func(string) string) error { return os.WriteFile(at("out.csv"), []byte("2\n"), 0o644) }, "out.csv", true},
		"an older file of equal size (cp -p)":    {func(at func(string) string) error { return older(at("out.csv")) }, "out.csv", true},
		"an older file of equal size (in place)": {func(at func(string) string) error { return olderInPlace(at("large")) }, "large", false},
		"another name of an output":              {func(at func(string) string) error { return os.Rename(at("out.csv"), at("best.csv")) }, "best.csv", true},
	} {
		for _, transfer := range []string{spec.TransferBind, spec.TransferCopy} {
			if transfer == spec.TransferCopy && !c.copied {
				continue // nothing that is left out comes back from the engine
			}
			t.Run(name+", "+transfer, func(t *testing.T) {
				final := filepath.Join(t.TempDir(), "final")
				r := newFakeRunner(t, enginetest.NewFake(leaves))
				res, err := r.Run(t.Context(), identityRequest("r1", final, transfer))
				require.NoError(t, err)
				require.Equal(t, 0, res.ExitCode, res.Stderr)
				require.Equal(t, "r1", r.LeftBy(t.Context(), final))
				treetest.Tick(t)
				at := func(name string) string {
					full := filepath.Join(final, name)
					require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
					return full
				}
				require.NoError(t, c.change(at))
				want, err := os.Lstat(filepath.Join(final, c.kept))
				require.NoError(t, err)
				everything := treetest.Everything(t, final)
				require.Empty(t, r.LeftBy(t.Context(), final))

				res, err = r.Run(t.Context(), identityRequest("r2", final, transfer))
				require.NoError(t, err)
				require.Contains(t, strings.Join(res.Warnings, "\n"), "they are now in "+final+".before-r2")
				require.Equal(t, everything, treetest.Everything(t, final+".before-r2"), "everything is there")
				kept, err := os.Lstat(filepath.Join(final+".before-r2", c.kept))
				require.NoError(t, err)
				require.True(t, os.SameFile(want, kept))

				// What that run left is deleted by the next.
				res, err = r.Run(t.Context(), identityRequest("r3", final, transfer))
				require.NoError(t, err)
				require.NotContains(t, strings.Join(res.Warnings, "\n"), "before")
				require.NoDirExists(t, final+".before-r3")
			})
		}
	}
}

// older replaces a file by one of equal size that is older than the run, as cp -p does.
func older(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	copied := path + ".copy"
	return errors.Join(os.WriteFile(copied, make([]byte, info.Size()), 0o644),
		os.Chtimes(copied, info.ModTime().AddDate(-1, 0, 0), info.ModTime().AddDate(-1, 0, 0)), os.Rename(copied, path))
}

// olderInPlace writes into the file instead.
func olderInPlace(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(path, []byte(strings.Repeat("m", int(info.Size()))), 0o644), os.Chtimes(path, info.ModTime(), info.ModTime()))
}

// TestFilesOfOthersDuringARun: somebody puts a file into ./final while the program runs, while
// the files are handed back, or while the outputs are moved away. It is never deleted.
func TestFilesOfOthersDuringARun(t *testing.T) {
	if !treetest.IsRoot() {
		return // files of one user cannot be distinguished while the program runs
	}
	final := filepath.Join(t.TempDir(), "final")
	const somebody = 12345
	r := newFakeRunner(t, enginetest.NewFake(func(p *enginetest.Program) int {
		if err := errors.Join(os.WriteFile(p.Final("notes"), []byte("mine"), 0o600), os.Chown(p.Final("notes"), somebody, somebody)); err != nil {
			return 1
		}
		return leaves(p)
	}))
	res, err := r.Run(t.Context(), identityRequest("r1", final, spec.TransferBind))
	require.NoError(t, err)
	require.Equal(t, 0, res.ExitCode, res.Stderr)
	require.Equal(t, []uint32{somebody}, treetest.Owners(t, filepath.Join(final, "notes")))
	require.Empty(t, r.LeftBy(t.Context(), final))
	_, err = r.Run(t.Context(), identityRequest("r2", final, spec.TransferBind))
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(final+".before-r2", "notes"))
}

// TestFinalThatSomebodyWritesTo: the outputs of the run before lie in ./final until this
// one has ended. Somebody with an open file there goes on writing, and loses nothing.
func TestFinalThatSomebodyWritesTo(t *testing.T) {
	for name, write := range map[string]func(log *os.File, final string) error{
		"to an open file": func(log *os.File, _ string) error { _, err := log.WriteString("more"); return err },
		"a new file":      func(_ *os.File, final string) error { return os.WriteFile(filepath.Join(final, "new"), nil, 0o644) },
		"a new file far down": func(_ *os.File, final string) error {
			return os.WriteFile(filepath.Join(final, "a/b/c/d/new"), nil, 0o644)
		},
	} {
		t.Run(name, func(t *testing.T) {
			final := filepath.Join(t.TempDir(), "final")
			var log *os.File
			r := newFakeRunner(t, enginetest.NewFake(func(p *enginetest.Program) int {
				if log != nil {
					treetest.Tick(t)
					if err := write(log, final); err != nil {
						p.PrintErr(err.Error())
						return 1
					}
				}
				return leaves(p)
			}))
			_, err := r.Run(t.Context(), identityRequest("r1", final, spec.TransferBind))
			require.NoError(t, err)
			log, err = os.OpenFile(filepath.Join(final, "out.csv"), os.O_WRONLY|os.O_APPEND, 0)
			require.NoError(t, err)
			defer log.Close()
			res, err := r.Run(t.Context(), identityRequest("r2", final, spec.TransferBind))
			require.NoError(t, err)
			require.Equal(t, 0, res.ExitCode, res.Stderr)
			require.FileExists(t, final+".before-r2/out.csv")
			require.Contains(t, strings.Join(res.Warnings, "\n"), "they are now in "+final+".before-r2")
		})
	}
}

// TestFailedStartKeepsTheIdentity: what an earlier run left is put back, and is still known as
// that.
func TestFailedStartKeepsTheIdentity(t *testing.T) {
	final := filepath.Join(t.TempDir(), "final")
	fake := enginetest.NewFake(leaves)
	r := newFakeRunner(t, fake)
	_, err := r.Run(t.Context(), identityRequest("r1", final, spec.TransferBind))
	require.NoError(t, err)
	before := treetest.Everything(t, final)
	fake.Fail.Start = errors.New("no such runtime")
	_, err = r.Run(t.Context(), identityRequest("r2", final, spec.TransferBind))
	require.ErrorIs(t, err, fake.Fail.Start)
	require.Equal(t, before, treetest.Everything(t, final))
	require.Equal(t, "r1", r.LeftBy(t.Context(), final))
	fake.Fail.Start = nil
	res, err := r.Run(t.Context(), identityRequest("r3", final, spec.TransferBind))
	require.NoError(t, err)
	require.NotContains(t, strings.Join(res.Warnings, "\n"), "before")
}

// TestNoRoomBeside: the directory above ./final may take no new one, as for a mount point. Then
// what the earlier run left is deleted in ./final itself, and what it did not leave is refused.
func TestNoRoomBeside(t *testing.T) {
	if !treetest.IsRoot() {
		return // needs a mount
	}
	final := filepath.Join(t.TempDir(), "final")
	treetest.MountTmpfs(t, final, "size=10m")
	r := newFakeRunner(t, enginetest.NewFake(leaves))
	for _, id := range []string{"r1", "r2"} {
		res, err := r.Run(t.Context(), identityRequest(id, final, spec.TransferBind))
		require.NoError(t, err)
		require.Equal(t, 0, res.ExitCode, res.Stderr)
		require.NoDirExists(t, filepath.Join(final, ".evalbox-before-"+id))
	}
	require.NoError(t, os.WriteFile(filepath.Join(final, "a/b/c/d/mine"), []byte("mine"), 0o644))
	before := treetest.Everything(t, final)
	_, err := r.Run(t.Context(), identityRequest("r3", final, spec.TransferBind))
	require.ErrorContains(t, err, "holds what no run left there, and it cannot be moved aside")
	require.Equal(t, before, treetest.Everything(t, final))
	require.NoDirExists(t, final+".before-r3")
}

// TestFinalThatCannotBeFilled: its disk became read-only. A garbage collection, or the next
// run, publishes the outputs later.
func TestFinalThatCannotBeFilled(t *testing.T) {
	if !treetest.IsRoot() {
		return // needs a mount
	}
	for name, again := range map[string]func(t *testing.T, r *Runner, final string){
		"sandbox gc": func(t *testing.T, r *Runner, final string) {
			_, err := r.GC(t.Context(), GCOptions{})
			require.NoError(t, err)
			require.Equal(t, []uint32{12345, 12345}, treetest.Owners(t, final, filepath.Join(final, "out.csv")))
		},
		"the next run": func(t *testing.T, r *Runner, final string) {
			_, err := r.Run(t.Context(), identityRequest("r2", final, spec.TransferBind))
			require.NoError(t, err)
			require.Equal(t, []uint32{12345, 12345}, treetest.Owners(t, final, filepath.Join(final, "out.csv")))
			require.NoDirExists(t, final+".before-r2", "it has replaced what r1 left")
		},
	} {
		t.Run(name, func(t *testing.T) {
			disk := filepath.Join(t.TempDir(), "disk")
			treetest.MountTmpfs(t, disk, "size=10m")
			final := filepath.Join(disk, "final")
			require.NoError(t, os.Mkdir(final, 0o750))
			require.NoError(t, os.Chown(final, 12345, 12345))
			readOnly := false
			fake := enginetest.NewFake(func(p *enginetest.Program) int {
				code := leaves(p)
				if !readOnly {
					readOnly = true
					p.End(func(*engine.End) { require.NoError(t, unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")) })
				}
				return code
			})
			r := newFakeRunner(t, fake)
			res, err := r.Run(t.Context(), identityRequest("r1", final, spec.TransferBind))
			require.NoError(t, err)
			require.Equal(t, result.StatusExited, res.Status)
			require.Contains(t, strings.Join(res.Warnings, "\n"), "not all outputs can be taken back from the program: ")
			require.Empty(t, treetest.Everything(t, final))
			_, err = r.GC(t.Context(), GCOptions{})
			require.ErrorIs(t, err, unix.EROFS, "it still cannot")

			require.NoError(t, unix.Mount("", disk, "", unix.MS_REMOUNT, ""))
			again(t, r, final)
			info, err := os.Stat(final)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o750), info.Mode().Perm())
		})
	}
}

// TestNotesAreBounded: the state directory has a note for each ./final that exists, and no more.
func TestNotesAreBounded(t *testing.T) {
	base := t.TempDir()
	r := newFakeRunner(t, enginetest.NewFake(leaves))
	for i := range 5 {
		_, err := r.Run(t.Context(), identityRequest(fmt.Sprint("r", i), filepath.Join(base, fmt.Sprint(i)), spec.TransferBind))
		require.NoError(t, err)
	}
	locks := r.store.LocksDir()
	require.Len(t, treetest.Everything(t, locks), 6, "one for each ./final, and one file of locks")
	require.NoError(t, os.RemoveAll(filepath.Join(base, "1")))
	require.NoError(t, r.Store().Remove("r3"))
	_, err := r.GC(t.Context(), GCOptions{DryRun: true})
	require.NoError(t, err)
	require.Len(t, treetest.Everything(t, locks), 6)
	_, err = r.GC(t.Context(), GCOptions{})
	require.NoError(t, err)
	require.Len(t, treetest.Everything(t, locks), 5, "a program may have left a link in a directory, also if its record is gone")
	require.Equal(t, "r0", r.LeftBy(t.Context(), filepath.Join(base, "0")))
}

// TestFinalThatItsProgramClosed: the permissions of the directory come back, and everything in
// it is collected, also what the program closed to its own user, who may be ours.
func TestFinalThatItsProgramClosed(t *testing.T) {
	final := filepath.Join(t.TempDir(), "final")
	require.NoError(t, os.Mkdir(final, 0o750))
	r := newFakeRunner(t, enginetest.NewFake(func(p *enginetest.Program) int {
		err := errors.Join(
			os.MkdirAll(p.Final("sub"), 0o755), os.WriteFile(p.Final("sub/file"), []byte("x"), 0), os.WriteFile(p.Final("file"), []byte("x"), 0),
			os.Chmod(p.Final("sub"), 0), os.Chmod(p.Final(""), 0))
		if err != nil {
			p.PrintErr(err.Error())
			return 1
		}
		return 0
	}))
	res, err := r.Run(t.Context(), finalRequest("r1", final))
	require.NoError(t, err)
	require.Equal(t, 0, res.ExitCode, res.Stderr)
	require.Equal(t, []string{"a warning of the engine"}, res.Warnings)
	require.Len(t, res.Outputs, 2, "%v", res.OutputsSkipped)
	require.Equal(t, "0000", res.Outputs[1].Mode, "as the program left it")
	info, err := os.Stat(final)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o750), info.Mode().Perm())
	require.Equal(t, "r1", r.LeftBy(t.Context(), final))
}
