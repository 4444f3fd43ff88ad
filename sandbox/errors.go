package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
)

// Errors of this package, for errors.Is.
var (
	// ErrUnenforceable means that the engine cannot enforce a limit that
	// every run has.
	ErrUnenforceable = errors.New("limit cannot be enforced")
	// ErrBusy means that another run uses the same ./final.
	ErrBusy = errors.New("in use by another run")
	// ErrRunning means that a record is of a run that goes on, or that nobody
	// cleaned up after.
	ErrRunning = errors.New("is not over")
	// ErrNoSpace means that the state folder's disk is full or nearly so.
	ErrNoSpace = errors.New("not enough disk space")
	// ErrUnobserved means that something of a run could not be observed that its
	// request says is required; the program did not start. See [Observe].
	ErrUnobserved = errors.New("cannot be observed")
	// ErrNoRecord means that no run with this ID is recorded.
	ErrNoRecord = errors.New("no such run")
)

// A PathError names a host path of a request that breaks a rule.
type PathError struct {
	// Field is the name of the field: script, input, final, state.
	Field, Path, Rule string
	// Err is the cause, if there is one.
	Err error
}

func (e *PathError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("%s %q: %s: %v", e.Field, e.Path, e.Rule, e.Err)
	}
	return fmt.Sprintf("%s %q: %s", e.Field, e.Path, e.Rule)
}

func (e *PathError) Unwrap() error { return e.Err }

// Is makes a path that does not exist an fs.ErrNotExist.
func (e *PathError) Is(target error) bool {
	return target == fs.ErrNotExist && e.Rule == ruleMissing
}

const ruleMissing = "does not exist"
