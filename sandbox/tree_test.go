//go:build linux

package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/treetest"
)

// stranger is an ordinary user of no account.
const stranger = 64647

// isRoot tells the parts of tests that only root can do; the others must pass as
// any user.
func isRoot() bool { return os.Geteuid() == 0 }

// asStranger runs f with the file rights of an ordinary user. It changes one
// thread, which ends with f. Inside, only t.Error may be used.
func asStranger(t *testing.T, f func()) {
	t.Helper()
	if !isRoot() {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread must not be used again
		if err := errors.Join(unix.Setfsgid(stranger), unix.Setfsuid(stranger)); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

// strangersFolder is a folder that belongs to whom asStranger runs as, and that
// it can reach.
func strangersFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "stranger-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	if isRoot() {
		require.NoError(t, os.Chown(dir, stranger, stranger))
	}
	return dir
}

// everything below a folder, by name.
func everything(t testing.TB, dir string) []string {
	t.Helper()
	names := []string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if path != dir {
			names = append(names, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	}))
	slices.Sort(names)
	return names
}

func inodeOf(t testing.TB, path string) uint64 {
	t.Helper()
	var stat unix.Stat_t
	require.NoError(t, unix.Lstat(path, &stat))
	return stat.Ino
}

func TestEmptyTreeKeepsTheFolderItself(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o751))
	treetest.Write(t, dir, map[string]string{"a": "x", "b/c/d/e": "x", "empty/": "", ".hidden": "x", "-rf": "x", "new\nline\xff": "x"})
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "b/fifo"), 0o600))
	before := inodeOf(t, dir)
	require.NoError(t, emptyTree(treetest.Root(t, dir)))
	require.Empty(t, everything(t, dir))
	require.Equal(t, before, inodeOf(t, dir))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o751), info.Mode().Perm(), "its mode is the caller's")
	require.NoError(t, emptyTree(treetest.Root(t, dir)), "an empty folder is no error")
}

func TestDeletingFollowsNothing(t *testing.T) {
	for name, remove := range map[string]func(dir string) error{
		"emptyTree": func(dir string) error {
			root, err := os.OpenRoot(dir)
			return errors.Join(err, emptyTree(root), root.Close(), os.Remove(dir))
		},
		"removeTree": removeTree,
	} {
		t.Run(name, func(t *testing.T) {
			outside := t.TempDir()
			treetest.Write(t, outside, map[string]string{"canary": "alive", "folder/canary": "alive"})
			dir := filepath.Join(t.TempDir(), "final")
			treetest.Write(t, dir, map[string]string{"a/b/file": "x"})
			for i, target := range []string{outside, outside + "/folder", outside + "/canary", "/", "..", "../..", ".", "nowhere", "self"} {
				for j, at := range []string{"", "a", "a/b"} {
					require.NoError(t, os.Symlink(target, filepath.Join(dir, at, fmt.Sprintf("link%d-%d", i, j))))
				}
			}
			require.NoError(t, os.Link(outside+"/canary", filepath.Join(dir, "hard")))
			require.NoError(t, remove(dir))
			require.NoDirExists(t, dir)
			require.Equal(t, []string{"canary", "folder", "folder/canary"}, everything(t, outside))
			text, err := os.ReadFile(filepath.Join(outside, "canary"))
			require.NoError(t, err)
			require.Equal(t, "alive", string(text))
		})
	}
}

func TestEmptyTreeOfThousands(t *testing.T) {
	dir := t.TempDir()
	for i := range 3000 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("file", i)), nil, 0o644))
	}
	for i := range 700 {
		treetest.Write(t, dir, map[string]string{fmt.Sprintf("wide/d%d/e/f", i): ""})
		treetest.Write(t, dir, map[string]string{fmt.Sprintf("d%d/", i): ""})
	}
	require.NoError(t, emptyTree(treetest.Root(t, dir)))
	require.Empty(t, everything(t, dir))
}

