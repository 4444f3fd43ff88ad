package fsx

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
)

// Create writes a file below root that must not exist, and returns its size. An error leaves
// what could be written.
func Create(root *os.Root, name string, content io.Reader, perm fs.FileMode) (int64, error) {
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(file, content)
	return n, errors.Join(err, file.Close())
}

// WriteFile makes the file of a path hold exactly data, or what it held before if the
// process dies in between; if durable is set, also if the power fails. A new file always
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
