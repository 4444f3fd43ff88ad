package evaluate

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
)

// ScoreFunc scores a solution for a task (DM-026). [Harness.ScoreFunc] returns one.
type ScoreFunc func(ctx context.Context, solution mlestar.SolutionScript, task TaskDescription) (EvaluationResult, error)

// ScoreFunc returns [Harness.EvaluateSolution] with a fixed config (EX-032). The score is the one
// that the script printed, also when there is a grader.
func (h *Harness) ScoreFunc(config mlestar.PipelineConfig) ScoreFunc {
	return func(ctx context.Context, solution mlestar.SolutionScript, task TaskDescription) (EvaluationResult, error) {
		res, err := h.EvaluateSolution(ctx, solution, task, config, 0)
		return res.EvaluationResult, err
	}
}

// EvaluateSolution is [Harness.Run] with the arguments of EX-015, in the working directory of the
// task. timeoutOverride, unless 0, is the time limit instead of the config's, even if it is longer
// (EX-046). A script that is refused is a [*ScriptError] (EX-006).
func (h *Harness) EvaluateSolution(ctx context.Context, solution mlestar.SolutionScript, task TaskDescription, config mlestar.PipelineConfig,
	timeoutOverride time.Duration,
) (Result, error) {
	timeout, err := effectiveTimeout(config, timeoutOverride)
	if err != nil {
		return Result{}, err
	}
	res, err := h.Run(ctx, Job{Script: solution.Content, Task: task, Timeout: timeout})
	if err == nil {
		err = res.Err()
	}
	return res, err
}

// effectiveTimeout is the override, or else the config's limit.
func effectiveTimeout(config mlestar.PipelineConfig, override time.Duration) (time.Duration, error) {
	if override < 0 {
		return 0, &policy.FieldError{Field: "timeout", Value: override.String(), Rule: "must be more than 0"}
	}
	if override > 0 {
		return override, nil
	}
	if err := config.Validate(); err != nil {
		return 0, err
	}
	// Far beyond every policy, without an overflow into a short limit.
	const most = int(1<<63-1) / int(time.Second)
	return time.Duration(min(config.TimeLimitSeconds, most)) * time.Second, nil
}

// EvaluateBatch evaluates solutions one after the other in the working directory of the task, and
// returns their results in the order of the argument (EX-026). A script that is refused, or that
// we fail to run, does not end the batch: its result says so. The error is the cause of ctx; the
// results are then complete, too. [Harness.Batch] does more.
func (h *Harness) EvaluateBatch(ctx context.Context, solutions []mlestar.SolutionScript, task TaskDescription, config mlestar.PipelineConfig) ([]Result, error) {
	timeout, err := effectiveTimeout(config, 0)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, len(solutions))
	for i, solution := range solutions {
		entries[i] = Entry{Name: "solution-" + strconv.Itoa(i+1), Text: &solution.Content, SHA256: hashText(solution.Content)}
	}
	report, err := h.Batch(ctx, entries, BatchOptions{Task: task, Timeout: timeout, KeepTexts: true})
	return report.Complete(err), err
}

// DebugFunc repairs a script that failed, and returns the repaired one.
type DebugFunc func(ctx context.Context, solution mlestar.SolutionScript, failure Failure) (mlestar.SolutionScript, error)

// Failure is the input of a debugger.
type Failure struct {
	// Traceback is the traceback of the run; nil when it printed none.
	Traceback *string
	// Result is everything that is known of the run.
	Result Result
}

// Text says what went wrong, and is never empty (AI-07): the traceback, or else the last lines of
// stderr, or else a sentence on how the run ended. A syntax error of the script itself and a run
// that was killed print no traceback.
func (f Failure) Text() string {
	switch r := f.Result; {
	case f.Traceback != nil && *f.Traceback != "":
		return *f.Traceback
	case r.ErrorSummary != "":
		return r.ErrorSummary
	case r.Run != nil && r.Run.Explanation != "":
		return r.Run.Explanation
	default:
		return "The script ended with exit code " + strconv.Itoa(r.ExitCode) + " and printed no error."
	}
}

// RetryOptions configure [Harness.EvaluateWithRetry]. The zero value is useful.
type RetryOptions struct {
	// MaxRetries bounds the repairs; nil is the config's MaxDebugAttempts, 0 is one evaluation and no
	// repair.
	MaxRetries *int
	// Timeout, unless 0, is the time limit of each run instead of the config's.
	Timeout time.Duration
	// Name, Seed and Workspace are those of [Job].
	Name      string
	Seed      *uint32
	Workspace string
}

