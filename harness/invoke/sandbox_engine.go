package invoke

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/tree"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// What a tool in the sandbox is told.
const (
	// ConfigDir holds the configuration, by its own name.
	ConfigDir = spec.WorkDir + "/config"
	// OutputDir is the output directory.
	OutputDir = spec.WorkDir + "/output"
)

// EngineSandbox and EngineHost are the names of the places where tools run.
const (
	EngineSandbox = "sandbox"
	EngineHost    = "host"
)

// ProgramRunner runs single programs; *sandbox.Runner is one.
type ProgramRunner interface {
	Run(ctx context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error)
	Plan(ctx context.Context, req sandbox.Request) (spec.Spec, error)
	ApplyTree(ctx context.Context, id, target string, opts tree.ApplyOptions) (tree.Report, error)
}

// Sandbox runs tools in fresh containers: the configuration and the root are read-only,
// and the output directory is a copy, the only place that the tool can write to and that
// outlives it. When the tool has ended, what it wrote is carried over to the host.
type Sandbox struct {
	Runner ProgramRunner
	// Request is what all calls have in common: image, limits, user. What the call says
	// takes its place.
	Request sandbox.Request
	// IO shows the output live. Tools have no stdin.
	IO    sandbox.IO
	Hooks sandbox.Hooks
}

func (s Sandbox) check() error {
	if s.Runner == nil {
		return errors.New("invoke: the sandbox needs a runner")
	}
	return nil
}

func (s Sandbox) place(c call) (Plan, error) {
	name := filepath.Base(c.Config)
	if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return Plan{}, &policy.FieldError{Field: "config", Value: fmt.Sprintf("%.200q", c.Config), Rule: "must have a name in UTF-8 without control characters"}
	}
	config := path.Join(ConfigDir, name)
	work := spec.WorkDir
	if c.root != "" {
		work = spec.RepoDir
	}
	return Plan{
		Engine: EngineSandbox, Command: append(append([]string{}, c.words...), c.arguments(config, OutputDir)...), WorkDir: work,
		Config: c.Config, OutputDir: c.Invocation.OutputDir, TimeoutSeconds: c.timeout.Seconds(), Unenforced: []string{},
	}, nil
}

func (s Sandbox) plan(ctx context.Context, c call, p Plan) (Plan, error) {
	req, err := s.request(c, p)
	if err != nil {
		return Plan{}, err
	}
	spec, err := s.Runner.Plan(ctx, req)
	p.Spec = &spec
	return p, err
}

// request says to the sandbox what the call says. It looks only whether there is a
// configuration: the tool is to find out that there is none (MI-02).
func (s Sandbox) request(c call, p Plan) (sandbox.Request, error) {
	req := s.Request
	req.Script, req.Args, req.Input, req.Final, req.Stdin = "", nil, "", "", false
	req.Command, req.WorkDir = p.Command, p.WorkDir
	req.Mounts, req.Trees, req.Masks = nil, nil, nil
	switch _, err := os.Stat(c.Config); {
	case err == nil:
		req.Mounts = append(req.Mounts, sandbox.Mount{Source: c.Config, Target: path.Join(ConfigDir, filepath.Base(c.Config))})
	case !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR):
		return req, &policy.FieldError{Field: "config", Value: fmt.Sprintf("%.200q", c.Config), Rule: "cannot be used: " + fsx.Cause(err).Error()}
	}
	if c.root != "" {
		req.Mounts = append(req.Mounts, sandbox.Mount{Source: c.root, Target: spec.RepoDir})
	}
	req.Trees = []sandbox.Tree{{Source: c.Invocation.OutputDir, Target: OutputDir}}
	req.Limits.Timeout = c.timeout
	req.Env = map[string]string{}
	maps.Copy(req.Env, s.Request.Env)
	maps.Copy(req.Env, c.env)
	return req, nil
}

func (s Sandbox) run(ctx context.Context, c call, p Plan) (ran, error) {
	req, err := s.request(c, p)
	if err != nil {
		return ran{}, err
	}
	res, err := s.Runner.Run(ctx, req, sandbox.IO{Stdout: s.IO.Stdout, Stderr: s.IO.Stderr}, s.Hooks)
	if res == nil {
		return ran{}, err
	}
	out := seen(*res)
	out.err = errors.Join(out.err, err)
	switch out.ended {
	case ReasonCannotExecute, ReasonCanceled, ReasonEngine:
		// What was seen of the output directory may not be all; it stays in the record.
		if n := changes(*res); n > 0 {
			out.left.list = append(out.left.list, fmt.Sprintf("%d changes: %s; they are in the record", n, out.detail))
		}
	default:
		// That the tool failed is no reason not to: what it wrote tells why.
		var report tree.Report
		report, out.lost = s.Runner.ApplyTree(context.WithoutCancel(ctx), res.ID, OutputDir, tree.ApplyOptions{})
		out.left, out.created = leftOutOf(*res, report), createdOf(*res, report)
		if out.lost != nil {
			out.left.list = append(out.left.list, fmt.Sprintf("all other changes: %v", out.lost))
		}
	}
	return out, nil
}

// seen is the result of the sandbox in the words of this package. It is pure.
func seen(res result.Result) ran {
	out := ran{ended: ReasonNonzeroExit, detail: res.Explanation, result: RunResult{
		RunID: res.ID, Image: res.Image.ID,
		Stdout: res.Stdout, Stderr: res.Stderr, StdoutBytes: res.StdoutBytes, StderrBytes: res.StderrBytes,
		StdoutTruncated: res.StdoutTruncated, StderrTruncated: res.StderrTruncated, OutputComplete: res.OutputComplete,
		Signal: res.Signal, TimedOut: res.TimedOut, DurationSeconds: res.DurationSeconds,
	}}
	for _, warning := range res.Warnings {
		// The ID is no news, and would make two runs of the same differ.
		out.result.Warnings = append(out.result.Warnings, strings.ReplaceAll(warning, res.ID, "RUN"))
	}
	code := &res.ExitCode
	switch res.Status {
	case result.StatusExited, result.StatusSignaled:
	case result.StatusTimedOut:
		out.ended, code = ReasonTimeout, nil
	case result.StatusOutOfMemory, result.StatusDiskLimit, result.StatusOutputLimit:
		out.ended = ReasonLimit
	case result.StatusCanceled:
		out.ended, code = ReasonCanceled, nil
	case result.StatusStartFailed:
		code = nil
		switch out.ended = ReasonCannotExecute; res.ExitCode {
		case 126:
			out.err = ErrNotExecutable
		case 127:
		default:
			out.ended = ReasonEngine // it is not the program's fault
		}
	default:
		out.ended, code = ReasonEngine, nil
	}
	out.result.ExitCode = code
	return out
}
