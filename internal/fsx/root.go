package fsx

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// A NotFolderError is a name of something that is no folder.
type NotFolderError struct {
	// Mode is the type of what is there.
	Mode fs.FileMode
}

func (e *NotFolderError) Error() string { return "is not a directory (" + Kind(e.Mode) + ")" }

// OpenRoot opens a folder, links to it followed. It never waits: anything else, such as a
// named pipe, is not opened, and is a [*NotFolderError] in an [*fs.PathError].
func OpenRoot(dir string) (*os.Root, error) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = &NotFolderError{Mode: info.Mode().Type()}
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: Cause(err)}
	}
	// What takes the place of the folder meanwhile has no name of this form, and so is
	// not opened either.
	root, err := os.OpenRoot(dir + string(filepath.Separator) + ".")
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: Cause(err)}
	}
	return root, nil
}

// InRoot opens a folder for do.
func InRoot(dir string, do func(*os.Root) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(do(root), root.Close())
}
