// Package treetest makes directories for tests.
package treetest

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Write makes files below dir; a name that ends in a slash is a directory.
func Write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		full := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			require.NoError(t, os.MkdirAll(full, 0o755))
			continue
		}
		require.NoError(t, os.MkdirAll(filepath.Dir(full), 0o755))
		require.NoError(t, os.WriteFile(full, []byte(text), 0o644))
	}
}

// Root opens a directory for the time of the test.
func Root(t testing.TB, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, root.Close()) })
	return root
}

// WithFewDescriptors lets f open 64 files at a time: a walk must not need one for
// every level of a tree.
func WithFewDescriptors(t *testing.T, f func()) {
	t.Helper()
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: before.Max}))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before)) }()
	f()
}

// Tick waits for the next step of the clock that the kernel gives files their times by.
func Tick(t testing.TB) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "clock")
	now := func() time.Time {
		require.NoError(t, os.WriteFile(path, nil, 0o644))
		info, err := os.Stat(path)
		require.NoError(t, err)
		return info.ModTime()
	}
	for began := now(); now().Equal(began); {
		runtime.Gosched()
	}
}

// Owners returns the user IDs that own the paths.
func Owners(t testing.TB, paths ...string) []uint32 {
	t.Helper()
	var list []uint32
	for _, path := range paths {
		var stat unix.Stat_t
		require.NoError(t, unix.Lstat(path, &stat))
		list = append(list, stat.Uid)
	}
	return list
}
