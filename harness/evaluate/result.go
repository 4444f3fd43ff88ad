package evaluate

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/evalbox/evalbox/harness/evaluate/submission"
	"github.com/evalbox/evalbox/result"
)

// ResultSchemaV1 names the wire form of [Result].
const ResultSchemaV1 = "evalbox/evaluation/v1"

// EvaluationResult is what a run of a script means (DM-021).
type EvaluationResult = result.EvaluationResult

// ErrorReasonRejected is the reason of a script that was refused, and never ran.
const ErrorReasonRejected result.ErrorReason = "rejected"

// Result is the evaluation of one script: an [EvaluationResult], whose fields the wire form has
// at its top, and what a careful reader wants beside it. It is plain data and one line of a
// results file.
type Result struct {
	// Schema is always [ResultSchemaV1].
	Schema string `json:"schema"`
	// Name is the caller's name of the script; empty when none was given.
	Name string `json:"name"`
	// CompetitionID is that of the task.
	CompetitionID string `json:"competition_id"`
	// ScriptSHA256 is the hash of the script that was evaluated, OriginalSHA256 that of the
	// script before any repair.
	ScriptSHA256   string `json:"script_sha256"`
	OriginalSHA256 string `json:"original_sha256"`
	// MetricDirection and BaselineValue come from the task; empty and nil when not known.
	MetricDirection MetricDirection `json:"metric_direction,omitzero"`
	BaselineValue   *float64        `json:"baseline_value"`
	// SetupSHA256 is [Job.Setup]: how the script was evaluated. Empty when not known.
	SetupSHA256 string `json:"setup_sha256"`
	// Limits are those of a batch; nil when not known.
	Limits *Limits `json:"limits"`
	// Seed is the seed of the script; nil for none.
	Seed *uint32 `json:"seed"`
	// Repetition is [Job.Repetition].
	Repetition int `json:"repetition"`
	// Resource is [Job.Resource]; 0 for none.
	Resource int `json:"resource"`
	// Repairs counts the repaired scripts that were evaluated, this one included.
	Repairs int `json:"repairs"`
	// Run is the run of the script; nil when none took place.
	Run *RunFacts `json:"run"`

	EvaluationResult

	// SelfReported says that the script printed Score about itself, and nobody verified it.
	SelfReported bool `json:"self_reported"`
	// ScoreUnfinished says that Score is the last one of a script that did not end by itself.
	// Such a script is not [Result.Valid], so that its score does not rank.
	ScoreUnfinished bool `json:"score_unfinished"`
	// ScoreCut is [result.Result.ScoreCut] of Score.
	ScoreCut bool `json:"score_cut,omitempty"`
	// GradedScore is the score of the grader; nil without a grader, and when the grading failed.
	GradedScore *float64 `json:"graded_score"`
	// Grading is how the grading went; nil without a grader.
	Grading *Grading `json:"grading"`
	// Submission is the check of the submission; nil without a check.
	Submission *submission.Check `json:"submission"`

	// Cached says that nothing ran: the result is that of an earlier run, which Run names.
	Cached bool `json:"cached"`
	// Failure says what we, not the script, failed to do. Empty when there is a result.
	Failure string `json:"failure"`
	// Why says in one line what is wrong: why there is no score that counts, or what else a reader of
	// the score has to know. Empty if nothing is. It may have text of the script in it, and up to 200
	// characters.
	Why string `json:"why"`

	refused *ScriptError
}

// RunFacts are how a run ended; the rest is in its record.
type RunFacts struct {
	ID     string        `json:"id"`
	Status result.Status `json:"status"`
	Fault  result.Fault  `json:"fault"`
	// Deadline is the part of the time limit in the end of the run.
	Deadline    result.Deadline `json:"deadline"`
	Explanation string          `json:"explanation"`
	// ImageID is the content address of the image.
	ImageID string `json:"image_id"`
	// GPUs are the devices of the run.
	GPUs []string `json:"gpus"`
	// OOMKilled says that the kernel killed a process of the run for memory.
	OOMKilled bool `json:"oom_killed"`
	// OutputTruncated says that stdout or stderr is not complete; score and traceback are those
	// of the complete output.
	OutputTruncated bool `json:"output_truncated"`
}

// Conclusive is [result.Result.Conclusive] of the run.
func (f RunFacts) Conclusive() bool {
	return result.Result{Status: f.Status, Fault: f.Fault}.Conclusive()
}

// stopped reports whether somebody ended the run.
func (f RunFacts) stopped() bool {
	return f.Fault == result.FaultOperator && f.Status != result.StatusStartFailed
}

// Err returns the error that the specification demands: a [*ScriptError] for a script that was
// refused (EX-006). It is nil for all others: a script that fails is not an error (EX-007).
func (r Result) Err() error {
	if r.ErrorReason == ErrorReasonRejected && r.refused == nil { // the result was read from a file
		return &ScriptError{Violations: []Violation{{Rule: strings.TrimPrefix(r.ErrorSummary, refusedPrefix)}}}
	}
	if r.refused == nil {
		return nil
	}
	return r.refused
}

// Valid reports whether the script ended by itself, in time and without an error. A run that
// was ended for its disk, its output or by the caller is not valid, whatever exit code the
// program then chose.
func (r Result) Valid() bool {
	return r.Failure == "" && !r.IsError && (r.Run == nil || r.Run.Status == result.StatusExited)
}

