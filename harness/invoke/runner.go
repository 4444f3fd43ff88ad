package invoke

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/internal/hostfile"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// DefaultTimeout is the time limit of a call if nobody says otherwise (M3-11).
const DefaultTimeout = 300 * time.Second

// Runner calls one tool. It may be used concurrently, with an output directory for each
// call.
type Runner struct {
	words   []string
	timeout time.Duration
	env     map[string]string
	root    string
	profile Profile
	engine  engine
}

// Option configures a [Runner]; a value that makes no sense is refused.
type Option func(*Runner) error

// WithTimeout sets the time limit of each call; it must be positive (MI-01).
func WithTimeout(limit time.Duration) Option {
	return func(r *Runner) error {
		if limit <= 0 {
			return &policy.FieldError{Field: "timeout", Value: limit.String(), Rule: "must be positive"}
		}
		r.timeout = limit
		return nil
	}
}

// WithEnv adds variables to the fixed environment of the engine. Nothing of the
// caller's own environment is passed on.
func WithEnv(env map[string]string) Option {
	return func(r *Runner) error {
		r.env = maps.Clone(env)
		return errors.Join(policy.CheckEnv(env)...)
	}
}

// WithRoot names a folder that the tool starts in, and finds its own files in. In the
// sandbox it is read-only.
func WithRoot(dir string) Option {
	return func(r *Runner) error {
		info, err := os.Stat(dir)
		if err == nil && !info.IsDir() {
			err = errors.New("is not a directory")
		}
		if err != nil {
			return &policy.FieldError{Field: "root", Value: fmt.Sprintf("%.200q", dir), Rule: cause(err)}
		}
		r.root, err = filepath.Abs(dir)
		return err
	}
}

// WithProfile declares further artifacts.
func WithProfile(p Profile) Option {
	return func(r *Runner) error {
		r.profile = p
		return p.check(nil, "profile")
	}
}

// WithSandbox runs the tool in fresh containers.
func WithSandbox(s Sandbox) Option { return func(r *Runner) error { return r.choose(s) } }

// WithHost runs the tool on this machine, with nothing between the two but a process
// group: for tools that one trusts, where there is no engine.
func WithHost(h Host) Option { return func(r *Runner) error { return r.choose(h) } }

func (r *Runner) choose(e engine) error {
	if r.engine != nil {
		return errors.New("invoke: two engines are named")
	}
	r.engine = e
	return e.check()
}

// New makes a runner of a command line such as "python -m tool.cli", see
// [SplitCommand]. Where it runs must be said, with [WithSandbox] or [WithHost].
func New(executable string, opts ...Option) (*Runner, error) {
	words, err := SplitCommand(executable)
	if err != nil {
		return nil, err
	}
	r := &Runner{words: words, timeout: DefaultTimeout}
	for _, opt := range opts {
		if err := opt(r); err != nil {
			return nil, err
		}
	}
	if r.engine == nil {
		return nil, errors.New("invoke: no engine is named")
	}
	return r, nil
}

// engine is where a tool runs.
type engine interface {
	check() error
	// place is what the tool is told and where it starts. It is pure but for looking
	// whether the configuration exists.
	place(c call) (Plan, error)
	// plan completes a plan with what only the engine knows. It starts nothing.
	plan(ctx context.Context, c call, p Plan) (Plan, error)
	run(ctx context.Context, c call, p Plan) (ran, error)
}

// call is one invocation with all that the runner knows.
type call struct {
	Invocation
	words   []string
	timeout time.Duration
	env     map[string]string
	root    string
}

// Plan is what a call would run.
type Plan struct {
	Engine  string   `json:"engine"`
	Command []string `json:"command"`
	WorkDir string   `json:"work_dir"`
	// Config and OutputDir are the host's paths.
	Config         string  `json:"config"`
	OutputDir      string  `json:"output_dir"`
	TimeoutSeconds float64 `json:"timeout_seconds"`
	// Unenforced are limits that do not hold.
	Unenforced []string `json:"unenforced"`
	// Spec is the plan of the sandbox; nil on the host.
	Spec *sandbox.Spec `json:"spec,omitempty"`
}

// ran is what an engine saw of a call.
type ran struct {
	result RunResult
	// ended says how the tool ended: ReasonNonzeroExit stands for any end of its own.
	ended Reason
	// detail says more of an end that is not the tool's own, and err is its cause.
	detail string
	err    error
	// odd says of names in the output directory why they were not carried over.
	odd map[string]string
}

