//go:build unix

package invoke

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
)

// exhausted are failures to start a process that say nothing of the program.
var exhausted = []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE}

// startFailure says whose fault it is that a program was not started: the machine's, or,
// as for a shell, that there is none or that it cannot be executed.
func startFailure(err error) (Reason, error) {
	switch {
	case slices.ContainsFunc(exhausted, func(one error) bool { return errors.Is(err, one) }):
		return ReasonEngine, err
	case errors.Is(err, fs.ErrNotExist):
		return ReasonCannotExecute, err
	}
	return ReasonCannotExecute, fmt.Errorf("%w: %w", ErrNotExecutable, err)
}
