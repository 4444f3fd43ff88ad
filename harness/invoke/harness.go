// Package invoke runs a black-box command line that declares its artifacts, and checks the
// artifacts.
//
// The tool is an external process only. It gets two paths and two options,
//
//	TOOL... --config FILE --output DIR [--adapter NAME] [--seed N]
//
// and leaves manifest.json and trace_pack.jsonl in the output directory. [Harness.Run]
// runs it in a fresh container and verifies its artifacts. [Verify] checks a directory
// without an engine, and returns the SHA-256 of every file. Nothing here changes a file of
// the tool.
//
// The package reads no clock, no random numbers and no environment except the given one.
// So two runs with the same input differ in the fields of [VolatileFields] only, unless the
// tool itself behaves differently. Relative paths are relative to the current directory.
//
// Identifiers such as M3-05 and MI-02 are those of docs/requirements.md.
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
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// The paths that a tool gets.
const (
	// ConfigDir holds the configuration, by its own name.
	ConfigDir = spec.WorkDir + "/config"
	// OutputDir is the output directory.
	OutputDir = spec.WorkDir + "/output"
)

// DefaultTimeout is the time limit of a call unless [Options] have another one (M3-11).
const DefaultTimeout = 300 * time.Second

// engineName is the engine of the wire forms.
const engineName = "sandbox"

// Options describe a tool and its containers.
type Options struct {
	// Executable is the command line of the tool, such as "python -m tool.cli"; see
	// [SplitCommand].
	Executable string
	// Root is a directory with the tool's own files, in which it starts. The tool sees it
	// read-only. Empty is none; the tool then starts in an empty directory.
	Root string
	// Env adds variables to the environment of every run. Nothing of the caller's own
	// environment is passed on.
	Env map[string]string
	// Timeout is the time limit of each call; 0 is [DefaultTimeout], and a negative one is
	// refused (MI-01).
	Timeout time.Duration
	// Verify are the demands on the artifacts. The artifacts that its profile requires are
	// required from every call.
	Verify VerifyOptions
	// Request is common to all calls: image, limits, user. The call replaces its program,
	// mounts and working copies. Tools have no stdin.
	Request sandbox.Request
	// IO shows the output live; its Stdin is not used. Hooks connect each run with the caller.
	IO    sandbox.IO
	Hooks sandbox.Hooks
}

// A Harness calls one tool in fresh containers. The configuration and the root are
// read-only. The output directory is a working copy: the only place that the tool can
// write to and that outlives it. A Harness may be used concurrently, with another output
// directory for each call.
type Harness struct {
	box   sandbox.Box
	words []string
	o     Options
}

// New makes a harness of a tool. A value that makes no sense is refused with a
// [*policy.FieldError].
func New(box sandbox.Box, o Options) (*Harness, error) {
	if box == nil {
		return nil, errors.New("invoke: a box is needed")
	}
	words, err := SplitCommand(o.Executable)
	if err != nil {
		return nil, err
	}
	if o.Timeout < 0 {
		return nil, &policy.FieldError{Field: "timeout", Value: o.Timeout.String(), Rule: "must be positive"}
	}
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if err := errors.Join(policy.CheckEnv(o.Env)...); err != nil {
		return nil, err
	}
	o.Env, o.IO.Stdin = maps.Clone(o.Env), nil
	if o.Root != "" {
		info, err := os.Stat(o.Root)
		if err == nil && !info.IsDir() {
			err = errors.New("is not a directory")
		}
		if err != nil {
			return nil, fieldError("root", o.Root, fsx.Cause(err).Error())
		}
		if o.Root, err = filepath.Abs(o.Root); err != nil {
			return nil, err
		}
	}
	if err := o.Verify.Profile.check(nil, "profile"); err != nil {
		return nil, err
	}
	return &Harness{box, words, o}, nil
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
	// Unenforced is always empty: every limit of a container holds.
	Unenforced []string `json:"unenforced"`
	// Spec is the plan of the sandbox.
	Spec *spec.Spec `json:"spec,omitempty"`
}

