//go:build unix

package repo

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUntracked: what git does not track is listed, ignored or new, and by nothing else
// than the index.
func TestUntracked(t *testing.T) {
	f := newFixture(t)
	f.write("w/a", "1")
	f.write("w/sub/deep/b", "2")
	f.write("w/.gitignore", "ignored\n*.log\n")
	f.write("other", "1")
	f.commit()
	list, err := Untracked(t.Context(), f.dir)
	require.NoError(t, err)
	require.Empty(t, list)

	f.write("w/.gitignore", "ignored\n*.log\nsub\n")
	f.write("w/ignored/x", "1")
	f.write("w/sub/deep/x.log", "1")
	f.write("w/sub/new/x", "1")
	f.write("w/sub/.git/config", "a repository of its own")
	f.write("elsewhere", "1")
	f.write("w/a", "changed and tracked")
	require.NoError(t, os.Symlink("a", f.path("w/link")))
	require.NoError(t, os.Mkdir(f.path("w/empty"), 0o755))
	list, err = Untracked(t.Context(), f.path("w"))
	require.NoError(t, err)
	require.Equal(t, []string{"empty", "ignored", "link", "sub/deep/x.log", "sub/new"}, list)

	list, err = Untracked(t.Context(), t.TempDir())
	require.NoError(t, err)
	require.Empty(t, list)
	_, err = Untracked(t.Context(), filepath.Join(f.dir, "none"))
	require.Error(t, err)
}

// TestStatusOf compares a copy with the commit, whatever the original holds meanwhile.
func TestStatusOf(t *testing.T) {
	f := newFixture(t)
	f.write("w/a", "1")
	f.write("w/b", "1")
	f.write(".gitignore", "*.log\n")
	f.commit()
	plain := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(plain, "a"), []byte("1"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(plain, "x.log"), []byte("1"), 0o644))
	f.write("w/a", "2")
	r, differ, err := StatusOf(t.Context(), f.path("w"), plain, []string{"b"})
	require.NoError(t, err)
	require.Empty(t, differ)
	require.Equal(t, "..", r.Root)
	f.write("w/a", "1")
	require.NoError(t, os.WriteFile(filepath.Join(plain, "a"), []byte("2"), 0o644))
	_, differ, err = StatusOf(t.Context(), f.path("w"), plain, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b"}, differ)
}
