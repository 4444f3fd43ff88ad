package evaluate

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox"
)

// LockWorkspace keeps a folder for working folders, which is made if it is missing, for
// the caller alone until release is called: whoever asks for the same one meanwhile gets
// [sandbox.ErrBusy]. It does not lock the working folders in it; each evaluation does so
// with its own.
func LockWorkspace(dir string) (release func() error, err error) {
	abs, err := filepath.Abs(dir)
	if err == nil {
		err = os.MkdirAll(abs, 0o755)
	}
	if err != nil {
		return nil, &sandbox.PathError{Field: "workspace", Path: dir, Rule: "cannot be made", Err: fsx.Cause(err)}
	}
	lock, err := fsx.LockPath(abs)
	switch {
	case errors.Is(err, fsx.ErrLocked):
		return nil, &WorkspaceError{Path: dir, Rule: "is in use by another batch", Err: sandbox.ErrBusy}
	case err != nil:
		return nil, &sandbox.PathError{Field: "workspace", Path: dir, Rule: "cannot be locked", Err: fsx.Cause(err)}
	}
	return lock.Close, nil
}

// A WorkspaceError is a folder that cannot be worked in.
type WorkspaceError struct {
	Path, Rule string
	// Err is the cause, if there is one.
	Err  error
	hint string
}

func (e *WorkspaceError) Error() string { return "working folder " + shown(e.Path) + ": " + e.Rule }

func (e *WorkspaceError) Unwrap() error { return e.Err }

// Hint says how to get out of the way.
func (e *WorkspaceError) Hint() string {
	if errors.Is(e.Err, sandbox.ErrBusy) {
		return "wait for its end, or choose another folder with --workspace"
	}
	if e.hint != "" {
		return e.hint
	}
	return "remove or move what is there, or choose another folder with --workspace"
}
