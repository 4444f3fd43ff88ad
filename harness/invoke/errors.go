package invoke

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Reason says what went wrong with a call.
type Reason string

// Reasons of an [InvocationError].
const (
	// ReasonNonzeroExit: the tool ended with a code other than 0, or by a signal.
	ReasonNonzeroExit Reason = "nonzero_exit"
	// ReasonCannotExecute: the tool could not be started.
	ReasonCannotExecute Reason = "cannot_execute"
	// ReasonMissingArtifact: the tool ended with 0 but left no regular file of that name.
	ReasonMissingArtifact Reason = "missing_artifact"
	// ReasonTimeout: the time limit ended the tool, see [TimeoutError].
	ReasonTimeout Reason = "timeout"
	// ReasonLimit: another limit of the sandbox ended the tool, or cut what it left.
	ReasonLimit Reason = "limit"
	// ReasonCanceled: the caller ended the tool.
	ReasonCanceled Reason = "canceled"
	// ReasonNotWritten: what the tool left could not be carried over.
	ReasonNotWritten Reason = "not_written"
	// ReasonEngine: the engine failed, and the tool's end was not seen.
	ReasonEngine Reason = "engine"
	// ReasonUnverified: the call ended well, but its artifacts could not be looked at. It
	// is for those who verify, and never that of an error of [Runner.Run].
	ReasonUnverified Reason = "unverified"
)

// ErrNotExecutable is the cause of a ReasonCannotExecute whose program is there, but may
// not be executed.
var ErrNotExecutable = errors.New("the program cannot be executed")

// InvocationError is a call that did not end well, with everything that is known of it
// (M3-10, MI-03).
type InvocationError struct {
	Reason Reason
	// ExitCode is that of the result; nil if there is none.
	ExitCode *int
	// Stdout and Stderr are what was printed until then. Of a tool that could not be
	// started Stderr says why.
	Stdout, Stderr string
	// Artifact is the path of what is missing.
	Artifact string
	// Result is everything else, as far as it came.
	Result RunResult
	// Err is the cause, if it is an error of its own.
	Err error

	text string
}

func (e *InvocationError) Error() string { return e.text }

func (e *InvocationError) Unwrap() error { return e.Err }

// TimeoutError is an [InvocationError] whose tool was ended by the time limit: then it
// has no exit code, whatever the tool made of the signals. errors.As finds both.
type TimeoutError struct {
	InvocationError
	// Timeout is the limit.
	Timeout time.Duration
}

// Unwrap makes every TimeoutError an InvocationError.
func (e *TimeoutError) Unwrap() error { return &e.InvocationError }

// failure makes the error of a result.
func failure(r RunResult, reason Reason, err error, format string, args ...any) *InvocationError {
	code := r.ExitCode
	if code != nil {
		code = new(*code) // whoever changes one leaves the other
	}
	return &InvocationError{
		Reason: reason, ExitCode: code, Stdout: r.Stdout, Stderr: r.Stderr, Result: r, Err: err,
		text: fmt.Sprintf(format, args...),
	}
}

// also says what else went wrong.
func (e *InvocationError) also(what string, err error) *InvocationError {
	if err != nil {
		e.text += fmt.Sprintf("; %s: %v", what, err)
		e.Err = errors.Join(e.Err, err)
	}
	return e
}

// cannotExecute is the error of a tool that was not started.
func cannotExecute(r RunResult, why string, err error) *InvocationError {
	e := failure(r, ReasonCannotExecute, err, "the tool could not be executed: %s", why)
	if e.Stderr == "" {
		e.Stderr = why
	}
	return e
}

func timedOut(r RunResult, limit time.Duration) *TimeoutError {
	seconds := strconv.FormatFloat(limit.Seconds(), 'f', -1, 64)
	return &TimeoutError{*failure(r, ReasonTimeout, nil, "the tool timed out after %s seconds", seconds), limit}
}
