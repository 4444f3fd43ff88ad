package fsx

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
)

// Create writes a file below root that must not exist, and returns its size. After an error
// the written part stays.
func Create(root *os.Root, name string, content io.Reader, perm fs.FileMode) (int64, error) {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(file, content)
	return n, errors.Join(err, file.Close())
}

// WriteFile makes the file of a path hold exactly data. If the process dies in between, the
// file has its old content; if durable is set, also if the power fails. A new file always
// takes the place of the old one: a link is replaced, not followed.
func WriteFile(path string, data []byte, perm fs.FileMode, durable bool) error {
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(WriteIn(root, filepath.Base(path), data, perm, durable), root.Close())
}

// WriteIn is [WriteFile] for a name below root. A crash leaves a file that begins with
// name and ".new-" beside it.
func WriteIn(root *os.Root, name string, data []byte, perm fs.FileMode, durable bool) (err error) {
	aside := fmt.Sprintf("%s.new-%016x", name, rand.Uint64()) //nolint:gosec // unique, and no secret
	file, err := root.OpenFile(aside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = root.Remove(aside) // the first error is the one to report
		}
	}()
	_, err = file.Write(data)
	if err == nil && durable {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err = root.Rename(aside, name); err != nil || !durable {
		return err
	}
	dir, openErr := root.Open(filepath.Dir(name))
	if openErr != nil {
		return openErr
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// IsNoSpace reports whether a disk or a quota is full.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
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
