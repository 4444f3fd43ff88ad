package fsx_test

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
)

func openLocks(t *testing.T, path string) *fsx.ByteLocks {
	t.Helper()
	locks, err := fsx.OpenByteLocks(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = locks.Close() }) // a test may have closed it
	return locks
}

func TestByteLocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks")
	a, b := openLocks(t, path), openLocks(t, path)
	require.NoError(t, a.Lock(7))
	require.ErrorIs(t, b.Lock(7), fsx.ErrLocked, "two openings of one process exclude each other")
	require.ErrorIs(t, b.RLock(7), fsx.ErrLocked)
	require.NoError(t, b.Lock(8), "each byte is a lock of its own")
	require.NoError(t, b.Lock(math.MaxInt64))
	require.NoError(t, a.Lock(7), "again, by the one that has it")

	require.NoError(t, a.RLock(9))
	require.NoError(t, b.RLock(9), "shared")
	require.ErrorIs(t, a.Lock(9), fsx.ErrLocked)

	require.NoError(t, a.Unlock(7))
	require.NoError(t, b.Lock(7))
	require.NoError(t, b.Close())
	require.NoError(t, a.Lock(7), "closing frees every lock")
	require.NoError(t, a.Lock(8))
	require.NoError(t, a.Lock(9))

	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Zero(t, info.Size(), "any number of locks takes no space")
	require.Equal(t, os.FileMode(0o600), info.Mode())
}

// A process that is started meanwhile must not keep the locks.
func TestByteLocksAreNotInherited(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks")
	a := openLocks(t, path)
	require.NoError(t, a.Lock(1))
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	require.NoError(t, a.Close())
	require.NoError(t, openLocks(t, path).Lock(1))
	require.NoError(t, in.Close())
	require.NoError(t, child.Wait())
}

func TestByteLocksAreARegularFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	require.NoError(t, os.Symlink("file", filepath.Join(dir, "link")))
	for _, name := range []string{"link", "."} {
		_, err := fsx.OpenByteLocks(filepath.Join(dir, name))
		require.Error(t, err, name)
	}
}
