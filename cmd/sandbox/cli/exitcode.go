package cli

import (
	"context"
	"errors"

	"github.com/evalbox/evalbox/result"
)

// Exit codes of our own. Every other code is the program's.
const (
	// ExitProblem is `sandbox doctor` with a check that failed, a program that was
	// ended for its disk or output limit but exited with 0, and a gate that is blocked.
	ExitProblem = 1
	// ExitUsage is a command line that does not exist.
	ExitUsage = 2
	// ExitNeedInfo is a gate or a replay that lacks something to be run with.
	ExitNeedInfo = 3
	// ExitTimeLimit is the end by the time limit.
	ExitTimeLimit = 124
	// ExitSandbox means that the sandbox itself failed or refused.
	ExitSandbox = 125
	// ExitNotExecutable and ExitNotFound are a command of the image that
	// cannot be started.
	ExitNotExecutable = 126
	ExitNotFound      = 127
	// ExitInterrupted is the end by a signal to us.
	ExitInterrupted = 130
	// ExitKilled is the end by SIGKILL, also the kernel's for memory.
	ExitKilled = 137
)

// ExitCode is the exit code of a command that ended with this result, error or
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
func ExitCode(res *result.Result, err error) int {
	var usage *UsageError
	var stopped Interruption
	switch {
	case err == nil && res == nil:
		return 0
	case err == nil:
		return ResultCode(res)
	case errors.As(err, &usage):
		return ExitUsage
	case errors.As(err, &stopped), errors.Is(err, context.Canceled):
		return ExitInterrupted
	case res != nil && res.Status == result.StatusStartFailed:
		return ResultCode(res)
	}
	return ExitSandbox
}

// ResultCode is [ExitCode] of a run.
func ResultCode(res *result.Result) int {
	switch res.Status {
	case result.StatusExited, result.StatusSignaled:
		return ProgramCode(res.ExitCode)
	case result.StatusTimedOut:
		return ExitTimeLimit
	case result.StatusOutOfMemory:
		return ExitKilled
	case result.StatusDiskLimit, result.StatusOutputLimit:
		// The limit ended the run whatever the program made of SIGTERM.
		if res.ExitCode == 0 {
			return ExitProblem
		}
		return ProgramCode(res.ExitCode)
	case result.StatusCanceled:
		return ExitInterrupted
	case result.StatusStartFailed:
		if res.ExitCode == ExitNotExecutable || res.ExitCode == ExitNotFound {
			return res.ExitCode
		}
	case result.StatusEngineLost:
	}
	return ExitSandbox
}

// ProgramCode is the exit code of a program. A code that no process can have must not become
// success by losing its high bits.
func ProgramCode(code int) int {
	if code < 0 || code > 255 {
		return ExitSandbox
	}
	return code
}
