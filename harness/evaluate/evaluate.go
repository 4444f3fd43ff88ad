package evaluate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// ScoreFunc scores a solution for a task (DM-026). [Evaluator.ScoreFunc] makes one.
type ScoreFunc func(ctx context.Context, solution SolutionScript, task TaskDescription) (EvaluationResult, error)

// ScoreFunc returns [Evaluator.EvaluateSolution] with a fixed config (EX-032). The score
// of its results is what the script printed, also when there is a grader.
func (e *Evaluator) ScoreFunc(config PipelineConfig) ScoreFunc {
	return func(ctx context.Context, solution SolutionScript, task TaskDescription) (EvaluationResult, error) {
		evaluation, err := e.EvaluateSolution(ctx, solution, task, config, 0)
		return evaluation.EvaluationResult, err
	}
}

// EvaluateSolution evaluates one solution (EX-015): it sets up the working folder of
// the task ([TaskDescription.Folders]), writes the script there, runs it, and reads
// score and error out of what it printed. The runner empties final/ right before
// the program starts (EX-002), so that nothing of an earlier run is taken for this
// one's. timeoutOverride, unless 0, is the time limit instead of the config's, even
// if it is longer (EX-046).
//
// The solution is not changed (EX-016). A script that fails or times out is an
// evaluation; the error is a [*ScriptError] for a script that is refused, and
// anything else says that we failed. With such an error the evaluation holds what
// was seen until then.
func (e *Evaluator) EvaluateSolution(ctx context.Context, solution SolutionScript, task TaskDescription, config PipelineConfig,
	timeoutOverride time.Duration,
) (Evaluation, error) {
	timeout, err := effectiveTimeout(config, timeoutOverride)
	if err != nil {
		return Evaluation{}, err
	}
	return e.Evaluate(ctx, Job{Solution: solution, Task: task, Timeout: timeout})
}

// effectiveTimeout is the override, or else the config's limit.
func effectiveTimeout(config PipelineConfig, override time.Duration) (time.Duration, error) {
	switch {
	case override < 0:
		return 0, &policy.FieldError{Field: "timeout", Value: override.String(), Rule: "must be more than 0"}
	case override > 0:
		return override, nil
	}
	if err := config.Validate(); err != nil {
		return 0, err
	}
	// Far beyond what any policy permits, but no overflow into a short limit.
	const most = int(1<<63-1) / int(time.Second)
	return time.Duration(min(config.TimeLimitSeconds, most)) * time.Second, nil
}

// Job is one solution to be evaluated.
type Job struct {
	Solution SolutionScript
	Task     TaskDescription
	// Timeout is the time limit of the run; required.
	Timeout time.Duration
	// Name is the caller's name of the solution; see [policy.CheckName]. It may be
	// empty.
	Name string
	// Seed, if not nil, reaches the script as SEED and as PYTHONHASHSEED.
	Seed *uint32
	// Repetition tells runs apart that are otherwise alike: 0 for the first, and so on.
	// It counts in the keys of the cache.
	Repetition int
	// Earlier, if not nil, is an evaluation of the same job that is not conclusive. If
	// only the grading or the check of the submission is missing, and final/ is still as
	// its run left it, that is made up for without running the script again.
	Earlier *Evaluation
	// Setup is the caller's mark of how the script is evaluated, such as that of
	// [Evaluator.Setup]. It only goes into the evaluation, and may be empty.
	Setup string
	// Workspace is the folder for the script and its final/, which is made if it
	// is missing; one with no final/ and a solution.py that no evaluation has written
	// there is refused. Empty is the working folder of the task. One job at a time can
	// use a folder: another one is [sandbox.ErrBusy]. The data are those of the task
	// either way.
	Workspace string
}

// Evaluate is [Evaluator.EvaluateSolution] for one job, with its own name, seed and
// working folder. With a [*ScriptError] comes an evaluation that says the same, with
// the error reason [ErrorReasonRejected].
//
// What ran is the text of the solution, whoever writes solution.py meanwhile. When nothing
// runs, because the script is refused or its result is cached, final/ is emptied as well,
// unless it holds the outputs of the very run that is cached.
//
// When ctx ends while what the script left is checked or graded, the error is its cause,
// and the evaluation has the run, and is not conclusive.
func (e *Evaluator) Evaluate(ctx context.Context, job Job) (Evaluation, error) {
	evaluation := Evaluation{
		Schema: EvaluationSchemaV1, Name: job.Name, CompetitionID: job.Task.CompetitionID,
		ScriptSHA256: job.Solution.SHA256(), OriginalSHA256: job.Solution.SHA256(), SetupSHA256: job.Setup, Seed: job.Seed,
		Repetition:       job.Repetition,
		EvaluationResult: EvaluationResult{ExitCode: -1, Warnings: []string{}},
	}
	err := e.evaluate(ctx, job, &evaluation)
	var refused *ScriptError
	switch {
	case errors.As(err, &refused):
		evaluation.IsError, evaluation.ErrorReason, evaluation.ErrorSummary = true, ErrorReasonRejected, refused.Error()
	case err != nil:
		evaluation.Failure = err.Error()
	case ctx.Err() != nil && evaluation.Run != nil && !evaluation.inspected():
		// The run is what it is; what was to be found out about it is missing.
		err = context.Cause(ctx)
	}
	return evaluation, err
}