// Plan says what [Runner.Run] would do, and refuses what it would refuse. It changes
// nothing.
func (r *Runner) Plan(ctx context.Context, inv Invocation) (Plan, error) {
	c, p, err := r.prepare(inv)
	if err != nil {
		return Plan{}, err
	}
	return r.engine.plan(ctx, c, p)
}

// prepare does all that can be done before the engine is asked.
func (r *Runner) prepare(inv Invocation) (call, Plan, error) {
	inv, err := inv.absolute()
	if err != nil {
		return call{}, Plan{}, err
	}
	if err := checkOutput(inv.OutputDir, r.profile.names()); err != nil {
		return call{}, Plan{}, err
	}
	c := call{inv, r.words, r.timeout, r.env, r.root}
	p, err := r.engine.place(c)
	return c, p, err
}

// Run calls the tool once and returns what it did. A call that did not end well, or left
// no manifest.json or no trace_pack.jsonl, is an [*InvocationError] or a
// [*TimeoutError], which hold all that was seen; input that is refused, before anything
// is started, is another error (MI-02). What the artifacts say is for [RunResult.Verify]
// to judge.
func (r *Runner) Run(ctx context.Context, inv Invocation) (RunResult, error) {
	c, p, err := r.prepare(inv)
	if err != nil {
		return RunResult{}, err
	}
	before, err := stampsOf(c.OutputDir)
	if err != nil {
		return RunResult{}, err
	}
	out, err := r.engine.run(ctx, c, p)
	if err != nil {
		return RunResult{}, err
	}
	res := out.result
	res.Schema, res.Engine, res.Command, res.WorkDir, res.Unenforced = RunResultSchemaV1, p.Engine, p.Command, p.WorkDir, p.Unenforced
	res.unchanged = before.unchanged(c.OutputDir)
	res.ManifestPath, res.TracePackPath = made(c.OutputDir, ManifestName), made(c.OutputDir, TracePackName)
	res.NotWritten, res.Unenforced = orEmpty(res.NotWritten), orEmpty(res.Unenforced)
	res.Warnings = orEmpty(res.Warnings)
	return res, r.judge(c, out, res)
}

// judge says what is wrong with a call, the first thing first; nil for nothing.
func (r *Runner) judge(c call, out ran, res RunResult) error {
	switch out.ended {
	case ReasonTimeout:
		return timedOut(res, c.timeout)
	case ReasonCannotExecute:
		e := failure(res, out.ended, out.err, "the tool could not be executed: %s", out.detail)
		if e.Stderr == "" {
			e.Stderr = out.detail
		}
		return e
	case ReasonNonzeroExit:
	default:
		return failure(res, out.ended, out.err, "the tool did not end by itself: %s", out.detail)
	}
	if res.ExitCode == nil || *res.ExitCode != 0 {
		if res.Signal != 0 {
			return failure(res, ReasonNonzeroExit, nil, "the tool was ended by signal %d", res.Signal)
		}
		return failure(res, ReasonNonzeroExit, nil, "the tool exited with code %d", *res.ExitCode)
	}
	if out.err != nil {
		return failure(res, ReasonNotWritten, out.err, "what the tool left could not be written to %s: %v", c.OutputDir, out.err)
	}
	for _, name := range append([]string{ManifestName, TracePackName}, r.profile.required()...) {
		if made(c.OutputDir, name) != "" {
			continue
		}
		path := filepath.Join(c.OutputDir, filepath.FromSlash(name))
		e := failure(res, ReasonMissingArtifact, nil, "required artifact missing: %s%s", path, whyMissing(path, out.odd[name]))
		e.Artifact = path
		return e
	}
	return nil
}

// made is the path of an artifact that is a regular file; empty if there is none. None
// was there before the run, see [checkOutput].
func made(dir, name string) string {
	path := filepath.Join(dir, filepath.FromSlash(name))
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		return ""
	}
	return path
}

// whyMissing says what is there in place of an artifact.
func whyMissing(path, odd string) string {
	if info, err := os.Lstat(path); err == nil {
		return " (is " + hostfile.Kind(info.Mode()) + ")"
	}
	if odd != "" {
		return " (" + odd + ")"
	}
	return ""
}

func orEmpty(list []string) []string { return append([]string{}, list...) }
