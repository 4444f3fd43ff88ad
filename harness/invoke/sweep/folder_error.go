package sweep

import (
	"errors"
	"io/fs"
	"strconv"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox"
)

// A FolderError is a folder that a sweep cannot use.
type FolderError struct {
	Path, Rule string
	// Err is the cause, if there is one.
	Err  error
	hint string
}

func (e *FolderError) Error() string {
	if e.Err != nil && !errors.Is(e.Err, sandbox.ErrBusy) && !errors.Is(e.Err, fs.ErrExist) {
		return "sweep folder " + strconv.Quote(e.Path) + ": " + e.Rule + ": " + fsx.Cause(e.Err).Error()
	}
	return "sweep folder " + strconv.Quote(e.Path) + ": " + e.Rule
}

func (e *FolderError) Unwrap() error { return e.Err }

// Hint says how to get out of the way.
func (e *FolderError) Hint() string {
	if e.hint == "" {
		return "choose another folder with --output"
	}
	return e.hint
}
