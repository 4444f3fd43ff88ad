package engine

import (
	"errors"
	"fmt"
	"syscall"
)

// Errors of engines, for errors.Is. Adapters classify what their client says once;
// nothing above looks at its text.
var (
	// ErrUnavailable means that the engine could not be reached.
	ErrUnavailable = errors.New("container engine unavailable")
	// ErrPermission means that the engine refused us. It is an ErrUnavailable as well.
	ErrPermission = fmt.Errorf("%w: permission denied", ErrUnavailable)
	// ErrNoContainer means that the engine has no such container (any more).
	ErrNoContainer = errors.New("no such container")
	// ErrNameTaken means that the engine has a container of that name.
	ErrNameTaken = errors.New("a container of this name exists")
	// ErrNoSource means that the engine does not have the source of a bind mount.
	ErrNoSource = errors.New("the engine does not have this path")
	// ErrNotStarted means that the engine made a container and could not start it. It
	// is removed again.
	ErrNotStarted = errors.New("the engine could not start the container")
	// ErrProtocol means that what speaks in the container is not our init.
	ErrProtocol = errors.New("the container's init did not answer as it should")
)

// StageExec is the stage of a [LaunchError] that says something of the command itself.
const StageExec = "exec"

// A LaunchError is why init did not execute the program. It says what the request or the
// image lacks, not that the engine failed.
type LaunchError struct {
	// Stage is the step that failed, such as "exec" or "chdir"; see [wire.Report].
	Stage string
	Errno syscall.Errno
}

func (e *LaunchError) Error() string { return fmt.Sprintf("%s: %v", e.Stage, e.Errno) }

func (e *LaunchError) Unwrap() error { return e.Errno }

// ExitCode is that of a shell for a command that it cannot run: 127 for one that is not
// there, 126 for any other reason.
func (e *LaunchError) ExitCode() int {
	if e.Errno == syscall.ENOENT || e.Errno == syscall.ENOTDIR {
		return 127
	}
	return 126
}
