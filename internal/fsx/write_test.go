package fsx_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
)

func namesIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// TestWriteFile: a file is replaced as a whole by a new one, or stays.
func TestWriteFile(t *testing.T) {
	for _, durable := range []bool{false, true} {
		dir := t.TempDir()
		path := filepath.Join(dir, "file")
		require.NoError(t, fsx.WriteFile(path, []byte("one"), 0o600, durable))
		reader, err := os.Open(path)
		require.NoError(t, err)
		defer reader.Close()
		before, err := reader.Stat()
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), before.Mode())
		require.NoError(t, fsx.WriteFile(path, []byte("two"), 0o600, durable))
		after, err := os.Stat(path)
		require.NoError(t, err)
		require.False(t, os.SameFile(before, after), "a new file, never the old one rewritten")
		old := make([]byte, 3)
		_, err = reader.Read(old)
		require.NoError(t, err)
		require.Equal(t, "one", string(old), "a reader meanwhile reads all of the old text")
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "two", string(text))
		require.Equal(t, []string{"file"}, namesIn(t, dir), "no temporary file is left")

		require.Error(t, fsx.WriteFile(filepath.Join(dir, "no", "file"), nil, 0o600, durable))
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "folder", "x"), 0o755))
		require.Error(t, fsx.WriteFile(filepath.Join(dir, "folder"), []byte("x"), 0o600, durable))
		require.Equal(t, []string{"file", "folder"}, namesIn(t, dir), "no temporary file is left")
	}
}

// TestWriteFileOverALink: the link is replaced, its target stays.
func TestWriteFileOverALink(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(target, []byte("kept"), 0o600))
	require.NoError(t, os.Symlink("target", link))
	require.NoError(t, fsx.WriteFile(link, []byte("new"), 0o644, false))
	text, err := os.ReadFile(target)
	require.NoError(t, err)
	require.Equal(t, "kept", string(text))
	info, err := os.Lstat(link)
	require.NoError(t, err)
	require.True(t, info.Mode().IsRegular())
}
