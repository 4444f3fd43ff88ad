package main

import (
	"context"
	"errors"

	"github.com/evalbox/evalbox/result"
)

// Exit codes of our own. Every other code is the program's.
const (
	// exitProblem is `sandbox doctor` with a check that failed, a program that was
	// ended for its disk or output limit but exited with 0, and a gate that is blocked.
	exitProblem = 1
	// exitUsage is a command line that does not exist.
	exitUsage = 2
	// exitNeedInfo is a gate or a replay that lacks something to be run with.
	exitNeedInfo = 3
	// exitTimeLimit is the end by the time limit.
	exitTimeLimit = 124
	// exitSandbox means that the sandbox itself failed or refused.
	exitSandbox = 125
	// exitNotExecutable and exitNotFound are a command of the image that
	// cannot be started.
	exitNotExecutable = 126
	exitNotFound      = 127
	// exitInterrupted is the end by a signal to us.
	exitInterrupted = 130
	// exitKilled is the end by SIGKILL, also the kernel's for memory.
	exitKilled = 137
)

// exitCode is the exit code of a command that ended with this result, error or
// both.
//
//	the program's   it exited, or 128+n when signal n ended it
//	1               disk or output limit, though the program then exited with 0
//	2               wrong usage
//	124             time limit
//	125             the sandbox failed or refused: engine, image, plan, settings
//	126, 127        the command cannot be executed, is not in the image
//	130             interrupted
//	137             out of memory
func exitCode(res *result.Result, err error) int {
	var usage *usageError
	var stopped interruption
	switch {
	case err == nil && res == nil:
		return 0
	case err == nil:
		return resultCode(res)
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &stopped), errors.Is(err, context.Canceled):
		return exitInterrupted
	case res != nil && res.Status == result.StatusStartFailed:
		return resultCode(res)
	}
	return exitSandbox
}

func resultCode(res *result.Result) int {
	switch res.Status {
	case result.StatusExited, result.StatusSignaled:
		return programCode(res.ExitCode)
	case result.StatusTimedOut:
		return exitTimeLimit
	case result.StatusOutOfMemory:
		return exitKilled
	case result.StatusDiskLimit, result.StatusOutputLimit:
		// The limit ended the run whatever the program made of SIGTERM.
		if res.ExitCode == 0 {
			return exitProblem
		}
		return programCode(res.ExitCode)
	case result.StatusCanceled:
		return exitInterrupted
	case result.StatusStartFailed:
		if res.ExitCode == exitNotExecutable || res.ExitCode == exitNotFound {
			return res.ExitCode
		}
	case result.StatusEngineLost:
	}
	return exitSandbox
}

// programCode passes a program's code on. A code that no process can have must
// not become success by losing its high bits.
func programCode(code int) int {
	if code < 0 || code > 255 {
		return exitSandbox
	}
	return code
}
