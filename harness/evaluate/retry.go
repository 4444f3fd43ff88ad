package evaluate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/policy"
)

// DebugFunc repairs a script that failed, and returns the repaired one.
type DebugFunc func(ctx context.Context, solution SolutionScript, failure Failure) (SolutionScript, error)

// Failure is what a debugger gets to know.
type Failure struct {
	// Traceback is the traceback of the run; nil when it printed none.
	Traceback *string
	// Evaluation is all that is known of the run.
	Evaluation Evaluation
}

// Text is what went wrong, and never empty (AI-07): the traceback, or else the last
// lines of stderr, or else a sentence on how the run ended. A syntax error of the
// script itself and a run that was killed print no traceback.
func (f Failure) Text() string {
	switch e := f.Evaluation; {
	case f.Traceback != nil && *f.Traceback != "":
		return *f.Traceback
	case e.ErrorSummary != "":
		return e.ErrorSummary
	case e.Run != nil && e.Run.Explanation != "":
		return e.Run.Explanation
	default:
		return "The script ended with exit code " + strconv.Itoa(e.ExitCode) + " and printed no error."
	}
}

// RetryOptions steer [Evaluator.EvaluateWithRetry]. The zero value is useful.
type RetryOptions struct {
	// MaxRetries bounds the repairs; nil is the config's MaxDebugAttempts, 0 is
	// one evaluation and no repair.
	MaxRetries *int
	// Timeout, unless 0, is the time limit of each run instead of the config's.
	Timeout time.Duration
	// Name, Seed, Setup, Workspace and Earlier are those of [Job].
	Name      string
	Seed      *uint32
	Setup     string
	Workspace string
	Earlier   *Evaluation
}

// EvaluateWithRetry evaluates a solution and, as long as the run is not valid and
// repairs are left, lets debug repair it and evaluates again (EX-021). It returns
// the last pair of a solution and its evaluation.
//
// A repaired script that is refused is a failed attempt, whose evaluation has the
// error reason [ErrorReasonRejected] and says why in its ErrorSummary. A debug that
// fails is an attempt used up, too; the pair stays as it was. The error is for what
// we failed to do, and for a ctx that ended; the pair is then the last one seen. An
// evaluation after which ctx ended, although repairs were left, is not conclusive.
func (e *Evaluator) EvaluateWithRetry(ctx context.Context, solution SolutionScript, task TaskDescription, config PipelineConfig,
	debug DebugFunc, opts RetryOptions,
) (SolutionScript, Evaluation, error) {
	most := config.MaxDebugAttempts
	if opts.MaxRetries != nil {
		most = *opts.MaxRetries
	}
	timeout, err := effectiveTimeout(config, opts.Timeout)
	if err != nil {
		return solution, Evaluation{}, err
	}
	if most < 0 {
		return solution, Evaluation{}, &policy.FieldError{Field: "max_retries", Value: strconv.Itoa(most), Rule: "must not be negative"}
	}
	job := Job{
		Task: task, Timeout: timeout, Name: opts.Name, Seed: opts.Seed, Setup: opts.Setup, Workspace: opts.Workspace, Earlier: opts.Earlier,
	}
	original := solution.SHA256()
	evaluation, err := e.attempt(ctx, job, solution)
	solution, repairs := e.earlierRepair(solution, evaluation), evaluation.Repairs
	job.Earlier = nil
	n := 1
retries:
	for ; err == nil && ctx.Err() == nil && n <= most && !evaluation.Valid(); n++ {
		e.log.LogAttrs(ctx, slog.LevelInfo, "script is repaired and tried again", slog.Int("retry", n), slog.Int("max_retries", most))
		repaired, debugErr := debug(ctx, solution, Failure{Traceback: evaluation.ErrorTraceback, Evaluation: evaluation})
		switch {
		case ctx.Err() != nil:
			break retries
		case debugErr != nil:
			e.log.LogAttrs(ctx, slog.LevelWarn, "the debugger failed", slog.Int("retry", n), slog.String("error", debugErr.Error()))
			evaluation.Warnings = append(evaluation.Warnings, fmt.Sprintf("retry %d: the debugger failed: %v", n, debugErr))
		default:
			solution = repaired
			evaluation, err = e.attempt(ctx, job, solution)
			repairs++
		}
	}
	if err == nil {
		err = context.Cause(ctx)
	}
	if ctx.Err() != nil && n <= most && evaluation.Failure == "" && !evaluation.Valid() {
		// A repair might have saved it.
		evaluation.Failure = fmt.Sprintf("canceled before the end of retry %d of %d", n, most)
	}
	evaluation.OriginalSHA256, evaluation.Repairs = original, repairs
	return solution, evaluation, err
}

// earlierRepair is the script that an evaluation is of: another than the one that was
// given when that was repaired before, and only its grading was made up for.
func (e *Evaluator) earlierRepair(given SolutionScript, evaluation Evaluation) SolutionScript {
	recorder, ok := e.runner.(Recorder)
	if !ok || evaluation.Run == nil || evaluation.ScriptSHA256 == given.SHA256() {
		return given
	}
	record, err := recorder.Record(evaluation.Run.ID)
	if err != nil {
		return given
	}
	text, err := fsx.Read(record.ProgramPath(), maxProgram)
	if err != nil || hashText(string(text)) != evaluation.ScriptSHA256 {
		return given
	}
	repaired := NewSolution(string(text), PhaseRefined)
	repaired.SourceModel = given.SourceModel
	return repaired
}

// maxProgram bounds a script, as a run does.
const maxProgram = 64 << 20

// attempt evaluates a script; one that is refused is an evaluation as well.
func (e *Evaluator) attempt(ctx context.Context, job Job, solution SolutionScript) (Evaluation, error) {
	job.Solution = solution
	evaluation, err := e.Evaluate(ctx, job)
	if refused := new(ScriptError); errors.As(err, &refused) {
		err = nil
	}
	return evaluation, err
}
