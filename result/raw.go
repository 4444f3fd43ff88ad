package result

import "strings"

// ExecutionRawResult is what one run of a script gave, before anything is read
// out of its text (EX-008). It is plain data.
type ExecutionRawResult struct {
	// Stdout and Stderr are the decoded streams.
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	// ExitCode is the exit code of the script, -1 when TimedOut.
	ExitCode int `json:"exit_code"`
	// DurationSeconds is the wall-clock time of the run.
	DurationSeconds float64 `json:"duration_seconds"`
	// TimedOut says that the time limit ended the run.
	TimedOut bool `json:"timed_out"`
}

// DetectError reports whether a run counts as an error (EX-013): its exit code
// is not 0, or it timed out, or the traceback marker stands in stderr, even in
// the middle of a line and even when the program went on.
func DetectError(raw ExecutionRawResult) bool {
	return detectReason(raw) != ErrorReasonNone
}

// detectReason is DetectError with the answer which fact decided.
func detectReason(raw ExecutionRawResult) ErrorReason {
	return ReasonFor(raw.ExitCode, raw.TimedOut, strings.Contains(raw.Stderr, string(tracebackMarker)))
}
