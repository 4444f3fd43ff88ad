package result

// ErrorReason says which part of the error rule (EX-013) holds. The rule calls
// a run an error also when a program logs a handled exception and exits with 0,
// so a reader needs to see why. It is a string because "no error" is a valid
// answer and the wire form of it is empty.
type ErrorReason string

const (
	// ErrorReasonNone: the run is not an error.
	ErrorReasonNone ErrorReason = ""
	// ErrorReasonExitCode: the exit code is not 0.
	ErrorReasonExitCode ErrorReason = "exit_code"
	// ErrorReasonTimedOut: the time limit ended the run.
	ErrorReasonTimedOut ErrorReason = "timed_out"
	// ErrorReasonTraceback: stderr holds the traceback marker, and the run
	// ended in time with exit code 0.
	ErrorReasonTraceback ErrorReason = "traceback"
)

// ErrorReasons returns all reasons, [ErrorReasonNone] first. The caller may
// change the slice.
func ErrorReasons() []ErrorReason {
	return []ErrorReason{
		ErrorReasonNone, ErrorReasonExitCode, ErrorReasonTimedOut, ErrorReasonTraceback,
	}
}

// ReasonFor applies the error rule of EX-013 to its three facts; seenMarker is
// the answer of [TracebackScanner.SeenMarker]. Of several reasons it names the
// one that tells most: the time limit causes the exit code, and both say more
// than a marker that the program may have logged on purpose.
func ReasonFor(exitCode int, timedOut, seenMarker bool) ErrorReason {
	switch {
	case timedOut:
		return ErrorReasonTimedOut
	case exitCode != 0:
		return ErrorReasonExitCode
	case seenMarker:
		return ErrorReasonTraceback
	default:
		return ErrorReasonNone
	}
}
