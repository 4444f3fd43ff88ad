//go:build unix

package fsx_test

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
)

// TestOpen opens regular files, links to them included, and waits for nothing.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("file"), []byte("text"), 0o600))
	require.NoError(t, os.Symlink("file", at("link")))
	require.NoError(t, syscall.Mkfifo(at("pipe"), 0o600))
	require.NoError(t, os.Symlink("pipe", at("to pipe")))
	listener, err := net.Listen("unix", at("socket"))
	require.NoError(t, err)
	defer listener.Close()

	for _, name := range []string{"file", "link"} {
		text, err := fsx.Read(at(name), 4)
		require.NoError(t, err)
		require.Equal(t, "text", string(text))
	}
	_, err = fsx.Read(at("file"), 3)
	require.ErrorContains(t, err, "has more than 3 bytes")
	for name, kind := range map[string]string{
		".": "a folder", "pipe": "a named pipe", "to pipe": "a named pipe", "socket": "a socket", "/dev/zero": "a device",
	} {
		path := at(name)
		if filepath.IsAbs(name) {
			path = name
		}
		_, err := fsx.Open(path)
		var not *fsx.NotRegularError
		require.ErrorAs(t, err, &not, name)
		require.Equal(t, "is not a regular file ("+kind+")", not.Error())
	}
	_, err = fsx.Open(at("missing"))
	require.ErrorIs(t, err, fs.ErrNotExist)

	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	file, info, err := fsx.OpenIn(root, "file")
	require.NoError(t, err)
	require.Equal(t, int64(4), info.Size())
	require.NoError(t, file.Close())
	for _, name := range []string{"link", "pipe", "to pipe"} {
		_, _, err = fsx.OpenIn(root, name)
		require.ErrorAs(t, err, new(*fsx.NotRegularError), name)
	}
}
