package treetest

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// OtherUser is the ID of an ordinary user without an account.
const OtherUser = 64647

// IsRoot reports whether a test has the rights of root.
func IsRoot() bool { return os.Geteuid() == 0 }

// AsOtherUser runs f with the file rights of an ordinary user. It changes one
// thread, which ends with f. Inside, only t.Error may be used.
func AsOtherUser(t *testing.T, f func()) {
	t.Helper()
	if !IsRoot() {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread must not be used again
		if err := errors.Join(unix.Setfsgid(OtherUser), unix.Setfsuid(OtherUser)); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

// OtherUsersDir makes a directory that [OtherUser] owns and can reach.
func OtherUsersDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "other-user-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	if IsRoot() {
		require.NoError(t, os.Chown(dir, OtherUser, OtherUser))
	}
	return dir
}

// Everything lists the paths below a directory, sorted.
func Everything(t testing.TB, dir string) []string {
	t.Helper()
	names := []string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if path != dir {
			names = append(names, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	}))
	slices.Sort(names)
	return names
}

// Inode returns the inode number of a path.
func Inode(t testing.TB, path string) uint64 {
	t.Helper()
	var stat unix.Stat_t
	require.NoError(t, unix.Lstat(path, &stat))
	return stat.Ino
}

// Nest makes a chain of directories whose path is far longer than any path may be, with a
// file on every hundredth level, and something beside the chain.
func Nest(t testing.TB, dir string, levels int) {
	t.Helper()
	at, err := os.OpenRoot(dir)
	require.NoError(t, err)
	for i := range levels {
		require.NoError(t, at.Mkdir("deep", 0o755))
		if i%100 == 0 {
			require.NoError(t, at.WriteFile("file", []byte("x"), 0o644))
			require.NoError(t, at.MkdirAll("beside/more", 0o755))
		}
		next, err := at.OpenRoot("deep")
		require.NoError(t, err)
		require.NoError(t, at.Close())
		at = next
	}
	require.NoError(t, at.Close())
}

// MountTmpfs mounts a file system in memory; only root can.
func MountTmpfs(t *testing.T, dir, options string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, unix.Mount("evalbox-test", dir, "tmpfs", 0, options))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}
