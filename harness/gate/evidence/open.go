package evidence

import (
	"errors"
	"io/fs"
	"os"

	"github.com/evalbox/evalbox/internal/fsx"
)

// openFile opens a regular file below root. No link is followed on the way to it either.
func openFile(root *os.Root, name string) (*os.File, error) {
	if !fs.ValidPath(name) || name == "." {
		return nil, &FileError{File: name, Rule: "is not a path below the gate directory"}
	}
	file, _, err := fsx.OpenBelow(root, name)
	var at *fs.PathError
	var other *fsx.NotDirectoryError
	switch {
	case errors.As(err, &other) && errors.As(err, &at):
		return nil, &FileError{File: name, Rule: "is behind " + at.Path + ", which is " + fsx.Kind(other.Mode) + " and no folder"}
	case err != nil:
		return nil, openError(name, err)
	}
	return file, nil
}

// isMissing says that err is about a file that is not there.
func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
