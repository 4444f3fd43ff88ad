package fsx_test

import (
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
)

// A process that is being started shares the open files until it executes its program: a lock is
// free when it is closed, and not a moment later.
func TestLocksAreFreeOnceClosed(t *testing.T) {
	dir := t.TempDir()
	directory := func() (io.Closer, error) { return fsx.LockPath(dir) }
	bytes := func() (io.Closer, error) {
		locks, err := fsx.OpenByteLocks(filepath.Join(dir, "locks"))
		if err == nil {
			err = errors.Join(locks.Lock(1), locks.Lock(math.MaxInt64))
		}
		return locks, err
	}
	for name, test := range map[string]struct{ lock, again func() (io.Closer, error) }{
		"of a directory":          {directory, directory},
		"of a directory, awaited": {func() (io.Closer, error) { return fsx.LockWait(t.Context(), dir) }, directory},
		"of bytes":                {bytes, bytes},
	} {
		t.Run(name, func(t *testing.T) {
			held, err := test.lock()
			require.NoError(t, err)
			require.NotZero(t, shareOpenFiles(t, dir))
			require.NoError(t, held.Close())
			again, err := test.again()
			require.NoError(t, err)
			require.NoError(t, again.Close())
		})
	}
}

// shareOpenFiles keeps a second descriptor of each open file at or below a directory, as a
// process has that is being started. It returns their number.
func shareOpenFiles(t *testing.T, dir string) (n int) {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, entry := range entries {
		path, _ := os.Readlink("/proc/self/fd/" + entry.Name()) // that of the listing is closed
		if path != dir && !strings.HasPrefix(path, dir+"/") {
			continue
		}
		fd, err := strconv.Atoi(entry.Name())
		require.NoError(t, err)
		shared, err := unix.Dup(fd)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, unix.Close(shared)) })
		n++
	}
	return n
}
