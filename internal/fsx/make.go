package fsx

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// FreeBytes returns the number of bytes that an unprivileged process may still write to
// the file system of a path. ok is false if that is unknown.
func FreeBytes(path string) (free int64, ok bool) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return 0, false
	}
	return int64(stat.Bavail) * int64(stat.Bsize), true //nolint:unconvert // its type differs by system
}

// MkdirReadable makes a directory that every user may read, whatever the umask is.
func MkdirReadable(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755)
}

// WriteReadable writes a read-only file that every user may read, whatever the umask is.
func WriteReadable(path, text string) error {
	return errors.Join(os.WriteFile(path, []byte(text), 0o444), os.Chmod(path, 0o444))
}

// MakePoints makes empty directories (true) and files below a directory, for something to
// be mounted on. Every user may read them. The names have forward slashes.
func MakePoints(dir string, points map[string]bool) error {
	for _, name := range slices.Sorted(maps.Keys(points)) {
		full := filepath.Join(dir, filepath.FromSlash(name))
		inner := full
		if !points[name] {
			inner = filepath.Dir(full)
		}
		for at := inner; at != dir; at = filepath.Dir(at) {
			if err := errors.Join(os.MkdirAll(at, 0o755), os.Chmod(at, 0o755)); err != nil {
				return err
			}
		}
		if !points[name] {
			if err := os.WriteFile(full, nil, 0o444); err != nil {
				return err
			}
		}
	}
	return nil
}
