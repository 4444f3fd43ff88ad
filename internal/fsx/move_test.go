package fsx_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treetest"
)

// TestMove: an entry of any kind keeps its name, and replaces nothing.
func TestMove(t *testing.T) {
	base := t.TempDir()
	treetest.Write(t, base, map[string]string{"from/file": "new", "from/dir/file": "x", "to/taken": "old", "from/taken": "new"})
	require.NoError(t, os.Symlink("nowhere", filepath.Join(base, "from/link")))
	from, err := os.Open(filepath.Join(base, "from"))
	require.NoError(t, err)
	defer from.Close()
	to, err := os.Open(filepath.Join(base, "to"))
	require.NoError(t, err)
	defer to.Close()
	for _, name := range []string{"file", "dir", "link"} {
		require.NoError(t, fsx.Move(from, to, name))
	}
	require.ErrorIs(t, fsx.Move(from, to, "taken"), fs.ErrExist)
	require.ErrorIs(t, fsx.Move(from, to, "gone"), fs.ErrNotExist)
	require.Equal(t, "old", treetest.Read(t, filepath.Join(base, "to/taken")))
	require.Equal(t, []string{"dir", "dir/file", "file", "link", "taken"}, treetest.Everything(t, filepath.Join(base, "to")))
	require.Equal(t, []string{"taken"}, treetest.Everything(t, filepath.Join(base, "from")))
}
