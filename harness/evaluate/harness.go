package evaluate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/evalbox/evalbox/harness/evaluate/submission"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/treehash"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// Options configure a [Harness]. The zero value is useful.
type Options struct {
	// Request is the pattern of every run: image, limits, user, GPUs, environment and so on.
	// The harness decides program, input, outputs, time limit and stdin; leave those out.
	Request sandbox.Request
	// IO shows the output of scripts live, not that of graders. It has no stdin.
	IO sandbox.IO
	// Hooks are those of every run. A grader does not call Started.
	Hooks sandbox.Hooks
	// Log gets the events of scripts (EX-039); nil discards them.
	Log *slog.Logger
	// Submission, if set, is checked after every valid run.
	Submission *submission.Rule
	// Grader, if set, scores the outputs of every valid run.
	Grader *Grader
	// Cache is a directory of results: a script whose result is there does not run. It is
	// created if it is missing; empty means no cache.
	Cache string
	// GPUKind is the kind of GPUs that runs get. It counts in [Harness.Setup] and in the keys
	// of the cache.
	GPUKind string
	// Grading, if set, is called before every grading, with [Job.Name]. Several calls may be
	// made at the same time.
	Grading func(name string)
}

// A Harness evaluates scripts. Its methods may be called concurrently.
type Harness struct {
	box    sandbox.Box
	opts   Options
	log    *slog.Logger
	cache  *trial.Log // nil for none
	stock  *stock
	grader []byte // the grader's program
	// graderSum is the digest of a grader that is a directory; empty for a program.
	graderSum string
	job       trial.Job // that the runs belong to; empty for none
	spent     *spent    // by that job; nil for none
}

// New returns a harness. It refuses, joined, every option that makes no sense, and a grader,
// answers, a sample or a cache that cannot be used.
func New(box sandbox.Box, opts Options) (*Harness, error) {
	if box == nil {
		return nil, errors.New("evaluate: nil box")
	}
	h := &Harness{box: box, opts: opts, log: opts.Log, stock: &stock{known: map[string]*treehash.Memory{}}}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	r := opts.Request
	var errs []error
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"script", r.Script != ""}, {"script_from", r.ScriptFrom != ""}, {"command", len(r.Command) > 0}, {"input", r.Input != ""}, {"final", r.Final != ""},
		{"id", r.ID != ""}, {"stdin", r.Stdin || opts.IO.Stdin != nil}, {"timeout", r.Limits.Timeout != 0},
	} {
		if f.set {
			errs = append(errs, &policy.FieldError{Field: f.name, Rule: "is decided by the evaluation, and cannot be part of its pattern"})
		}
	}
	if opts.Submission != nil {
		errs = append(errs, opts.Submission.CheckSample())
	}
	var err error
	if opts.Grader != nil {
		h.grader, h.graderSum, err = opts.Grader.read(context.Background())
		errs = append(errs, err)
	}
	errs = append(errs, h.checkCache())
	if opts.Cache != "" {
		h.cache, err = openCache(opts.Cache)
		errs = append(errs, err)
	}
	return h, errors.Join(errs...)
}

// A Job is one script to be evaluated.
type Job struct {
	// Script is the text of the program, and File the path that it was read from, for people; empty if
	// there is none.
	Script, File string
	Task         TaskDescription
	// Timeout is the time limit of the run; required.
	Timeout time.Duration
	// Name is the caller's name of the script; see [policy.CheckName]. It may be empty.
	Name string
	// Seed, if not nil, reaches the script as SEED and as PYTHONHASHSEED. Python takes 32 bits.
	Seed *uint32
	// Repetition tells runs apart that are otherwise alike: 0 for the first, and so on. It
	// counts in the keys of the cache.
	Repetition int
	// Resource, unless 0, reaches the script as [ResourceVariable]. Results with another one are of
	// another job.
	Resource int
	// Earlier, if not nil, is an inconclusive result of the same job. If only the grading or
	// the check of the submission is missing, and final/ is still as the run left it, the
	// script does not run again.
	Earlier *Result
	// Setup is the caller's mark of how the script is evaluated, such as that of
	// [Harness.Setup]. It only goes into the result, and may be empty.
	Setup string
	// limits are those of Setup; nil when not known.
	limits *Limits
	// Workspace is the directory of the script and of final/. It is created if it is missing.
	// One without final/ whose solution.py no evaluation has written is refused. Empty is the
	// working directory of the task. One job at a time can use a directory: another job is
	// [sandbox.ErrBusy].
	Workspace string
}

