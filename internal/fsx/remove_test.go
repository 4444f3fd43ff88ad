//go:build linux

package fsx_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treetest"
)

func TestEmptyTreeKeepsTheFolderItself(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o751))
	treetest.Write(t, dir, map[string]string{"a": "x", "b/c/d/e": "x", "empty/": "", ".hidden": "x", "-rf": "x", "new\nline\xff": "x"})
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "b/fifo"), 0o600))
	before := treetest.Inode(t, dir)
	require.NoError(t, fsx.Empty(treetest.Root(t, dir)))
	require.Empty(t, treetest.Everything(t, dir))
	require.Equal(t, before, treetest.Inode(t, dir))
	info, err := os.Stat(dir)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o751), info.Mode().Perm(), "its mode is the caller's")
	require.NoError(t, fsx.Empty(treetest.Root(t, dir)), "an empty directory is not an error")
}

func TestDeletingFollowsNothing(t *testing.T) {
	for name, remove := range map[string]func(dir string) error{
		"emptyTree": func(dir string) error {
			root, err := os.OpenRoot(dir)
			return errors.Join(err, fsx.Empty(root), root.Close(), os.Remove(dir))
		},
		"removeTree": fsx.Remove,
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
			require.Equal(t, []string{"canary", "folder", "folder/canary"}, treetest.Everything(t, outside))
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
	require.NoError(t, fsx.Empty(treetest.Root(t, dir)))
	require.Empty(t, treetest.Everything(t, dir))
}

func TestDeepTreesCanBeDeleted(t *testing.T) {
	const levels = 5000
	require.Greater(t, levels*len("/deep"), unix.PathMax)
	treetest.WithFewDescriptors(t, func() {
		dir := t.TempDir()
		treetest.Nest(t, dir, levels)
		require.NoError(t, fsx.Empty(treetest.Root(t, dir)))
		require.Empty(t, treetest.Everything(t, dir))

		record := filepath.Join(dir, "record")
		require.NoError(t, os.Mkdir(record, 0o700))
		treetest.Nest(t, record, levels)
		require.NoError(t, fsx.Remove(record))
		require.Empty(t, treetest.Everything(t, dir))
	})
}

func TestRemoveTreeOfOtherThings(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	treetest.Write(t, outside, map[string]string{"canary": "alive"})
	require.NoError(t, fsx.Remove(filepath.Join(dir, "never was")))

	treetest.Write(t, dir, map[string]string{"file": "x", "empty/": ""})
	require.NoError(t, fsx.Remove(filepath.Join(dir, "file")))
	require.NoError(t, fsx.Remove(filepath.Join(dir, "empty")))

	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink(outside, link))
	require.NoError(t, fsx.Remove(link))
	require.Equal(t, []string{"canary"}, treetest.Everything(t, outside), "the link goes, and not what it leads to")
	require.Empty(t, treetest.Everything(t, dir))
}

// A program may take rights from its directories; their owner can still delete
// them.
func TestFoldersWithoutRightsAreDeleted(t *testing.T) {
	for _, mode := range []uint32{0, 0o100, 0o200, 0o300, 0o400, 0o500} {
		for _, whole := range []bool{false, true} {
			t.Run(fmt.Sprintf("%04o whole=%v", mode, whole), func(t *testing.T) {
				base := treetest.OtherUsersDir(t)
				treetest.AsOtherUser(t, func() {
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
						if err := fsx.Remove(dir); err != nil {
							t.Error(err)
						}
						if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
							t.Error("the directory is still there")
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
					if err := fsx.Empty(root); err != nil {
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
	if !treetest.IsRoot() {
		return // only root can make what its user cannot delete
	}
	base := treetest.OtherUsersDir(t)
	treetest.Write(t, base, map[string]string{"roots/file": "x", "roots/more/": ""})
	treetest.AsOtherUser(t, func() {
		root, err := os.OpenRoot(base)
		if err != nil {
			t.Error(err)
			return
		}
		defer root.Close()
		if err := fsx.Empty(root); !errors.Is(err, os.ErrPermission) {
			t.Errorf("fsx.Empty: %v", err)
		}
		if err := fsx.Remove(filepath.Join(base, "roots")); !errors.Is(err, os.ErrPermission) {
			t.Errorf("fsx.Remove: %v", err)
		}
	})
	require.Equal(t, []string{"roots", "roots/file", "roots/more"}, treetest.Everything(t, base))
}
