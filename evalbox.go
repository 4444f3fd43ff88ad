// Package evalbox runs untrusted programs as the command sandbox does, each in a fresh
// container:
//
//	res, err := evalbox.Run(ctx, "train.py", func(c *evalbox.Call) { c.Input = "data" })
//	if err != nil { … }          // the sandbox failed or refused
//	fmt.Println(res, res.OK())   // exited 0 · 1.42s · peak 150 MiB · id … true
//
// [New] opens what the command uses: the engine, the settings files and SANDBOX_ variables, the
// shipped image catalog, the image lock. The package sandbox has the same with every part chosen by
// the caller; the package result describes what happened.
package evalbox

import (
	"context"
	_ "embed" // for go:embed
	"errors"
	"log/slog"
	"maps"
	"slices"

	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// DockerfileRunner is the text of Dockerfile.runner, through which every image
// of the catalog is built. Do not change it at run time.
//
//go:embed Dockerfile.runner
var DockerfileRunner string

// Requirements is the text of requirements.lock: the Python packages of the
// images on a registry base, each with its hashes, in pip's format. Do not change
// it at run time.
//
//go:embed requirements.lock
var Requirements string

// A Call is one run as an [Option] finds it: with the program, and with what the settings say of
// every run. Its fields are those of a request: Input, Final, Args, Image, Limits, and the maps Env
// and Labels, which are not nil.
type Call struct {
	sandbox.Request

	// IO connects the streams of the program; Hooks connect the run with its caller.
	IO    sandbox.IO
	Hooks sandbox.Hooks
}

// An Option changes a run before it is planned. Options are applied in their order.
type Option = func(*Call)

// A Runner runs programs as the settings say. Its methods may be called concurrently.
type Runner struct {
	// Sandbox has everything else: records, plans, garbage collection. Harnesses take it. Its
	// own Run does not know Request.
	Sandbox *sandbox.Runner
	// Request is what the settings say of every run, such as the image and the limits.
	Request sandbox.Request
}

// New opens a runner with the settings of the command: those of the user's file, of ./sandbox.yaml
// and of the environment. An unusable setting is an error with its place. Nothing is logged, and
// the engine is not asked yet. The options replace what the settings say. The caller closes the
// runner.
//
// The engine for Docker is always there. The engine for Kubernetes nearly doubles the size of a program,
// so it is an option, without which settings that say "engine: kubernetes" are refused:
//
//	runner, err := evalbox.New(sandbox.WithKubernetes(kubernetes.Connect))
func New(options ...sandbox.Option) (*Runner, error) {
	s, err := settings.Load("", nil)
	if err != nil {
		return nil, err
	}
	runner, err := s.Runner(slog.New(slog.DiscardHandler), options...)
	if err != nil {
		return nil, err
	}
	return &Runner{Sandbox: runner, Request: s.Request()}, nil
}

// Run runs a Python script of this machine, and returns when it has ended. How it ended is in the
// result; an error means that the sandbox failed or refused. See [sandbox.Runner.Run] for
// cancellation and for the types of errors.
func (r *Runner) Run(ctx context.Context, script string, options ...Option) (*result.Result, error) {
	call := r.call()
	call.Script = script
	return r.run(ctx, call, options)
}

// Command runs a command of the image, without a shell; see [Runner.Run].
func (r *Runner) Command(ctx context.Context, command []string, options ...Option) (*result.Result, error) {
	call := r.call()
	call.Request.Command = command
	return r.run(ctx, call, options)
}

// call is a run whose maps and lists are its own.
func (r *Runner) call() Call {
	req := r.Request
	req.Env, req.Labels, req.Preload = maps.Clone(req.Env), maps.Clone(req.Labels), slices.Clone(req.Preload)
	if req.Env == nil {
		req.Env = map[string]string{}
	}
	if req.Labels == nil {
		req.Labels = map[string]string{}
	}
	return Call{Request: req}
}

func (r *Runner) run(ctx context.Context, call Call, options []Option) (*result.Result, error) {
	for _, option := range options {
		option(&call)
	}
	return r.Sandbox.Run(ctx, call.Request, call.IO, call.Hooks)
}

// Close closes the sandbox; see [sandbox.Runner.Close].
func (r *Runner) Close() error { return r.Sandbox.Close() }

// Run runs a Python script with a runner of its own: [New], [Runner.Run] and [Runner.Close]. A
// caller with several runs opens one runner for all of them.
func Run(ctx context.Context, script string, options ...Option) (*result.Result, error) {
	return once(func(r *Runner) (*result.Result, error) { return r.Run(ctx, script, options...) })
}

// Command is [Run] for a command of the image; see [Runner.Command].
func Command(ctx context.Context, command []string, options ...Option) (*result.Result, error) {
	return once(func(r *Runner) (*result.Result, error) { return r.Command(ctx, command, options...) })
}

func once(run func(*Runner) (*result.Result, error)) (*result.Result, error) {
	r, err := New()
	if err != nil {
		return nil, err
	}
	res, err := run(r)
	if closeErr := r.Close(); closeErr != nil {
		err = errors.Join(err, closeErr)
	}
	return res, err
}
