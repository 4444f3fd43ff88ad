package engine

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Errors of engines, for errors.Is. Each adapter classifies the errors of its client
// once; nothing above it parses their text.
var (
	// ErrUnavailable means that the engine could not be reached.
	ErrUnavailable = errors.New("container engine unavailable")
	// ErrPermission means that the engine denied access. It is an ErrUnavailable as well.
	ErrPermission = fmt.Errorf("%w: permission denied", ErrUnavailable)
	// ErrUnenforceable means that the engine cannot enforce a limit that every run has.
	ErrUnenforceable = errors.New("limit cannot be enforced")
	// ErrNoContainer means that the engine has no such container (any more).
	ErrNoContainer = errors.New("no such container")
	// ErrNameTaken means that the engine already has a container with that name.
	ErrNameTaken = errors.New("a container of this name exists")
	// ErrNoSource means that the engine does not have the source of a bind mount.
	ErrNoSource = errors.New("the engine does not have this path")
	// ErrNotStarted means that the engine created a container and could not start it. The
	// container has been removed.
	ErrNotStarted = errors.New("the engine could not start the container")
	// ErrProtocol means that the process that answers in the container is not evalbox's
	// init.
	ErrProtocol = errors.New("the container's init did not answer as it should")
)

// ReconnectBudget is how long a controller waits for an engine that has gone away.
const ReconnectBudget = time.Minute

// StageExec is the stage of a [LaunchError] that concerns the command itself.
const StageExec = "exec"

// A LaunchError says why init did not execute the program. It is not a failure of the
// engine.
type LaunchError struct {
	// Stage is the step that failed, such as "exec" or "chdir"; see [wire.Report].
	Stage string
	Errno syscall.Errno
}

func (e *LaunchError) Error() string { return fmt.Sprintf("%s: %v", e.Stage, e.Errno) }

func (e *LaunchError) Unwrap() error { return e.Errno }

// ExitCode returns a shell's exit status for a command that it cannot run: 127 if the
// command does not exist, 126 for any other reason.
func (e *LaunchError) ExitCode() int {
	if e.Errno == syscall.ENOENT || e.Errno == syscall.ENOTDIR {
		return 127
	}
	return 126
}
