package fsx

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treetest"
)

func TestFreeBytes(t *testing.T) {
	free, ok := freeBytes(t.TempDir())
	require.True(t, ok)
	require.Positive(t, free)
	_, ok = freeBytes("/no/such/folder")
	require.False(t, ok)
}

func TestReserveSetsSpaceAside(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "reserve"))
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, reserve(file, 1<<20))
	info, err := file.Stat()
	require.NoError(t, err)
	require.Equal(t, int64(1<<20), info.Size())

	if treetest.IsRoot() {
		dir := filepath.Join(t.TempDir(), "small")
		treetest.MountTmpfs(t, dir, "size=64k")
		full, err := os.Create(filepath.Join(dir, "reserve"))
		require.NoError(t, err)
		defer full.Close()
		require.True(t, fsx.IsNoSpace(reserve(full, 1<<20)))
	}
}
