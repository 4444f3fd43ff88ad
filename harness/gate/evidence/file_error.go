package evidence

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/evalbox/evalbox/internal/fsx"
)

// A FileError is a file of a gate directory that is not what it must be: not there, not
// a regular file, too large, or not a document. Any other error of reading is one of the
// machine. [errors.Is] with [fs.ErrNotExist] tells a missing file.
type FileError struct {
	// File is its name relative to the gate directory, Rule what is wrong with it.
	File, Rule string
	Err        error
}

func (e *FileError) Error() string { return e.File + " " + e.Rule }

func (e *FileError) Unwrap() error { return e.Err }

// openError gives a file that cannot be opened its rule.
func openError(name string, err error) error {
	var odd *fsx.NotRegularError
	switch {
	case errors.As(err, &odd):
		return &FileError{File: name, Rule: odd.Error(), Err: err}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return &FileError{File: name, Rule: "is missing", Err: fs.ErrNotExist}
	}
	return err
}