// Plan returns what [Harness.Run] would do, and as an error what Run would refuse, except
// an output directory that another call uses. It starts and changes nothing.
func (h *Harness) Plan(ctx context.Context, inv Invocation) (Plan, error) {
	c, err := h.prepare(inv)
	if err != nil {
		return Plan{}, err
	}
	root, err := h.openOutput(c.OutputDir)
	if err != nil {
		return Plan{}, err
	}
	defer root.Close()
	plan := Plan{
		Engine: engineName, Command: c.request.Command, WorkDir: c.request.WorkDir, Config: c.Config, OutputDir: c.OutputDir,
		TimeoutSeconds: h.o.Timeout.Seconds(), Unenforced: []string{},
	}
	s, err := h.box.Plan(ctx, c.request)
	plan.Spec = &s
	return plan, err
}

// call is an invocation with absolute paths, and the request for it.
type call struct {
	Invocation
	request sandbox.Request
	// noConfig means that the configuration does not exist.
	noConfig bool
}

// prepare makes the request of a call. It looks for the configuration only: the tool is to
// find out that there is none (MI-02).
func (h *Harness) prepare(inv Invocation) (call, error) {
	inv, err := inv.absolute()
	if err != nil {
		return call{}, err
	}
	c := call{Invocation: inv, request: h.o.Request}
	name, req := filepath.Base(c.Config), &c.request
	if !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return call{}, fieldError("config", c.Config, "must have a name in UTF-8 without control characters")
	}
	config := path.Join(ConfigDir, name)
	req.Script, req.Args, req.Input, req.Final, req.Stdin = "", nil, "", "", false
	req.Command = append(append([]string{}, h.words...), inv.arguments(config, OutputDir)...)
	req.WorkDir, req.Mounts, req.Masks = spec.WorkDir, nil, nil
	req.Trees = []sandbox.Tree{{Source: c.OutputDir, Target: OutputDir}}
	switch _, err := os.Stat(c.Config); {
	case err == nil:
		req.Mounts = append(req.Mounts, sandbox.Mount{Source: c.Config, Target: config})
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		c.noConfig = true
	default:
		return call{}, fieldError("config", c.Config, "cannot be used: "+fsx.Cause(err).Error())
	}
	if h.o.Root != "" {
		req.Mounts, req.WorkDir = append(req.Mounts, sandbox.Mount{Source: h.o.Root, Target: spec.RepoDir}), spec.RepoDir
	}
	req.Limits.Timeout = h.o.Timeout
	req.Env = map[string]string{}
	maps.Copy(req.Env, h.o.Request.Env)
	maps.Copy(req.Env, h.o.Env)
	return c, nil
}

// openOutput opens the output directory, which must exist (MI-02). An artifact that exists
// already could not be distinguished from one that the tool writes, so it is refused. A
// file behind a link is not an artifact.
func (h *Harness) openOutput(dir string) (*os.Root, error) {
	refuse := func(rule string) (*os.Root, error) { return nil, fieldError("output", dir, rule) }
	root, err := fsx.OpenRoot(dir)
	var other *fsx.NotDirectoryError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refuse("does not exist: make the directory first")
	case errors.As(err, &other):
		return refuse("is not a directory")
	case err != nil:
		return refuse("cannot be used: " + fsx.Cause(err).Error())
	}
	for _, name := range h.o.Verify.Profile.names() {
		_, err := fsx.LstatBelow(root, filepath.FromSlash(name))
		rule := ""
		switch {
		case err == nil:
			rule = "holds " + name + " from before: give a directory without it, or remove it"
		case !errors.Is(err, fs.ErrNotExist) && !errors.As(err, &other):
			rule = fmt.Sprintf("%s cannot be looked at: %v", name, fsx.Cause(err))
		}
		if rule != "" {
			_ = root.Close() // was only read
			return refuse(rule)
		}
	}
	return root, nil
}
