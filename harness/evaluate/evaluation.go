package evaluate

import (
	"fmt"
	"slices"

	"github.com/evalbox/evalbox/result"
)

// EvaluationSchemaV1 names the wire form of [Evaluation].
const EvaluationSchemaV1 = "evalbox/evaluation/v1"

// EvaluationResult is what a run of a script means (DM-021).
type EvaluationResult = result.EvaluationResult

// ErrorReasonRejected is the reason of an [EvaluationResult] that was made of a
// [*ScriptError]: the script never ran.
const ErrorReasonRejected result.ErrorReason = "rejected"

// Evaluation is what one script came to: an [EvaluationResult], in whose fields the
// wire form has it, and what a careful reader wants beside it. It is plain data and
// one line of a results file.
type Evaluation struct {
	// Schema is always [EvaluationSchemaV1].
	Schema string `json:"schema"`
	// Name is the caller's name of the script; empty when none was given.
	Name string `json:"name"`
	// CompetitionID is that of the task.
	CompetitionID string `json:"competition_id"`
	// ScriptSHA256 is the hash of the script's content.
	ScriptSHA256 string `json:"script_sha256"`
	// OriginalSHA256 is the hash of the script as it was handed in; another than
	// ScriptSHA256 after a repair.
	OriginalSHA256 string `json:"original_sha256"`
	// SetupSHA256 is [Job.Setup]: how the script was evaluated. Empty when the
	// caller did not say.
	SetupSHA256 string `json:"setup_sha256"`
	// Seed is the seed that the script was given; nil for none.
	Seed *uint32 `json:"seed"`
	// Repetition is [Job.Repetition].
	Repetition int `json:"repetition"`
	// Repairs counts the repaired scripts that were evaluated before this one, itself
	// included; 0 for the script as it was handed in.
	Repairs int `json:"repairs"`
	// Run says which run it was; nil when none took place.
	Run *RunFacts `json:"run"`

	EvaluationResult

	// SelfReported says that Score is what the script printed about itself, which
	// nobody verified.
	SelfReported bool `json:"self_reported"`
	// GradedScore is the score that the grader gave; nil without a grader, and
	// when the grading failed.
	GradedScore *float64 `json:"graded_score"`
	// Grading tells how the grading went; nil without a grader.
	Grading *Grading `json:"grading"`
	// Submission is what the check of the submission found; nil without a check.
	Submission *SubmissionCheck `json:"submission"`

	// Cached says that nothing ran: the evaluation is that of an earlier run,
	// which Run names.
	Cached bool `json:"cached"`
	// Failure is why there is no result: what we, not the script, failed to do.
	// Empty when there is one.
	Failure string `json:"failure"`
}

// RunFacts say how a run ended; the rest is in its record.
type RunFacts struct {
	ID          string        `json:"id"`
	Status      result.Status `json:"status"`
	Fault       result.Fault  `json:"fault"`
	Explanation string        `json:"explanation"`
	// ImageID is the content address of the image.
	ImageID string `json:"image_id"`
	// GPUs are the devices that the run had.
	GPUs []string `json:"gpus"`
	// OutputTruncated says that stdout or stderr is not all that the script
	// printed; score and traceback are those of the whole.
	OutputTruncated bool `json:"output_truncated"`
}

// Valid says that the script ended by itself, in time and without an error. A run
// that was ended for its disk, its output or by the caller is not valid, whatever
// exit code the program then chose.
func (e Evaluation) Valid() bool {
	return e.Failure == "" && !e.IsError && (e.Run == nil || e.Run.Status == result.StatusExited)
}

// Conclusive says that the evaluation is about the script, so that evaluating it
// again has no point: it was not canceled, and nothing of ours failed.
func (e Evaluation) Conclusive() bool {
	if e.Failure != "" {
		return false
	}
	if e.Run == nil {
		return e.ErrorReason == ErrorReasonRejected
	}
	switch e.Run.Status {
	case result.StatusCanceled, result.StatusStartFailed, result.StatusEngineLost:
		return false
	case result.StatusExited, result.StatusSignaled, result.StatusTimedOut, result.StatusOutOfMemory,
		result.StatusDiskLimit, result.StatusOutputLimit:
	}
	return e.inspected()
}

