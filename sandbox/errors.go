package sandbox

import (
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/observe"
	"github.com/evalbox/evalbox/sandbox/stage"
)

// Errors of runs, for errors.Is. Those of records are in package record.
var (
	// ErrEngineUnavailable means that the engine cannot be reached.
	ErrEngineUnavailable = engine.ErrUnavailable
	// ErrEnginePermission means that the engine denied access. It is an
	// ErrEngineUnavailable as well.
	ErrEnginePermission = engine.ErrPermission
	// ErrNameTaken means that the engine has a container with the name of this run.
	ErrNameTaken = engine.ErrNameTaken
	// ErrUnenforceable means that the engine cannot enforce a limit that every run has.
	ErrUnenforceable = engine.ErrUnenforceable
	// ErrBusy means that another run uses the same ./final.
	ErrBusy = stage.ErrBusy
	// ErrUnobserved means that an observation that the request requires is not possible;
	// the program did not start. See [Observe].
	ErrUnobserved = observe.ErrUnobserved
)
