package result

import (
	"slices"
	"strings"
)

// ExecutionRawResult is the plain outcome of one run of a script, before its
// text is parsed (EX-008).
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

// detectReason is DetectError that also says which fact decided.
func detectReason(raw ExecutionRawResult) ErrorReason {
	return ReasonFor(raw.ExitCode, raw.TimedOut, strings.Contains(raw.Stderr, string(tracebackMarker)))
}

// EvaluationResult is the evaluation of a run for a search over scripts (DM-021),
// with three fields more: ErrorReason, ErrorSummary and Warnings. It has no flag
// for a time-out; ErrorReason says it.
type EvaluationResult struct {
	// Score is the score that the script printed (EX-011). It is nil without
	// one, and also for an infinite one, which JSON cannot carry and which must
	// never rank above a real score; Warnings then quotes the printed text.
	// A score next to an error is kept.
	Score *float64 `json:"score"`
	// Stdout, Stderr, ExitCode and DurationSeconds are those of the run.
	Stdout          string  `json:"stdout"`
	Stderr          string  `json:"stderr"`
	ExitCode        int     `json:"exit_code"`
	DurationSeconds float64 `json:"duration_seconds"`
	// IsError is the answer of [DetectError].
	IsError bool `json:"is_error"`
	// ErrorTraceback is the answer of [ExtractTraceback]; nil without one and
	// nil unless IsError.
	ErrorTraceback *string `json:"error_traceback"`

	// ErrorReason says which part of the error rule holds.
	ErrorReason ErrorReason `json:"error_reason"`
	// ErrorSummary is the answer of [ErrorSummary] when IsError holds without a
	// traceback; empty otherwise.
	ErrorSummary string `json:"error_summary"`
	// Warnings are sentences about a doubtful Score; never nil.
	Warnings []string `json:"warnings"`
}

// BuildEvaluation reads score and error out of a run and copies the rest
// (EX-014). It is a pure function and takes linear time.
func BuildEvaluation(raw ExecutionRawResult) EvaluationResult {
	var scores ScoreScanner
	feed(&scores, raw.Stdout)
	reason := detectReason(raw)
	e := EvaluationResult{
		Score:           scores.Finite(),
		Stdout:          raw.Stdout,
		Stderr:          raw.Stderr,
		ExitCode:        raw.ExitCode,
		DurationSeconds: raw.DurationSeconds,
		IsError:         reason != ErrorReasonNone,
		ErrorReason:     reason,
		Warnings:        append([]string{}, scores.Warnings()...),
	}
	if !e.IsError {
		return e
	}
	if tb, ok := ExtractTraceback(raw.Stderr); ok {
		e.ErrorTraceback = &tb
	} else {
		e.ErrorSummary = ErrorSummary(raw.Stderr)
	}
	return e
}

// ErrorReason says which part of the error rule (EX-013) holds. The rule calls
// a run an error also when a program logs a handled exception and exits with 0,
// so a reader needs the reason. It is a string because "no error" is a valid
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

// ReasonFor applies the error rule of EX-013 to its three facts; seenMarker is
// the answer of [TracebackScanner.SeenMarker]. Of several reasons it returns the
// strongest: the time limit causes the exit code, and a program may log the
// marker on purpose.
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

// Bounds of an error summary.
const (
	maxSummaryLines = 20
	maxSummaryBytes = 4 << 10
)

// ErrorSummary returns the last lines of stderr for a run that failed without a
// traceback: CPython prints none for a syntax error in the script itself, and a
// killed run has none. Blank lines are left out. It has at most 20 lines and
// 4 KiB, its first line may lack its start, and it does not end with a newline.
func ErrorSummary(stderr string) string {
	var lines []string
	room := maxSummaryBytes
	for rest := stderr; rest != "" && len(lines) < maxSummaryLines && room > 0; {
		i := strings.LastIndexByte(rest, '\n')
		line := strings.TrimSuffix(rest[i+1:], "\r")
		rest = rest[:max(i, 0)]
		if strings.TrimSpace(line) == "" {
			continue
		}
		if len(line) > room {
			line = string(tailBorder([]byte(line[len(line)-room:])))
			rest = ""
		}
		room -= len(line) + len("\n")
		lines = append(lines, line)
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}
