package fsx_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treetest"
)

func TestFreeBytes(t *testing.T) {
	free, ok := fsx.FreeBytes(t.TempDir())
	require.True(t, ok)
	require.Positive(t, free)
	_, ok = fsx.FreeBytes("/no/such/folder")
	require.False(t, ok)
}

func TestReserveSetsSpaceAside(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "reserve"))
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, fsx.Reserve(file, 1<<20))
	info, err := file.Stat()
	require.NoError(t, err)
	require.Equal(t, int64(1<<20), info.Size())

	if treetest.IsRoot() {
		dir := filepath.Join(t.TempDir(), "small")
		treetest.MountTmpfs(t, dir, "size=64k")
		full, err := os.Create(filepath.Join(dir, "reserve"))
		require.NoError(t, err)
		defer full.Close()
		require.True(t, fsx.IsNoSpace(fsx.Reserve(full, 1<<20)))
	}
}
