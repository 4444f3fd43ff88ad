package evaluate

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/sandbox"
)

// Recorder is a [Runner] that remembers its runs. *sandbox.Runner is one. An [Evaluator]
// whose runner is none cannot make up for a missing grading, and leaves what lies in
// final/ alone when nothing runs.
type Recorder interface {
	// Record returns the record of a run.
	Record(id string) (record.Record, error)
	// LeftBy is the run whose outputs, unchanged, a final/ holds; empty for none.
	LeftBy(ctx context.Context, final string) string
	// ClearFinal empties a final/ that the run keep did not fill; see
	// [sandbox.Runner.ClearFinal].
	ClearFinal(ctx context.Context, final, keep string) (warning string, err error)
}

var _ Recorder = (*sandbox.Runner)(nil)

// clearFinal sees to it that nothing in final/ is taken for the outputs of an evaluation
// for which nothing ran. keep is the run that the evaluation is of, if there is one.
func (e *Evaluator) clearFinal(ctx context.Context, dir, keep string, evaluation *Evaluation) {
	final := filepath.Join(dir, finalName)
	var warning string
	var err error
	if recorder, ok := e.runner.(Recorder); ok {
		warning, err = recorder.ClearFinal(ctx, final, keep)
	} else if entries, readErr := os.ReadDir(final); len(entries) > 0 || readErr != nil && !errors.Is(readErr, fs.ErrNotExist) {
		err = errors.New("it is not empty")
	}
	if err != nil {
		warning = "what lies in " + final + " is of an earlier run: " + err.Error()
	}
	if warning != "" {
		evaluation.Warnings = append(evaluation.Warnings, warning)
	}
}

// makeUp takes over the run of an earlier evaluation of the same job and finds out what
// that left open, if its outputs are still there. It reports whether it did.
func (e *Evaluator) makeUp(ctx context.Context, job Job, dir string, evaluation *Evaluation) bool {
	recorder, records := e.runner.(Recorder)
	old := job.Earlier
	if !records || old == nil || old.Run == nil || !old.Valid() || old.inspected() || !sameJob(*old, *evaluation) {
		return false
	}
	if recorder.LeftBy(ctx, filepath.Join(dir, finalName)) != old.Run.ID {
		return false
	}
	record, err := recorder.Record(old.Run.ID)
	if err != nil || record.Result == nil {
		return false
	}
	warnings := old.Warnings
	*evaluation = *old
	evaluation.EvaluationResult = evaluationOf(record.Result)
	evaluation.Warnings = append([]string{}, warnings...)
	evaluation.Grading, evaluation.GradedScore, evaluation.Submission = nil, nil, nil
	e.inspect(ctx, job, dir, record.Result, evaluation)
	return true
}

// sameJob says that two evaluations are of the same script, evaluated in the same way.
func sameJob(a, b Evaluation) bool {
	return a.Key() == b.Key() && a.CompetitionID == b.CompetitionID && a.SetupSHA256 == b.SetupSHA256
}

// ranAs reports whether the program that ran is the script that was given: the copy that
// was made for the run still is, and so is the one in the record.
func (e *Evaluator) ranAs(program, runID, sha256 string) bool {
	paths := []string{program}
	if recorder, ok := e.runner.(Recorder); ok {
		record, err := recorder.Record(runID)
		if err != nil {
			return false
		}
		paths = append(paths, record.ProgramPath())
	}
	for _, path := range paths {
		if sum, err := hashFile(path); err != nil || sum != sha256 {
			return false
		}
	}
	return true
}
