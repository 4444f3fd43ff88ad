package sandbox

import (
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// The data of a request. See [spec].
type (
	Request   = spec.Request
	Mount     = spec.Mount
	Tree      = spec.Tree
	FakeClock = spec.FakeClock
	Observe   = spec.Observe
	PathError = spec.PathError
)

// Errors of engines. See [engine].
var (
	ErrEngineUnavailable = engine.ErrUnavailable
	ErrEnginePermission  = engine.ErrPermission
	ErrNameTaken         = engine.ErrNameTaken
)
