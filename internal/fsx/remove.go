package fsx

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"strconv"
)

// Remove deletes a directory that an untrusted program may have filled. It follows
// nothing. A directory that its owner may not read (mode 000) is made readable first.
func Remove(dir string) error {
	// This deletes a link or a file of that name too, and an empty directory.
	if err := os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := InRoot(dir, Empty)
	if errors.Is(err, fs.ErrPermission) && os.Chmod(dir, 0o700) == nil {
		err = InRoot(dir, Empty)
	}
	if err != nil {
		return err
	}
	return os.Remove(dir)
}

// Empty deletes everything below root and keeps root. Links are deleted, never followed.
//
// A program can nest directories deeper than any recursion or number of descriptors
// reaches. So Empty moves a directory that is not empty up into root first, and never
// looks more than two levels below root.
func Empty(root *os.Root) error {
	prefix, moved := fmt.Sprintf(".evalbox-%016x-", rand.Uint64()), 0 //nolint:gosec // unique, and no secret
	return eachEntry(root, ".", func(entry fs.DirEntry) error {
		name := entry.Name()
		err := removeEntry(root, ".", name)
		if err == nil || !entry.IsDir() {
			return err
		}
		err = eachEntry(root, name, func(entry fs.DirEntry) error {
			full := path.Join(name, entry.Name())
			err := removeEntry(root, name, full)
			if err == nil || !entry.IsDir() {
				return err
			}
			moved++
			if moveUp(root, full, prefix+strconv.Itoa(moved)) == nil {
				return nil
			}
			// Some file systems refuse to move directories.
			return root.RemoveAll(full)
		})
		if err != nil {
			return err
		}
		return root.Remove(name)
	})
}

// eachEntry calls do, which removes the entry, until the directory at is empty or an
// entry cannot be removed.
func eachEntry(root *os.Root, at string, do func(fs.DirEntry) error) error {
	dir, err := root.Open(at)
	if errors.Is(err, fs.ErrPermission) && openUp(root, at) {
		dir, err = root.Open(at)
	}
	if err != nil {
		return err
	}
	defer dir.Close()
	opened := false
	for {
		entries, err := dir.ReadDir(256)
		if errors.Is(err, fs.ErrPermission) && !opened && openUp(root, at) {
			// The names could be read, but not the entries.
			opened = true
		} else if len(entries) == 0 {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		for _, entry := range entries {
			if err := do(entry); err != nil {
				return err
			}
		}
		// Deleted names may hide others from this reading.
		if _, err := dir.Seek(0, 0); err != nil {
			return err
		}
	}
}

// removeEntry deletes a file, a link or an empty directory in the directory at.
func removeEntry(root *os.Root, at, full string) error {
	err := root.Remove(full)
	if errors.Is(err, fs.ErrPermission) && openUp(root, at) {
		err = root.Remove(full)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// moveUp renames a directory. Its owner must be able to write in it, because its parent
// changes.
func moveUp(root *os.Root, from, to string) error {
	err := root.Rename(from, to)
	if errors.Is(err, fs.ErrPermission) && openUp(root, from) {
		err = root.Rename(from, to)
	}
	return err
}

// openUp gives the owner all rights on a directory, and reports whether it could.
func openUp(root *os.Root, at string) bool {
	info, err := root.Lstat(at)
	return err == nil && info.IsDir() && root.Chmod(at, info.Mode().Perm()|0o700) == nil
}
