package fsx

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/treetest"
)

func always() bool { return true }

func tree(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		if !strings.HasSuffix(name, "/") {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o644))
		}
	}
	return dir
}

func TestVisitsEveryEntryOnce(t *testing.T) {
	dir := tree(t, "a", "b/c/d", "b/c/e", "b/f", "g/", "h/i/j/k", "l")
	require.NoError(t, os.Symlink("/", filepath.Join(dir, "b/link")))
	require.NoError(t, os.Symlink("..", filepath.Join(dir, "b/c/up")))
	var got []string
	require.NoError(t, Visit(treetest.Root(t, dir), always, func(v Visited) error {
		at, name, stat := v.Dir, v.Name, v.Stat
		var again unix.Stat_t
		require.NoError(t, unix.Fstatat(at, name, &again, unix.AT_SYMLINK_NOFOLLOW))
		require.Equal(t, again.Ino, stat.Ino, "the directory that is passed holds the name")
		got = append(got, name)
		return nil
	}))
	slices.Sort(got)
	require.Equal(t, []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "link", "up"}, got)
}

func TestStopsWhenTold(t *testing.T) {
	dir := tree(t, "a/b/c/d/e/f/g")
	seen := 0
	require.NoError(t, Visit(treetest.Root(t, dir), func() bool { return seen < 3 }, func(Visited) error {
		seen++
		return nil
	}))
	require.Equal(t, 3, seen)
}

func TestGoesOnAfterErrors(t *testing.T) {
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprint("d", i, "/f"))
	}
	refused := errors.New("refused")
	seen := 0
	err := Visit(treetest.Root(t, tree(t, names...)), always, func(Visited) error {
		seen++
		return refused
	})
	require.Equal(t, 200, seen)
	require.ErrorIs(t, err, refused)
	require.Len(t, strings.Split(err.Error(), "\n"), maxErrors)
}

func TestFolderThatVanishes(t *testing.T) {
	dir := tree(t, "a/", "b/f")
	var got []string
	err := Visit(treetest.Root(t, dir), always, func(v Visited) error {
		at, name := v.Dir, v.Name
		got = append(got, name)
		if name == "a" {
			return unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
		}
		return nil
	})
	require.ErrorIs(t, err, os.ErrNotExist)
	slices.Sort(got)
	require.Equal(t, []string{"a", "b", "f"}, got)
}

func TestFolderThatBecomesALink(t *testing.T) {
	outside := tree(t, "canary")
	dir := tree(t, "a/", "b")
	err := Visit(treetest.Root(t, dir), always, func(v Visited) error {
		at, name := v.Dir, v.Name
		require.NotEqual(t, "canary", name)
		if name == "a" {
			return errors.Join(unix.Unlinkat(at, name, unix.AT_REMOVEDIR), unix.Symlinkat(outside, at, name))
		}
		return nil
	})
	require.Error(t, err)
}

// A directory that is moved while Visit is in it must not lead it out of the tree.
func TestFolderThatIsMovedAway(t *testing.T) {
	base := tree(t, "root/a/b/c/f", "root/z/f", "outside/canary", "outside/z/canary")
	var got []string
	err := Visit(treetest.Root(t, filepath.Join(base, "root")), always, func(v Visited) error {
		name := v.Name
		got = append(got, name)
		if name == "f" && len(got) > 3 {
			_ = os.Rename(filepath.Join(base, "root/a/b/c"), filepath.Join(base, "outside/c")) // once
		}
		return nil
	})
	require.Error(t, err)
	require.NotContains(t, got, "canary")
	slices.Sort(got)
	require.Equal(t, []string{"a", "b", "c", "f", "f", "z"}, got, "the rest is still visited")
}

func TestClosedRoot(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, root.Close())
	require.ErrorIs(t, Visit(root, always, nil), os.ErrClosed)
}

// TestWalk goes level by level, into the directories that it is let into, and follows nothing.
func TestWalk(t *testing.T) {
	dir := tree(t, "a", "b/c/d", "b/e", "left/out", "z/")
	require.NoError(t, os.Symlink("/", filepath.Join(dir, "b/link")))
	var got []string
	walk := func(ctx context.Context, each func(name string) error) error {
		got = nil
		return Walk(ctx, treetest.Root(t, dir), func(name string, _ fs.FileInfo) (bool, error) {
			got = append(got, name)
			return name != "left", each(name)
		})
	}
	require.NoError(t, walk(t.Context(), func(string) error { return nil }))
	require.Equal(t, []string{"a", "b", "left", "z", "b/c", "b/e", "b/link", "b/c/d"}, got)

	refused := errors.New("refused")
	require.Equal(t, refused, walk(t.Context(), func(name string) error {
		if name == "left" {
			return refused
		}
		return nil
	}))
	require.Equal(t, []string{"a", "b", "left"}, got)

	ctx, cancel := context.WithCancelCause(t.Context())
	require.Equal(t, refused, walk(ctx, func(string) error { cancel(refused); return nil }))
	require.Equal(t, []string{"a"}, got)

	require.NoError(t, walk(t.Context(), func(name string) error {
		if name == "a" {
			return os.Remove(filepath.Join(dir, "z"))
		}
		return nil
	}))
	require.NotContains(t, got, "z", "it vanished")
	require.ErrorIs(t, walk(t.Context(), func(name string) error {
		if name != "b/c" {
			return nil
		}
		return errors.Join(os.Rename(filepath.Join(dir, "b/c"), filepath.Join(dir, "moved")), os.Symlink("../left", filepath.Join(dir, "b/c")))
	}), ErrReplaced, "a link in the place of a directory")
}
