package fsx_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
)

// enough are limits that no test of this file reaches.
func enough() fsx.CopyOptions {
	return fsx.CopyOptions{Entries: 100, Depth: 10, Bytes: 1 << 20}
}

func copied(t *testing.T, ctx context.Context, dir string, o fsx.CopyOptions) (string, error) { //nolint:revive // t comes first
	t.Helper()
	into := t.TempDir()
	from, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer from.Close()
	to, err := os.OpenRoot(into)
	require.NoError(t, err)
	defer to.Close()
	return into, fsx.Copy(ctx, from, to, o)
}

// TestCopy: what a program can find in a tree is in its copy, and nothing is followed.
func TestCopy(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.MkdirAll(at("a/b"), 0o755))
	require.NoError(t, os.MkdirAll(at("left/x"), 0o755))
	require.NoError(t, os.WriteFile(at("a/b/program"), []byte("text"), 0o600))
	require.NoError(t, os.Chmod(at("a/b/program"), 0o751))
	then := time.Unix(1_000_000_000, 0)
	require.NoError(t, os.Chtimes(at("a/b/program"), then, then))
	require.NoError(t, os.Link(at("a/b/program"), at("second name")))
	require.NoError(t, os.Symlink("/etc/passwd", at("link out")))
	require.NoError(t, os.Symlink("a", at("to directory")))
	require.NoError(t, syscall.Mkfifo(at("pipe"), 0o600))
	require.NoError(t, os.Chmod(at("a"), 0o555))
	t.Cleanup(func() { require.NoError(t, os.Chmod(at("a"), 0o755)) })

	o := enough()
	o.Leave = func(name string, _ fs.DirEntry) bool { return name == "left" }
	into, err := copied(t, t.Context(), dir, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.Chmod(filepath.Join(into, "a"), 0o755)) })
	var names []string
	require.NoError(t, fs.WalkDir(os.DirFS(into), ".", func(name string, _ fs.DirEntry, err error) error {
		names = append(names, name)
		return err
	}))
	require.Equal(t, []string{".", "a", "a/b", "a/b/program", "link out", "second name", "to directory"}, names)
	info, err := os.Stat(filepath.Join(into, "a"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o555), info.Mode().Perm())
	info, err = os.Stat(filepath.Join(into, "a/b/program"))
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o751), info.Mode().Perm())
	require.True(t, info.ModTime().Equal(then))
	second, err := os.Stat(filepath.Join(into, "second name"))
	require.NoError(t, err)
	require.True(t, os.SameFile(info, second))
	original, err := os.Stat(at("second name"))
	require.NoError(t, err)
	require.False(t, os.SameFile(original, second))
	target, err := os.Readlink(filepath.Join(into, "link out"))
	require.NoError(t, err)
	require.Equal(t, "/etc/passwd", target)
}

// TestCopyLimits: each limit ends the copy, and names itself.
func TestCopyLimits(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a/b/c"), []byte("12345"), 0o600))
	for message, o := range map[string]fsx.CopyOptions{
		"": {Entries: 3, Depth: 3, Bytes: 5},
		"holds more than 2 files and directories":      {Entries: 2, Depth: 3, Bytes: 5},
		"holds more than 2 directories in one another": {Entries: 3, Depth: 2, Bytes: 5},
		"holds more than 4 bytes":                      {Entries: 3, Depth: 3, Bytes: 4},
	} {
		_, err := copied(t, t.Context(), dir, o)
		if message == "" {
			require.NoError(t, err)
			continue
		}
		var limit *fsx.LimitError
		require.ErrorAs(t, err, &limit)
		require.ErrorContains(t, err, message)
	}
}

// TestCopyEnds with its context, and tells what vanished.
func TestCopyEnds(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("stopped by the test")
	cancel(cause)
	_, err := copied(t, ctx, dir, enough())
	require.ErrorIs(t, err, cause)

	o := enough()
	o.Leave = func(name string, _ fs.DirEntry) bool {
		require.NoError(t, os.Remove(file))
		require.NoError(t, os.Symlink("/etc/passwd", file))
		return false
	}
	_, err = copied(t, t.Context(), dir, o)
	require.ErrorIs(t, err, fsx.ErrChanged)
}
