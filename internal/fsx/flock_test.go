package fsx

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestErrorsOfLocks: only a file system without locks locks nothing. Any other error is returned.
func TestErrorsOfLocks(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, dir.Close())
	_, err = lock(dir, nil)
	require.ErrorIs(t, err, syscall.EBADF)
}
