package sandbox

import (
	"errors"
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
