package fsx

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// LstatBelow looks at a name below root, whose folders must be folders: a link among them
// is a [*NotFolderError], wherever it leads.
func LstatBelow(root *os.Root, name string) (fs.FileInfo, error) {
	dir, last, done, err := descend(root, name)
	if err != nil {
		return nil, err
	}
	defer done()
	return dir.Lstat(last)
}

// OpenBelow is [OpenIn] that follows no link on the way to the file either, as
// [LstatBelow] does.
func OpenBelow(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	dir, last, done, err := descend(root, name)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	return OpenIn(dir, last)
}

// descend opens the folder that holds a name.
func descend(root *os.Root, name string) (dir *os.Root, last string, done func(), err error) {
	parts := strings.Split(filepath.Clean(name), string(filepath.Separator))
	dir, done = root, func() {}
	for _, part := range parts[:len(parts)-1] {
		below, err := openFolder(dir, part)
		done()
		if err != nil {
			return nil, "", nil, err
		}
		dir, done = below, func() { _ = below.Close() } // was only read
	}
	return dir, parts[len(parts)-1], done, nil
}

// openFolder opens a folder that is no link. What was opened is compared with what was
// looked at, so that a link that takes its place meanwhile leads nowhere.
func openFolder(dir *os.Root, name string) (*os.Root, error) {
	named, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !named.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: &NotFolderError{Mode: named.Mode().Type()}}
	}
	below, err := dir.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	opened, err := below.Stat(".")
	if err == nil && !os.SameFile(named, opened) {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("was replaced meanwhile")}
	}
	if err != nil {
		return nil, errors.Join(err, below.Close())
	}
	return below, nil
}
