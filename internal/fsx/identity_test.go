package fsx_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treetest"
)

func identify(t *testing.T, dir string) fsx.Identity {
	t.Helper()
	id, err := fsx.Identify(t.Context(), treetest.Root(t, dir), 1000)
	require.NoError(t, err)
	require.NotNil(t, id)
	return *id
}

// TestEveryChangeChangesTheIdentity: whatever somebody does to a tree shows, without a content
// being read.
func TestEveryChangeChangesTheIdentity(t *testing.T) {
	for name, change := range map[string]func(at func(string) string) error{
		"a new file":            func(at func(string) string) error { return os.WriteFile(at("mine"), nil, 0o644) },
		"a new file deep below": func(at func(string) string) error { return os.WriteFile(at("a/b/c/d/mine"), nil, 0o644) },
		"a new empty directory": func(at func(string) string) error { return os.Mkdir(at("a/b/mine"), 0o755) },
		"a file that is gone":   func(at func(string) string) error { return os.Remove(at("a/b/c/d/file")) },
		"other content":         func(at func(string) string) error { return os.WriteFile(at("a/file"), []byte("y"), 0o644) },
		"other permissions":     func(at func(string) string) error { return os.Chmod(at("a/file"), 0o600) },
		"another name":          func(at func(string) string) error { return os.Rename(at("a/file"), at("a/other")) },
		"another place":         func(at func(string) string) error { return os.Rename(at("a/file"), at("a/b/file2")) },
		"a second name": func(at func(string) string) error {
			return os.Link(at("a/file"), filepath.Join(filepath.Dir(at("")), "outside"))
		},
		"another link":           func(at func(string) string) error { return relink(at("link"), "elsewhere") },
		"a link of equal target": func(at func(string) string) error { return relink(at("link"), "a/file") },
		// As cp -p of an older file does.
		"another file of equal size and time": func(at func(string) string) error {
			info, err := os.Stat(at("a/file"))
			if err != nil {
				return err
			}
			if err := os.WriteFile(at("new"), []byte("z"), 0o644); err != nil {
				return err
			}
			if err := os.Chtimes(at("new"), info.ModTime(), info.ModTime()); err != nil {
				return err
			}
			return os.Rename(at("new"), at("a/file"))
		},
		"other content of equal size and time": func(at func(string) string) error {
			info, err := os.Stat(at("a/file"))
			if err != nil {
				return err
			}
			if err := os.WriteFile(at("a/file"), []byte("z"), 0o644); err != nil {
				return err
			}
			return os.Chtimes(at("a/file"), info.ModTime(), info.ModTime())
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "tree")
			treetest.Write(t, dir, map[string]string{"a/file": "x", "a/b/c/d/file": "x"})
			require.NoError(t, os.Symlink("a/file", filepath.Join(dir, "link")))
			before := identify(t, dir)
			require.Equal(t, 7, before.Entries)
			require.Equal(t, before, identify(t, dir), "looking changes nothing")
			_, err := os.ReadFile(filepath.Join(dir, "a/file"))
			require.NoError(t, err)
			require.Equal(t, before, identify(t, dir), "nor does reading")
			treetest.Tick(t)
			require.NoError(t, change(func(name string) string { return filepath.Join(dir, name) }))
			after := identify(t, dir)
			require.NotEqual(t, before.Tree, after.Tree)
			require.NotEqual(t, before.Moved, after.Moved)
		})
	}
}

func relink(at, to string) error {
	if err := os.Remove(at); err != nil {
		return err
	}
	return os.Symlink(to, at)
}

// TestIdentityOfWhatWasMoved: entries that are moved to another directory keep one of the two.
func TestIdentityOfWhatWasMoved(t *testing.T) {
	base := t.TempDir()
	treetest.Write(t, base, map[string]string{"from/a/b/file": "x", "from/file": "x", "to/": ""})
	require.NoError(t, os.Link(filepath.Join(base, "from/file"), filepath.Join(base, "from/a/b/name")))
	before := identify(t, filepath.Join(base, "from"))
	treetest.Tick(t)
	for _, name := range []string{"a", "file"} {
		require.NoError(t, os.Rename(filepath.Join(base, "from", name), filepath.Join(base, "to", name)))
	}
	after := identify(t, filepath.Join(base, "to"))
	require.Equal(t, before.Moved, after.Moved)
	require.NotEqual(t, before.Tree, after.Tree)
	require.NoError(t, os.WriteFile(filepath.Join(base, "to/a/b/file"), []byte("y"), 0o644))
	require.NotEqual(t, before.Moved, identify(t, filepath.Join(base, "to")).Moved)
}

func TestIdentityIsBounded(t *testing.T) {
	dir := t.TempDir()
	treetest.Write(t, dir, map[string]string{"a": "", "b/c": ""})
	root := treetest.Root(t, dir)
	id, err := fsx.Identify(t.Context(), root, 2)
	require.NoError(t, err)
	require.Nil(t, id, "more entries than have an identity")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = fsx.Identify(canceled, root, 3)
	require.ErrorIs(t, err, context.Canceled)

	id, err = fsx.Identify(t.Context(), root, 3)
	require.NoError(t, err)
	require.Len(t, id.Tree, 64)
	require.Len(t, id.Moved, 64)
}