// Run evaluates a script. The script is not changed (EX-016); a script that is refused, fails
// or times out is a result. After an error the result has what is known, and its
// Failure says the same as the error.
//
// The text of the job runs, whatever happens to solution.py meanwhile. final/ is emptied right
// before the program starts (EX-002), and gets the outputs once it has ended. When nothing runs, because the script is refused or its
// result is cached, final/ is emptied as well, unless it has the outputs of the cached run.
//
// When ctx ends while the submission is checked or graded, the error is the cause of ctx, and
// the result has the run, and is not conclusive.
func (h *Harness) Run(ctx context.Context, job Job) (Result, error) {
	res, err := h.run(ctx, job, newResult(job))
	switch {
	case err != nil:
		res.Failure = err.Error()
	case ctx.Err() != nil && res.Run != nil && !res.inspected():
		err = context.Cause(ctx)
	}
	res.Why = res.why()
	return res, err
}

// newResult is the result of a job that has not begun.
func newResult(job Job) Result {
	sum := hashText(job.Script)
	return Result{
		Schema: ResultSchemaV1, Name: job.Name, CompetitionID: job.Task.CompetitionID, ScriptSHA256: sum, OriginalSHA256: sum,
		MetricDirection: job.Task.MetricDirection, BaselineValue: job.Task.BaselineValue, SetupSHA256: job.Setup, Limits: job.limits, Seed: job.Seed, Repetition: job.Repetition, Resource: job.Resource,
		EvaluationResult: EvaluationResult{ExitCode: -1, Warnings: []string{}},
	}
}

func (h *Harness) run(ctx context.Context, job Job, res Result) (Result, error) {
	place, err := h.place(ctx, job)
	if err != nil {
		return res, err
	}
	defer place.lock.Close()
	if again, ok := h.regrade(ctx, job, place, res); ok {
		h.log.LogAttrs(ctx, slog.LevelInfo, "script not run: only its grading or check was missing", slog.String("run_id", again.Run.ID))
		return again, nil
	}
	if refused := checkScript(job.Script); refused != nil {
		return h.clearFinal(ctx, place, "", res.refuse(refused)), nil
	}
	path, err := writeScript(job.Script, place.dir, ScriptName)
	if err != nil {
		return res, err
	}
	h.log.LogAttrs(ctx, slog.LevelDebug, "script written", slog.String("path", path), slog.Int("length", len(job.Script)))
	if job.Workspace != "" {
		if err := markScript(place.dir, job.Script); err != nil {
			return res, err
		}
	}
	x, remove, err := h.prepare(ctx, job, place)
	if err != nil {
		return res, err
	}
	defer remove()
	x.script = path
	x.source, _ = filepath.Abs(cmp.Or(job.File, path)) // empty if the current directory is gone
	known, key, files, err := h.lookUp(ctx, x, &res)
	if err != nil {
		return res, err
	}
	if known != nil {
		return h.clearFinal(ctx, place, known.Run.ID, *known), nil
	}
	ran, err := h.execute(ctx, x)
	if ran != nil {
		res = res.withRun(ran)
	}
	if err != nil {
		return res, err
	}
	res = h.inspect(ctx, job, place, ran, res)
	h.keep(ctx, key, files, x, ran, &res)
	return res, nil
}

// place is where a job works.
type place struct {
	dir, input string
	lock       io.Closer
}

func (p place) final() string { return filepath.Join(p.dir, finalName) }