// inspected says that nothing is left to be found out about what a run left behind.
func (e Evaluation) inspected() bool {
	return !e.Valid() || (e.Submission == nil || e.Submission.Failure == "") && (e.Grading == nil || e.Grading.Conclusive())
}

// GradingFailed says that a script ended well, and has no graded score although a grader
// was used: it left nothing that can be graded, or the grader is at fault. It is false for
// a grading that the caller canceled.
func (e Evaluation) GradingFailed() bool {
	return e.Grading != nil && e.Grading.Failure != "" && !e.Grading.Canceled && e.Valid()
}

// BestScore is the score to compare evaluations by: the graded one where a grader
// was used, even if it gave none, and else the one that the script printed.
func (e Evaluation) BestScore() *float64 {
	if e.Grading != nil {
		return e.GradedScore
	}
	return e.Score
}

// evaluationOf reads an EvaluationResult out of a run. Unlike
// [result.BuildEvaluation] it need not search the captured text, in which the middle
// of a long output is missing: the run has looked at the whole stream.
func evaluationOf(res *result.Result) EvaluationResult {
	return EvaluationResult{
		Score: res.Score, Stdout: res.Stdout, Stderr: res.Stderr, ExitCode: res.ExitCode,
		DurationSeconds: res.DurationSeconds, IsError: res.IsError, ErrorTraceback: res.ErrorTraceback,
		ErrorReason: res.ErrorReason, ErrorSummary: res.ErrorSummary, Warnings: append([]string{}, res.Warnings...),
	}
}

// factsOf keeps of a run what its record need not be read for.
func factsOf(res *result.Result) *RunFacts {
	return &RunFacts{
		ID: res.ID, Status: res.Status, Fault: res.Fault, Explanation: res.Explanation, ImageID: res.Image.ID,
		GPUs: append([]string{}, res.Enforced.GPUs...), OutputTruncated: res.StdoutTruncated || res.StderrTruncated,
	}
}

// textLimit bounds a text in a results file, where thousands of evaluations stand; the
// record of the run has more. maxWarnings bounds the warnings there.
const (
	textLimit   = 8 << 10
	maxWarnings = 100
)

// Bounded returns a copy for a results file or a long list: of streams, tracebacks and
// other texts longer than 8 KiB head and tail are kept, with a line between them that says
// how much is missing, and of more than 100 warnings the first.
func (e Evaluation) Bounded() Evaluation {
	e.Schema = EvaluationSchemaV1
	if len(e.Stdout) > textLimit || len(e.Stderr) > textLimit {
		e.Run = e.Run.bounded()
		if e.Run != nil {
			e.Run.OutputTruncated = true
		}
	}
	e.Stdout, e.Stderr = boundedText(e.Stdout), boundedText(e.Stderr)
	e.ErrorSummary, e.Failure = boundedText(e.ErrorSummary), boundedText(e.Failure)
	e.ErrorTraceback = boundedTraceback(e.ErrorTraceback)
	if e.Run != nil && len(e.Run.Explanation) > textLimit {
		e.Run = e.Run.bounded()
	}
	if e.Grading != nil {
		grading := *e.Grading
		grading.Run, grading.Failure = grading.Run.bounded(), boundedText(grading.Failure)
		grading.Traceback = boundedTraceback(grading.Traceback)
		e.Grading = &grading
	}
	if len(e.Warnings) > maxWarnings {
		more := len(e.Warnings) - maxWarnings
		e.Warnings = append(slices.Clone(e.Warnings[:maxWarnings]), fmt.Sprintf("and %d further warnings", more))
	}
	for i, warning := range e.Warnings {
		if len(warning) > textLimit {
			e.Warnings = slices.Clone(e.Warnings)
			e.Warnings[i] = boundedText(warning)
		}
	}
	if e.Warnings == nil {
		e.Warnings = []string{}
	}
	return e
}

// bounded is a copy whose texts are; nil for nil.
func (f *RunFacts) bounded() *RunFacts {
	if f == nil {
		return nil
	}
	facts := *f
	facts.Explanation = boundedText(facts.Explanation)
	return &facts
}

func boundedText(text string) string {
	if len(text) <= textLimit {
		return text
	}
	keep := result.NewHeadTail(textLimit)
	_, _ = keep.Write([]byte(text)) // never fails
	return keep.Text()
}

func boundedTraceback(text *string) *string {
	if text == nil || len(*text) <= textLimit {
		return text
	}
	return new(boundedText(*text))
}
