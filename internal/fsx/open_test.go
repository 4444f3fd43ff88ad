package fsx_test

import (
	"errors"
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
		".": "a directory", "pipe": "a named pipe", "to pipe": "a named pipe", "socket": "a socket", "/dev/zero": "a device",
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

// TestBelow: no link is followed, neither at the end of a name nor on the way.
func TestBelow(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.MkdirAll(at("a/b"), 0o755))
	require.NoError(t, os.WriteFile(at("a/b/file"), []byte("text"), 0o600))
	require.NoError(t, os.Symlink("a", at("to a")))
	require.NoError(t, os.Symlink("b", at("a/to b")))
	require.NoError(t, os.Symlink("file", at("a/b/link")))
	root, err := fsx.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()

	for _, name := range []string{"a/b/file", "a//b/./file", "a/b/../b/file"} {
		file, info, err := fsx.OpenBelow(root, name)
		require.NoError(t, err, name)
		require.Equal(t, int64(4), info.Size())
		require.NoError(t, file.Close())
		info, err = fsx.LstatBelow(root, name)
		require.NoError(t, err)
		require.True(t, info.Mode().IsRegular())
	}
	for name, as := range map[string]any{
		"to a/b/file": new(*fsx.NotDirectoryError), "a/to b/file": new(*fsx.NotDirectoryError),
		"a/b/file/x": new(*fsx.NotDirectoryError), "a/b/link": new(*fsx.NotRegularError), "a/b": new(*fsx.NotRegularError),
	} {
		_, _, err := fsx.OpenBelow(root, name)
		require.ErrorAs(t, err, as, name)
	}
	_, _, err = fsx.OpenBelow(root, "a/none/file")
	require.ErrorIs(t, err, fs.ErrNotExist)
	info, err := fsx.LstatBelow(root, "a/b/link")
	require.NoError(t, err)
	require.Equal(t, fs.ModeSymlink, info.Mode().Type())
	_, err = fsx.LstatBelow(root, "to a/b")
	require.EqualError(t, fsx.Cause(err), "is not a directory (a symbolic link)")
}

// TestOpenRoot: only directories are opened, and nothing is waited for.
func TestOpenRoot(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(at("file"), nil, 0o600))
	require.NoError(t, syscall.Mkfifo(at("pipe"), 0o600))
	require.NoError(t, os.Symlink("pipe", at("to pipe")))
	require.NoError(t, os.Symlink(".", at("to directory")))
	for name, kind := range map[string]string{"file": "a file", "pipe": "a named pipe", "to pipe": "a named pipe"} {
		_, err := fsx.OpenRoot(at(name))
		require.EqualError(t, err, "open "+at(name)+": is not a directory ("+kind+")")
	}
	_, err := fsx.OpenRoot(at("none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	root, err := fsx.OpenRoot(at("to directory"))
	require.NoError(t, err)
	require.NoError(t, root.Close())
}

func TestCause(t *testing.T) {
	why := errors.New("why")
	for _, err := range []error{why, &fs.PathError{Path: "p", Err: why}, &os.LinkError{Old: "a", New: "b", Err: why}} {
		require.Equal(t, why, fsx.Cause(err))
	}
}

func TestLock(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	defer root.Close()
	lock, err := fsx.Lock(root)
	require.NoError(t, err)
	_, err = fsx.Lock(root)
	require.ErrorIs(t, err, fsx.ErrLocked)
	require.NoError(t, lock.Close())
	again, err := fsx.Lock(root)
	require.NoError(t, err)
	require.NoError(t, again.Close())
}
