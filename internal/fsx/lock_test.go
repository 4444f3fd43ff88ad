package fsx

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLock(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	lock, err := Lock(root)
	require.NoError(t, err)
	_, err = Lock(root)
	require.ErrorIs(t, err, ErrLocked)
	require.NoError(t, lock.Close())
	again, err := Lock(root)
	require.NoError(t, err)
	require.NoError(t, again.Close())
}