// EvaluateWithRetry evaluates a solution and, as long as the run is not valid and repairs are left,
// lets debug repair it and evaluates again (EX-021). It returns the last pair of a solution and its
// result.
//
// A repaired script that is refused is a failed attempt. A debug that fails uses up an attempt, too;
// the pair stays as it was. The error is for what we failed to do, and for a ctx that ended; the pair
// is then the last one. A result after which ctx ended, although repairs were left, is not conclusive.
func (h *Harness) EvaluateWithRetry(ctx context.Context, solution mlestar.SolutionScript, task TaskDescription, config mlestar.PipelineConfig,
	debug DebugFunc, opts RetryOptions,
) (mlestar.SolutionScript, Result, error) {
	most := config.MaxDebugAttempts
	if opts.MaxRetries != nil {
		most = *opts.MaxRetries
	}
	timeout, err := effectiveTimeout(config, opts.Timeout)
	if err != nil {
		return solution, Result{}, err
	}
	if most < 0 {
		return solution, Result{}, &policy.FieldError{Field: "max_retries", Value: strconv.Itoa(most), Rule: "must not be negative"}
	}
	job := Job{Script: solution.Content, Task: task, Timeout: timeout, Name: opts.Name, Seed: opts.Seed, Workspace: opts.Workspace}
	return h.repair(ctx, solution, job, debug, most)
}

// repair is [Harness.EvaluateWithRetry] for a job.
func (h *Harness) repair(ctx context.Context, solution mlestar.SolutionScript, job Job, debug DebugFunc, most int) (mlestar.SolutionScript, Result, error) {
	original := hashText(solution.Content)
	var left atomic.Int64 // retries that may follow the one that runs; not the first run, which usually ends well
	h = h.expecting(&left)
	res, err := h.Run(ctx, job)
	solution, repairs := h.repairedBefore(solution, res), res.Repairs
	job.Earlier = nil
	n := 1
	for ; err == nil && ctx.Err() == nil && n <= most && !res.Valid() && res.Conclusive(); n++ {
		h.log.LogAttrs(ctx, slog.LevelInfo, "script is repaired and tried again", slog.Int("retry", n), slog.Int("max_retries", most))
		repaired, debugErr := debug(ctx, solution, Failure{Traceback: res.ErrorTraceback, Result: res})
		if ctx.Err() != nil {
			break
		}
		if debugErr != nil {
			h.log.LogAttrs(ctx, slog.LevelWarn, "the debugger failed", slog.Int("retry", n), slog.String("error", debugErr.Error()))
			res.Warnings = append(res.Warnings, fmt.Sprintf("retry %d: the debugger failed: %v", n, debugErr))
			continue
		}
		solution, job.Script, job.File = repaired, repaired.Content, ""
		left.Store(int64(min(most-n, 1)))
		res, err = h.Run(ctx, job)
		repairs++
	}
	left.Store(0)
	if err == nil {
		err = context.Cause(ctx)
	}
	if ctx.Err() != nil && n <= most && res.Failure == "" && !res.Valid() {
		// A repair might have saved it.
		res.Failure = fmt.Sprintf("canceled before the end of retry %d of %d", n, most)
	}
	res.OriginalSHA256, res.Repairs, res.Why = original, repairs, res.why()
	return solution, res, err
}

// expecting returns a copy of the harness that says how many runs of its class are left, besides those
// that h expects.
func (h *Harness) expecting(left *atomic.Int64) *Harness {
	before := h.opts.Hooks.More
	return h.with(func(o *Options) {
		o.Hooks.More = func() int {
			n := int(max(left.Load(), 0)) // a run that was disturbed is done again
			if before != nil {
				n += before()
			}
			return n
		}
	})
}

// alike reports whether runs with any seeds are of one class: a seed is in the environment, with which
// a waiting interpreter has begun.
func (h *Harness) alike(seed *uint32) bool { return seed == nil || len(h.opts.Request.Preload) == 0 }