// nest makes a chain of folders whose path is far longer than any path may be,
// with a file on every hundredth level, and something beside the chain.
func nest(t testing.TB, dir string, levels int) {
	t.Helper()
	at, err := os.OpenRoot(dir)
	require.NoError(t, err)
	for i := range levels {
		require.NoError(t, at.Mkdir("deep", 0o755))
		if i%100 == 0 {
			require.NoError(t, at.WriteFile("file", []byte("x"), 0o644))
			require.NoError(t, at.MkdirAll("beside/more", 0o755))
		}
		next, err := at.OpenRoot("deep")
		require.NoError(t, err)
		require.NoError(t, at.Close())
		at = next
	}
	require.NoError(t, at.Close())
}

func TestDeepTreesCanBeDeleted(t *testing.T) {
	const levels = 5000
	require.Greater(t, levels*len("/deep"), unix.PathMax)
	treetest.WithFewDescriptors(t, func() {
		dir := t.TempDir()
		nest(t, dir, levels)
		require.NoError(t, emptyTree(treetest.Root(t, dir)))
		require.Empty(t, everything(t, dir))

		record := filepath.Join(dir, "record")
		require.NoError(t, os.Mkdir(record, 0o700))
		nest(t, record, levels)
		require.NoError(t, removeTree(record))
		require.Empty(t, everything(t, dir))
	})
}

func TestRemoveTreeOfOtherThings(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	treetest.Write(t, outside, map[string]string{"canary": "alive"})
	require.NoError(t, removeTree(filepath.Join(dir, "never was")))

	treetest.Write(t, dir, map[string]string{"file": "x", "empty/": ""})
	require.NoError(t, removeTree(filepath.Join(dir, "file")))
	require.NoError(t, removeTree(filepath.Join(dir, "empty")))

	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(outside, link))
	require.NoError(t, removeTree(link))
	require.Equal(t, []string{"canary"}, everything(t, outside), "the link goes, and not what it leads to")
	require.Empty(t, everything(t, dir))
}