func (e *Evaluator) evaluate(ctx context.Context, job Job, evaluation *Evaluation) error {
	if job.Name != "" {
		if err := policy.CheckName("name", job.Name); err != nil {
			return err
		}
	}
	dir, input, err := e.setUp(ctx, job)
	if err != nil {
		return err
	}
	lock, err := lockWorkingFolder(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if e.opts.Grader != nil {
		if err := e.opts.Grader.checkApart(input); err != nil {
			return err
		}
	}
	if e.makeUp(ctx, job, dir, evaluation) {
		e.log.LogAttrs(ctx, slog.LevelInfo, "script not run: only its grading or check was missing", slog.String("run_id", evaluation.Run.ID))
		return nil
	}
	script, err := e.writeScript(ctx, job.Solution, dir)
	if refused := new(ScriptError); errors.As(err, &refused) {
		e.clearFinal(ctx, dir, "", evaluation)
	}
	if err != nil {
		return err
	}
	if err := markScript(job, dir, evaluation.ScriptSHA256); err != nil {
		return err
	}
	program, remove, err := e.copyProgram(ctx, job.Solution)
	if err != nil {
		return err
	}
	defer remove()
	env, err := BuildExecutionEnv(nil, nil)
	if err != nil {
		return err
	}
	maps.Copy(env, e.opts.Request.Env) // a caller's PYTHONHASHSEED wins, but not over a seed
	seeded(env, job.Seed)
	x := execution{script: script, program: program, dir: dir, input: input, timeout: job.Timeout, env: env, name: job.Name}
	entry, hit, err := e.lookUp(ctx, x, evaluation)
	if hit {
		e.clearFinal(ctx, dir, evaluation.Run.ID, evaluation)
	}
	if hit || err != nil {
		return err
	}
	res, err := e.execute(ctx, x)
	if res != nil {
		before := evaluation.Warnings
		evaluation.EvaluationResult = evaluationOf(res)
		evaluation.Warnings = append(before, evaluation.Warnings...)
		evaluation.Run = factsOf(res)
		evaluation.SelfReported = res.Score != nil
	}
	if err != nil {
		return err
	}
	e.inspect(ctx, job, dir, res, evaluation)
	e.remember(ctx, entry, x, res, evaluation)
	return nil
}

// copyProgram makes a copy of a solution that nobody else knows: whoever writes
// solution.py before the run has read it would change what is evaluated.
func (e *Evaluator) copyProgram(ctx context.Context, solution SolutionScript) (program string, remove func(), err error) {
	private, err := os.MkdirTemp("", "evalbox-script-*")
	if err != nil {
		return "", nil, fmt.Errorf("making a folder for the script: %w", err)
	}
	remove = func() {
		if err := os.RemoveAll(private); err != nil {
			e.log.LogAttrs(ctx, slog.LevelWarn, "the copy of a script is left behind", slog.String("path", private), slog.String("error", err.Error()))
		}
	}
	program = filepath.Join(private, ScriptName)
	if err := os.WriteFile(program, []byte(solution.Content), 0o600); err != nil {
		remove()
		return "", nil, fmt.Errorf("copying the script: %w", err)
	}
	return program, remove, nil
}

// setUp makes the folders of a job and says where the script goes and where its data
// are.
func (e *Evaluator) setUp(ctx context.Context, job Job) (dir, input string, err error) {
	base, input, err := job.Task.Folders()
	if err != nil {
		return "", "", err
	}
	if filepath.Base(job.Task.DataDir) == inputName {
		e.log.LogAttrs(ctx, slog.LevelDebug, "data_dir is the input itself; its parent is the working folder", slog.String("cwd", base))
	}
	if job.Workspace == "" {
		dir, err := SetupWorkingDirectory(base)
		return dir, input, err
	}
	dir, err = filepath.Abs(job.Workspace)
	if err != nil {
		return "", "", &sandbox.PathError{Field: "working folder", Path: job.Workspace, Rule: "cannot be used", Err: err}
	}
	return dir, input, makeWorkspace(dir)
}

// inspect looks at what a valid run left behind. What goes wrong here is no failure
// of the run: the check and the grading say it themselves.
func (e *Evaluator) inspect(ctx context.Context, job Job, dir string, res *result.Result, evaluation *Evaluation) {
	valid := evaluation.Valid()
	if e.opts.Submission != nil && valid {
		check := e.opts.Submission.Check(ctx, dir)
		evaluation.Submission = &check
	}
	if e.opts.Grader == nil {
		return
	}
	grading := &Grading{Failure: "the script did not end well: there is nothing to grade"}
	if valid {
		grading = e.grade(ctx, job, filepath.Join(dir, finalName), res)
	}
	evaluation.Grading, evaluation.GradedScore = grading, grading.Score
}

func hashText(text string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(text)))
}
