package evaluate

import (
	"context"
	"errors"
	"log/slog"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// Runner runs one program in one fresh container. *sandbox.Runner is one; its
// contract is that of [sandbox.Runner.Run].
type Runner interface {
	Run(ctx context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error)
}

// Options configure an [Evaluator]. The zero value is useful.
type Options struct {
	// Request is the pattern of every run: image, limits, user, GPUs, further
	// environment and so on. What to run, its input, its outputs, its time limit
	// and its stdin are decided here, and must be left out.
	Request sandbox.Request
	// IO shows the output of scripts live, not that of graders. It has no stdin.
	IO sandbox.IO
	// Hooks are those of every run. A grader does not call Started.
	Hooks sandbox.Hooks
	// Log gets what happens to scripts (EX-039); nil is silence.
	Log *slog.Logger
	// Submission, if set, is checked after every run that is valid.
	Submission *SubmissionRule
	// Grader, if set, scores what a script left behind, after every valid run.
	Grader *Grader
	// Cache, if set, is asked before every run. The Runner must then be a
	// [Planner] as well.
	Cache *Cache
	// GPUKind says what kind of GPUs runs have, and how many when Prepare chooses
	// them; a result of other GPUs is another result. It counts in [Evaluator.Setup]
	// and in the keys of the cache.
	GPUKind string
	// Grading, if set, hears of every grading before it begins, with [Job.Name].
	// Several calls may be made at the same time.
	Grading func(name string)
	// Prepare, if set, is called right before every run of a script, and may
	// change its request, for example to lease GPUs for it. release, if not nil,
	// is called when the run is over, and before a grader starts.
	Prepare func(ctx context.Context, req *sandbox.Request) (release func(), err error)
}

// Evaluator evaluates scripts. Its methods may be called concurrently, as long as no
// two of them use the same working folder.
type Evaluator struct {
	runner Runner
	opts   Options
	log    *slog.Logger
	trees  treeCache
	grader []byte // the grader's program
}

// New makes an evaluator, and the folder of its cache. It refuses, joined, everything in
// opts that makes no sense, and a grader, answers or a sample that cannot be used.
func New(runner Runner, opts Options) (*Evaluator, error) {
	if runner == nil {
		return nil, errors.New("evaluate: nil runner")
	}
	r := opts.Request
	var errs []error
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"script", r.Script != ""}, {"command", len(r.Command) > 0}, {"input", r.Input != ""}, {"final", r.Final != ""},
		{"id", r.ID != ""}, {"stdin", r.Stdin || opts.IO.Stdin != nil}, {"timeout", r.Limits.Timeout != 0},
	} {
		if f.set {
			errs = append(errs, &policy.FieldError{Field: f.name, Rule: "is decided by the evaluation, and cannot be part of its pattern"})
		}
	}
	if _, plans := runner.(Planner); opts.Cache != nil && !plans {
		errs = append(errs, errors.New("evaluate: a cache needs a runner that can plan"))
	}
	if opts.Submission != nil {
		errs = append(errs, opts.Submission.CheckSample())
	}
	var grader []byte
	if opts.Grader != nil {
		text, err := opts.Grader.read()
		grader, errs = text, append(errs, err)
	}
	if opts.Cache != nil {
		errs = append(errs, opts.Cache.makeDir())
	}
	log := opts.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Evaluator{runner: runner, opts: opts, log: log, grader: grader}, errors.Join(errs...)
}