// place creates and locks the directory of a job.
func (h *Harness) place(ctx context.Context, job Job) (p place, err error) {
	if job.Name != "" {
		if err := policy.CheckName("name", job.Name); err != nil {
			return p, err
		}
	}
	base, input, err := job.Task.Directories()
	if err != nil {
		return p, err
	}
	if input != filepath.Join(base, inputName) || filepath.Base(job.Task.DataDir) == inputName {
		h.log.LogAttrs(ctx, slog.LevelDebug, "data_dir is the input itself; its parent is the working directory", slog.String("cwd", base))
	}
	p.input = input
	switch {
	case job.Workspace != "":
		p.dir, err = makeWorkspace(job.Workspace)
	case input == filepath.Join(base, inputName):
		p.dir, err = SetupWorkingDirectory(base)
	default:
		p.dir, err = base, makeFinal(base)
	}
	if err != nil {
		return p, err
	}
	if h.opts.Grader != nil {
		if err := h.opts.Grader.checkApart(input); err != nil {
			return p, err
		}
	}
	p.lock, err = lockDir(p.dir, "evaluation")
	return p, err
}

// prepare returns the run of a job. Its program is a private copy of the script: a change of
// solution.py before the run has read it would change what is evaluated.
func (h *Harness) prepare(ctx context.Context, job Job, p place) (x execution, remove func(), err error) {
	private, removeTemp, err := h.box.Store().Temp("script")
	if err != nil {
		return x, nil, fmt.Errorf("creating a directory for the script: %w", err)
	}
	remove = func() {
		if err := removeTemp(); err != nil {
			h.log.LogAttrs(ctx, slog.LevelWarn, "the copy of a script is left behind", slog.String("path", private), slog.String("error", err.Error()))
		}
	}
	aliases, aliasErr := job.Task.allAliases(p.input)
	pattern, patternErr := scorePattern(job.Task.ScorePattern)
	if err := errors.Join(aliasErr, patternErr); err != nil {
		remove()
		return x, nil, err
	}
	x = execution{program: filepath.Join(private, ScriptName), dir: p.dir, input: p.input, timeout: job.Timeout, name: job.Name,
		work: workIn(p.dir, fmt.Sprintf("%s %d", job.Setup, job.Repetition)), aliases: aliases, pattern: pattern}
	if err := os.WriteFile(x.program, []byte(job.Script), 0o600); err != nil {
		remove()
		return x, nil, fmt.Errorf("copying the script: %w", err)
	}
	x.env, _ = BuildExecutionEnv(nil, nil) // only GPUs can be wrong
	maps.Copy(x.env, h.opts.Request.Env)   // a caller's PYTHONHASHSEED wins, but not over a seed
	if job.Seed != nil {
		seed := strconv.FormatUint(uint64(*job.Seed), 10)
		x.env["SEED"], x.env["PYTHONHASHSEED"] = seed, seed
	}
	if job.Resource != 0 {
		x.env[ResourceVariable] = strconv.Itoa(job.Resource)
	}
	return x, remove, nil
}

// inspect checks and grades the outputs of a valid run. Their failures are part of the result.
func (h *Harness) inspect(ctx context.Context, job Job, p place, ran *result.Result, res Result) Result {
	valid := res.Valid()
	elsewhere := h.unpublished(ran)
	if h.opts.Submission != nil && valid && elsewhere == "" {
		check := h.opts.Submission.Check(ctx, p.dir)
		res.Submission = &check
	}
	if h.opts.Grader == nil {
		return res
	}
	res.Grading = &Grading{Failure: "the script failed"}
	switch {
	case valid && elsewhere != "":
		res.Grading.Failure = "the outputs did not come to final/: they are in " + elsewhere
	case valid:
		res.Grading = h.grade(ctx, job, p.final(), ran)
	}
	res.GradedScore = res.Grading.Score
	if res.Grading.ScoreCut {
		res.Warnings = append(res.Warnings, "grader: "+scoreCut(*res.GradedScore))
	}
	if res.Overstated(job.Task.MetricDirection) {
		res.Warnings = append(res.Warnings, overstated(res))
	}
	return res
}

// unpublished is the directory of the outputs of a run that did not come to its final/; empty for none.
func (h *Harness) unpublished(ran *result.Result) string {
	dir, _ := h.box.Store().Unpublished(ran.ID)
	return dir
}

