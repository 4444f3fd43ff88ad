package sandbox

import (
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/observe"
	"github.com/evalbox/evalbox/sandbox/stage"
)

// Errors of runs, for errors.Is. Those of records are in package record.
var (
	// ErrUnenforceable means that the engine cannot enforce a limit that every run has.
	ErrUnenforceable = engine.ErrUnenforceable
	// ErrBusy means that another run uses the same ./final.
	ErrBusy = stage.ErrBusy
	// ErrUnobserved means that an observation that the request requires is not possible;
	// the program did not start. See [Observe].
	ErrUnobserved = observe.ErrUnobserved
)
