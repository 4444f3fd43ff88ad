package result

// EvaluationResult is what a run of a script means to a search over scripts
// (DM-021), with three fields more: ErrorReason, ErrorSummary and Warnings. It
// has no flag for a time-out; ErrorReason says it.
type EvaluationResult struct {
	// Score is the score that the script printed (EX-011). It is nil without
	// one, and also for an infinite one, which JSON cannot carry and which must
	// never rank above a real score; Warnings then names what was printed.
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
	// ErrorSummary is the answer of [ErrorSummary] when IsError and there is no
	// traceback; empty otherwise.
	ErrorSummary string `json:"error_summary"`
	// Warnings is what a careful reader should know about Score; never nil.
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