// regrade takes over the run of an earlier result of the same job, and inspects its outputs if
// they are still there. ok reports whether it did.
func (h *Harness) regrade(ctx context.Context, job Job, p place, res Result) (again Result, ok bool) {
	old := job.Earlier
	if old == nil || old.Run == nil || !old.Valid() || old.inspected() || old.jobKey() != res.jobKey() {
		return res, false
	}
	if h.box.LeftBy(ctx, p.final()) != old.Run.ID {
		return res, false
	}
	record, err := h.box.Store().Load(old.Run.ID)
	if err != nil || record.Result == nil {
		return res, false
	}
	again = old.withRun(record.Result)
	if job.Task.ScorePattern != "" {
		again.Score, again.SelfReported, again.ScoreUnfinished, again.ScoreCut = old.Score, old.SelfReported, old.ScoreUnfinished, old.ScoreCut
	}
	again.Warnings = append([]string{}, old.Warnings...)
	again.Grading, again.GradedScore, again.Submission = nil, nil, nil
	return h.inspect(ctx, job, p, record.Result, again), true
}

// clearFinal empties final/, so that it has no outputs of another run than keep. What cannot be
// removed is a warning.
func (h *Harness) clearFinal(ctx context.Context, p place, keep string, res Result) Result {
	warning, err := h.box.ClearFinal(ctx, p.final(), keep)
	if err != nil {
		warning = "what lies in " + p.final() + " is of an earlier run: " + err.Error()
	}
	if warning != "" {
		res.Warnings = append(res.Warnings, warning)
	}
	return res
}

// Plan decides everything that [Harness.Run] decides before the program starts. It starts
// nothing. Problems say why the script would be refused, Key stands for everything that the
// result depends on, and Detail is the [spec.Spec] of the run. The error is that of a run that
// would be refused.
func (h *Harness) Plan(ctx context.Context, job Job) (trial.Plan, error) {
	plan := trial.Plan{Problems: []trial.Problem{}}
	for _, v := range ValidateScript(job.Script) {
		plan.Problems = append(plan.Problems, v.problem())
	}
	_, input, err := job.Task.Directories()
	if err != nil {
		return plan, err
	}
	x, remove, err := h.prepare(ctx, job, place{input: input})
	if err != nil {
		return plan, err
	}
	defer remove()
	x.dir = filepath.Dir(x.program) // the caller's final/ is not touched
	if err := os.Mkdir(filepath.Join(x.dir, finalName), 0o755); err != nil {
		return plan, err
	}
	parts, _, err := h.parts(ctx, x, newResult(job))
	if err != nil {
		return plan, err
	}
	plan.Key = parts.key()
	plan.Detail, err = json.Marshal(parts.Spec)
	return plan, err
}

// BuildExecutionEnv returns the environment of a script (EX-004): a copy of parent with
// PYTHONUNBUFFERED=1 and PYTHONHASHSEED=0, and with CUDA_VISIBLE_DEVICES set to the given
// GPUs in the given order. A nil slice leaves that variable as parent has it; an empty one
// hides all GPUs. A negative index is refused.
//
// The harness passes a nil parent: a program in a container never sees the environment of
// its caller, which may have secrets. It passes no GPUs: [sandbox.Request] decides which
// GPUs a container has, and there they are numbered from 0.
func BuildExecutionEnv(parent map[string]string, gpus []int) (map[string]string, error) {
	env := map[string]string{}
	maps.Copy(env, parent)
	env["PYTHONUNBUFFERED"], env["PYTHONHASHSEED"] = "1", "0"
	if gpus == nil {
		return env, nil
	}
	indices := make([]string, len(gpus))
	for i, gpu := range gpus {
		if gpu < 0 {
			return nil, &policy.FieldError{Field: "gpus", Value: strconv.Itoa(gpu), Rule: "is not the index of a GPU"}
		}
		indices[i] = strconv.Itoa(gpu)
	}
	env["CUDA_VISIBLE_DEVICES"] = strings.Join(indices, ",")
	return env, nil
}
