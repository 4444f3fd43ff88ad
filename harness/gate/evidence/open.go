package evidence

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
)

// openFile opens a regular file below root. No link is followed on the way to it either.
func openFile(root *os.Root, name string) (*os.File, error) {
	if !fs.ValidPath(name) || name == "." {
		return nil, &FileError{File: name, Rule: "is not a path below the gate directory"}
	}
	for i := range name {
		if name[i] != '/' {
			continue
		}
		folder, err := root.Lstat(name[:i])
		if err != nil {
			return nil, openError(name, err)
		}
		if !folder.IsDir() {
			return nil, &FileError{File: name, Rule: "is behind " + name[:i] + ", which is " + fsx.Kind(folder.Mode()) + " and no folder"}
		}
	}
	file, _, err := fsx.OpenIn(root, name)
	if err != nil {
		return nil, openError(name, err)
	}
	return file, nil
}

// Names of files below a folder.
func below(name, folder string) bool { return strings.HasPrefix(name, folder+"/") }

// isMissing says that err is about a file that is not there.
func isMissing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