// repairedBefore returns the script of a result: another than the given one when that was repaired
// before, and only its grading was missing.
func (h *Harness) repairedBefore(given mlestar.SolutionScript, res Result) mlestar.SolutionScript {
	if res.Run == nil || res.ScriptSHA256 == hashText(given.Content) {
		return given
	}
	record, err := h.box.Store().Load(res.Run.ID)
	program, readErr := fsx.Read(record.ProgramPath(), maxProgram)
	if err != nil || readErr != nil || hashText(string(program)) != res.ScriptSHA256 {
		return given
	}
	repaired := mlestar.NewSolution(string(program), mlestar.PhaseRefined)
	repaired.SourceModel = given.SourceModel
	return repaired
}

// maxRepeats bounds the runs of one script.
const maxRepeats = 10_000

// RepetitionSchemaV1 names the wire form of [Repetition].
const RepetitionSchemaV1 = "evalbox/repetition/v1"

// Repetition is one script, run several times.
type Repetition struct {
	// Schema is always [RepetitionSchemaV1].
	Schema string `json:"schema"`
	// Results are in the order of the runs.
	Results []Result `json:"evaluations"`
	// Workspaces are their working directories.
	Workspaces []string `json:"workspaces"`
	// Statistics are those of [Result.BestScore] of the valid ones.
	Statistics Statistics `json:"statistics"`
}

// RepeatOptions configure [Harness.Repeat]. The zero value is useful.
type RepeatOptions struct {
	// Seeds is nil, or has one seed for each run.
	Seeds []uint32
	// Parallel is the number of programs that run at the same time; 0 is 1. More need a
	// [Job.Workspace].
	Parallel int
}

// Jobs returns the jobs of the runs of [Harness.Repeat], with directories of their own. There is a seed
// for each, or none.
func (o RepeatOptions) Jobs(job Job, runs int) []Job {
	workspace, times := job.Workspace, map[uint32]int{}
	jobs := make([]Job, runs)
	for i := range jobs {
		job.Repetition = i
		suffix := fmt.Sprintf("-run-%d", i+1)
		if o.Seeds != nil {
			seed := o.Seeds[i]
			job.Seed, job.Repetition = &seed, times[seed]
			times[seed]++
			suffix = fmt.Sprintf("-seed-%d", seed)
			if job.Repetition > 0 {
				suffix += fmt.Sprintf("-run-%d", job.Repetition+1)
			}
		}
		if workspace != "" && runs > 1 {
			job.Workspace = workspace + suffix
		}
		jobs[i] = job
	}
	return jobs
}

// Repeat runs one job several times. Runs of the same seed have different [Job.Repetition], so that a
// cache does not answer one with another. If the job has a Workspace, and there is more than one run,
// each gets a directory beside it: NAME-seed-S, or NAME-run-N, from 1, for runs without a seed. After
// an error no further run starts; the results of the runs that began come with it.
func (h *Harness) Repeat(ctx context.Context, job Job, runs int, opts RepeatOptions) (Repetition, error) {
	if runs < 1 || runs > maxRepeats {
		return Repetition{}, &policy.FieldError{Field: "repeat", Value: fmt.Sprint(runs), Rule: fmt.Sprintf("must be between 1 and %d", maxRepeats)}
	}
	if opts.Seeds != nil && len(opts.Seeds) != runs {
		return Repetition{}, &policy.FieldError{Field: "seeds", Rule: fmt.Sprintf("there are %d for %d runs", len(opts.Seeds), runs)}
	}
	if opts.Parallel > 1 && runs > 1 && job.Workspace == "" {
		return Repetition{}, &policy.FieldError{Field: "workspace", Rule: "runs at the same time need one, so that each has its own ./final"}
	}
	jobs := opts.Jobs(job, runs)
	results := make([]*Result, runs)
	var left atomic.Int64
	defer left.Store(0)
	h = h.expecting(&left)
	var group errgroup.Group // which ends nothing: what runs goes on to its end
	group.SetLimit(max(opts.Parallel, 1))
	var failed atomic.Bool
	for i, job := range jobs {
		group.Go(func() error {
			if failed.Load() {
				return nil
			}
			if h.alike(job.Seed) {
				left.Store(int64(runs - i - 1))
			}
			res, err := h.Run(ctx, job)
			results[i] = &res
			if err == nil {
				err = context.Cause(ctx)
			}
			failed.CompareAndSwap(false, err != nil)
			return err
		})
	}
	err := group.Wait()
	r := Repetition{Schema: RepetitionSchemaV1}
	for i, res := range results {
		if res != nil {
			r.Results, r.Workspaces = append(r.Results, *res), append(r.Workspaces, jobs[i].Workspace)
		}
	}
	r.Statistics = StatisticsOf(r.Results)
	return r, err
}
