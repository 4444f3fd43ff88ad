package cli

import (
	"context"
	"errors"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/outcome"
)

// Exit codes that [ExitCode] explains. Every other code is the program's.
const (
	ExitProblem       = 1
	ExitUsage         = 2
	ExitNeedInfo      = 3
	ExitTimeLimit     = 124
	ExitSandbox       = 125
	ExitNotExecutable = 126
	ExitNotFound      = 127
	ExitInterrupted   = 130
	ExitKilled        = 137
)

// decisive are the reasons that decide the exit code alone, in the words of all harnesses.
var decisive = map[string]int{
	"timed_out":     ExitTimeLimit,
	"timeout":       ExitTimeLimit,
	"canceled":      ExitInterrupted,
	"out_of_memory": ExitKilled,
	"engine_lost":   ExitSandbox,
	"NEED_INFO":     ExitNeedInfo,
}

var startFailed = result.StatusStartFailed.String()

// ExitCode returns the exit code of a command that ended with this result, with this error,
// or with both. res is nil if there is no result.
//
//	the program's   it exited, or 128+n when signal n ended it
//	1               the job failed though the program exited with 0; disk or output limit; a
//	                check of `sandbox doctor` failed; a gate is blocked
//	2               wrong usage
//	3               a gate or a replay lacks something to be run with
//	124             time limit
//	125             the sandbox failed or refused: engine, image, plan, settings
//	126, 127        the command cannot be executed, is not in the image
//	130             interrupted
//	137             out of memory
func ExitCode(res *trial.Result, err error) int {
	var usage *UsageError
	var stopped SignalError
	switch {
	case errors.As(err, &usage):
		return ExitUsage
	case errors.As(err, &stopped), errors.Is(err, context.Canceled), errors.Is(err, outcome.ErrStopped):
		return ExitInterrupted
	case err != nil && (res == nil || res.Reason != startFailed):
		return ExitSandbox
	case res == nil:
		return 0
	}
	if code, ok := decisive[res.Reason]; ok {
		return code
	}
	switch {
	case res.Reason == startFailed && res.ExitCode != ExitNotExecutable && res.ExitCode != ExitNotFound, res.ExitCode > 255:
		return ExitSandbox
	case res.Verdict == trial.Passed:
		return max(res.ExitCode, 0) // a contract may expect another code than 0
	case res.Verdict == trial.Failed:
		return max(res.ExitCode, ExitProblem)
	}
	return ExitSandbox
}

// OfRun returns a run in the form that [ExitCode] takes; nil for nil.
func OfRun(res *result.Result) *trial.Result {
	if res == nil {
		return nil
	}
	r := &trial.Result{Verdict: trial.Failed, Reason: res.Status.String(), ExitCode: res.ExitCode}
	if res.Status == result.StatusExited || res.Status == result.StatusSignaled {
		switch {
		case res.ExitCode == 0:
			r.Verdict = trial.Passed
		case res.ExitCode < 0:
			r.Verdict = trial.Inconclusive
		}
	}
	return r
}