// Conclusive reports whether the result is about the script, so that evaluating it again has
// no point: we did not fail, and its run is conclusive; see [result.Result.Conclusive].
func (r Result) Conclusive() bool {
	switch {
	case r.Failure != "":
		return false
	case r.Run == nil:
		return r.ErrorReason == ErrorReasonRejected
	}
	return r.Run.Conclusive() && r.inspected()
}

// inspected reports whether nothing is left to be found out about the outputs.
func (r Result) inspected() bool {
	return !r.Valid() || (r.Submission == nil || r.Submission.Failure == "") && (r.Grading == nil || r.Grading.Conclusive())
}

// GradingFailed reports whether a script ended well, and has no graded score although a grader
// was used. It is false for a grading that the caller canceled.
func (r Result) GradingFailed() bool {
	return r.Grading != nil && r.Grading.Failure != "" && !r.Grading.Canceled && r.Valid()
}

// EndedWell reports whether a script ran to its end without an error, and its grading, if there
// was one, gave a score.
func (r Result) EndedWell() bool { return r.Valid() && !r.GradingFailed() }

// BestScore is the score to compare results by: the graded one where a grader was used, even
// if it gave none, and otherwise the one that the script printed.
func (r Result) BestScore() *float64 {
	if r.Grading != nil {
		return r.GradedScore
	}
	return r.Score
}

// refuse is the result of a script that was refused.
func (r Result) refuse(refused *ScriptError) Result {
	r.IsError, r.ErrorReason, r.ErrorSummary, r.refused = true, ErrorReasonRejected, refused.Error(), refused
	return r
}

// withRun takes over the result of a run. Unlike [result.BuildEvaluation] it does not search the
// captured text, in which the middle of a long output is missing: the run has looked at the
// whole stream.
func (r Result) withRun(res *result.Result) Result {
	r.EvaluationResult = EvaluationResult{
		Score: res.Score, Stdout: res.Stdout, Stderr: res.Stderr, ExitCode: res.ExitCode,
		DurationSeconds: res.DurationSeconds, IsError: res.IsError, ErrorTraceback: res.ErrorTraceback,
		ErrorReason: res.ErrorReason, ErrorSummary: res.ErrorSummary, Warnings: append(append([]string{}, r.Warnings...), res.Warnings...),
	}
	r.Run, r.SelfReported, r.ScoreUnfinished, r.ScoreCut = factsOf(res), res.Score != nil, res.ScoreUnfinished, res.ScoreCut
	return r
}

func factsOf(res *result.Result) *RunFacts {
	return &RunFacts{
		ID: res.ID, Status: res.Status, Fault: res.Fault, Deadline: res.Deadline, Explanation: res.Explanation, ImageID: res.Image.ID,
		OOMKilled: res.OOMKilled, GPUs: append([]string{}, res.Enforced.GPUs...), OutputTruncated: res.StdoutTruncated || res.StderrTruncated,
	}
}

const (
	// textLimit bounds a text in a results file, in bytes; the record of the run has more.
	textLimit = 8 << 10
	// maxWarnings bounds the warnings of a result in a results file.
	maxWarnings = 100
)

// Bounded returns a copy for a results file or a long list: of every text longer than 8 KiB
// head and tail are kept, with a line between them that counts the missing bytes, and of more
// than 100 warnings the first.
func (r Result) Bounded() Result {
	r.Schema, r.Why = ResultSchemaV1, r.Explain()
	r.Run = r.Run.bounded()
	if r.Run != nil && (len(r.Stdout) > textLimit || len(r.Stderr) > textLimit) {
		r.Run.OutputTruncated = true
	}
	for _, text := range []*string{&r.Stdout, &r.Stderr, &r.ErrorSummary, &r.Failure} {
		*text = boundedText(*text)
	}
	r.ErrorTraceback = boundedPointer(r.ErrorTraceback)
	if r.Grading != nil {
		grading := *r.Grading
		grading.Run, grading.Failure, grading.Traceback = grading.Run.bounded(), boundedText(grading.Failure), boundedPointer(grading.Traceback)
		r.Grading = &grading
	}
	all := r.Warnings
	r.Warnings = []string{}
	for _, warning := range all[:min(len(all), maxWarnings)] {
		r.Warnings = append(r.Warnings, boundedText(warning))
	}
	if more := len(all) - maxWarnings; more > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("and %d further warnings", more))
	}
	return r
}

// brief returns a copy without what the script and the grader printed.
func (r Result) brief() Result {
	r.Stdout, r.Stderr, r.ErrorTraceback, r.ErrorSummary = "", "", nil, ""
	if r.Grading != nil {
		grading := *r.Grading
		grading.Traceback = nil
		r.Grading = &grading
	}
	return r
}

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

func boundedPointer(text *string) *string {
	if text == nil {
		return nil
	}
	return new(boundedText(*text))
}

// decodeResult reads the wire form. Unknown fields are ignored.
func decodeResult(text []byte) (r Result, err error) {
	if err := json.Unmarshal(text, &r); err != nil {
		return Result{}, fmt.Errorf("is not an evaluation: %w", err)
	}
	if r.Schema != ResultSchemaV1 {
		err = fmt.Errorf("schema is %s, want %q", shown(r.Schema), ResultSchemaV1)
	}
	return r, err
}
