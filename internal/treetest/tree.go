// Package treetest makes directories for tests.
package treetest

import (
	"encoding/json"
	"flag"
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
		File(t, full, text)
	}
}

// Dir is a new directory with files.
func Dir(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	Write(t, dir, files)
	return dir
}

// File writes a file and makes its directory. It returns the path.
func File(t testing.TB, path, text string) string {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// Read is the content of a file.
func Read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

// Update is the flag -update of go test.
var Update = flag.Bool("update", false, "write the golden files anew")

// Golden compares a text with a file, which go test -update writes.
func Golden(t testing.TB, path, got string) {
	t.Helper()
	if *Update {
		File(t, path, got)
	}
	require.Equal(t, Read(t, path), got, "%s; write it anew with -update", path)
}

// GoldenJSON is Golden with a value as JSON.
func GoldenJSON(t testing.TB, path string, value any) {
	t.Helper()
	got, err := json.MarshalIndent(value, "", "  ")
	require.NoError(t, err)
	Golden(t, path, string(got)+"\n")
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