// A program may take rights from its folders; whoever owns them can still delete
// them.
func TestFoldersWithoutRightsAreDeleted(t *testing.T) {
	for _, mode := range []uint32{0, 0o100, 0o200, 0o300, 0o400, 0o500} {
		for _, whole := range []bool{false, true} {
			t.Run(fmt.Sprintf("%04o whole=%v", mode, whole), func(t *testing.T) {
				base := strangersFolder(t)
				asStranger(t, func() {
					dir := filepath.Join(base, "final")
					for _, sub := range []string{"a/b/c/d", "a/b/x", "e", "f/g"} {
						if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
							t.Error(err)
						}
						if err := os.WriteFile(filepath.Join(dir, sub, "file"), nil, 0o400); err != nil {
							t.Error(err)
						}
					}
					for _, sub := range []string{"a/b/c/d", "a/b/c", "a/b", "e", "a", "f/g", "."} {
						if err := unix.Chmod(filepath.Join(dir, sub), mode); err != nil && sub != "." {
							t.Error(err)
						}
					}
					if whole {
						if err := removeTree(dir); err != nil {
							t.Error(err)
						}
						if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
							t.Error("the folder is still there")
						}
						return
					}
					// The run opened ./final before the program could do this.
					if err := unix.Chmod(dir, 0o700); err != nil {
						t.Error(err)
					}
					root, err := os.OpenRoot(dir)
					if err != nil {
						t.Error(err)
						return
					}
					defer root.Close()
					if err := unix.Chmod(dir, mode|0o100); err != nil {
						t.Error(err)
					}
					if err := emptyTree(root); err != nil {
						t.Error(err)
					}
					if err := os.Remove(dir); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

func TestWhatCannotBeDeletedIsAnError(t *testing.T) {
	if !isRoot() {
		return // only root can make what its user cannot delete
	}
	base := strangersFolder(t)
	treetest.Write(t, base, map[string]string{"roots/file": "x", "roots/more/": ""})
	asStranger(t, func() {
		root, err := os.OpenRoot(base)
		if err != nil {
			t.Error(err)
			return
		}
		defer root.Close()
		if err := emptyTree(root); !errors.Is(err, os.ErrPermission) {
			t.Errorf("emptyTree: %v", err)
		}
		if err := removeTree(filepath.Join(base, "roots")); !errors.Is(err, os.ErrPermission) {
			t.Errorf("removeTree: %v", err)
		}
	})
	require.Equal(t, []string{"roots", "roots/file", "roots/more"}, everything(t, base))
}

func owners(t testing.TB, paths ...string) []uint32 {
	t.Helper()
	var list []uint32
	for _, path := range paths {
		var stat unix.Stat_t
		require.NoError(t, unix.Lstat(path, &stat))
		list = append(list, stat.Uid)
	}
	return list
}

func TestChownTree(t *testing.T) {
	to := stranger
	if !isRoot() {
		to = os.Geteuid() // may give to itself only, which shows less
	}
	outside := t.TempDir()
	treetest.Write(t, outside, map[string]string{"canary": "x"})
	dir := t.TempDir()
	treetest.Write(t, dir, map[string]string{"a": "x", "b/c/d": "x", "b/suid": "x", "e/": "", "new\nline": "x"})
	require.NoError(t, os.Chmod(filepath.Join(dir, "b/suid"), 0o755|os.ModeSetuid|os.ModeSetgid))
	require.NoError(t, os.Symlink(filepath.Join(outside, "canary"), filepath.Join(dir, "b/link")))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "linkdir")))
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "b/fifo"), 0o600))
	before := owners(t, outside, filepath.Join(outside, "canary"))
	require.NoError(t, chownTree(treetest.Root(t, dir), -1, to, to))
	all := []string{dir}
	for _, name := range everything(t, dir) {
		all = append(all, filepath.Join(dir, name))
	}
	require.Len(t, all, 11)
	for i, uid := range owners(t, all...) {
		require.Equal(t, uint32(to), uid, all[i])
	}
	require.Equal(t, before, owners(t, outside, filepath.Join(outside, "canary")), "nothing was followed")
	if isRoot() {
		info, err := os.Stat(filepath.Join(dir, "b/suid"))
		require.NoError(t, err)
		require.Zero(t, info.Mode()&(os.ModeSetuid|os.ModeSetgid), "nobody is handed a program that runs as them")
	}
}

func TestChownTreeOfADeepTree(t *testing.T) {
	dir := t.TempDir()
	t.Cleanup(func() { require.NoError(t, removeTree(dir)) })
	nest(t, dir, 5000)
	treetest.WithFewDescriptors(t, func() {
		require.NoError(t, chownTree(treetest.Root(t, dir), -1, os.Geteuid(), os.Getegid()))
	})
	if isRoot() {
		require.NoError(t, chownTree(treetest.Root(t, dir), -1, stranger, stranger))
		info, err := treetest.Root(t, dir).Lstat(strings.Repeat("deep/", 4999) + "deep")
		require.NoError(t, err)
		uid, _, _ := ownerOf(info)
		require.Equal(t, stranger, uid)
	}
}

func TestChownTreeReportsWhatItCouldNotDo(t *testing.T) {
	dir := t.TempDir()
	for i := range 50 {
		treetest.Write(t, dir, map[string]string{fmt.Sprint(i): "x"})
	}
	if !isRoot() {
		err := chownTree(treetest.Root(t, dir), -1, 0, 0)
		require.ErrorIs(t, err, os.ErrPermission)
		return
	}
	require.NoError(t, os.Chmod(dir, 0o755))
	parent := filepath.Dir(dir)
	require.NoError(t, os.Chmod(parent, 0o755))
	root := treetest.Root(t, dir)
	asStranger(t, func() {
		err := chownTree(root, -1, stranger, stranger)
		if !errors.Is(err, os.ErrPermission) {
			t.Errorf("chownTree: %v", err)
		}
		if n := strings.Count(err.Error(), "\n"); n > 12 {
			t.Errorf("%d lines of errors", n)
		}
	})
}
