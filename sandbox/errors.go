package sandbox

import (
	"errors"

	"github.com/evalbox/evalbox/sandbox/spec"
)

// Errors of this package, for errors.Is.
var (
	// ErrUnenforceable means that the engine cannot enforce a limit that
	// every run has.
	ErrUnenforceable = errors.New("limit cannot be enforced")
	// ErrBusy means that another run uses the same ./final.
	ErrBusy = errors.New("in use by another run")
	// ErrUnobserved means that something of a run could not be observed that its
	// request says is required; the program did not start. See [Observe].
	ErrUnobserved = errors.New("cannot be observed")
)

// PathError names a host path of a request that breaks a rule.
type PathError = spec.PathError
