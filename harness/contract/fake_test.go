package contract

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// fakeBox stands in for a sandbox: program says what the command does, and the
// result is completed as a run completes it.
type fakeBox struct {
	program func(req sandbox.Request, stdin string) result.Result
	planErr error
	// runErr ends a run before the program starts.
	runErr error
	// store has the records.
	store *record.Store
	ran   []sandbox.Request
	// probed are the runs that only looked at the image, and clock their result.
	probed []sandbox.Request
	clock  result.Result
}

func (f *fakeBox) Plan(_ context.Context, req sandbox.Request) (spec.Spec, error) {
	if f.planErr != nil {
		return spec.Spec{}, f.planErr
	}
	var env []string
	for name, value := range req.Env {
		env = append(env, name+"="+value)
	}
	var trees []spec.JobTree
	for _, tree := range req.Trees {
		trees = append(trees, spec.JobTree{Source: tree.Source, Target: tree.Target})
	}
	var mounts []spec.HostMount
	for _, mount := range req.Mounts {
		mounts = append(mounts, spec.HostMount(mount))
	}
	var egress *spec.Egress
	if req.Egress != nil {
		egress = &spec.Egress{Connections: 4}
	}
	return spec.Spec{
		Class: spec.Class{
			WorkDir: req.WorkDir, Image: spec.Image{ID: "sha256:0123" + req.Image, Locked: true}, Env: []string{"HOME=/tmp", "PYTHONHASHSEED=0"},
			Cgroup: spec.Cgroup{MemoryBytes: int64(req.Limits.Memory), NanoCPUs: int64(req.Limits.CPUs * 1e9), PIDs: req.Limits.PIDs},
		},
		Job: spec.Job{Command: req.Command, Env: env, Mounts: mounts, Trees: trees, NoFork: req.NoFork, Egress: egress, TimeoutSeconds: req.Limits.Timeout.Seconds()},
	}, nil
}

func (f *fakeBox) Run(ctx context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error) {
	if req.ID == "" {
		req.ID = record.NewID(time.Now())
	}
	if req.Labels[labelProbe] != "" {
		f.probed = append(f.probed, req)
		if err := os.MkdirAll(f.store.RecordDir(req.ID), 0o700); err != nil {
			return nil, err
		}
		probed := f.clock
		probed.ID = req.ID
		return &probed, nil
	}
	f.ran = append(f.ran, req)
	if f.runErr != nil {
		return nil, f.runErr
	}
	if err := os.MkdirAll(filepath.Join(f.store.RecordDir(req.ID), "final"), 0o700); err != nil {
		return nil, err
	}
	var streams sandbox.IO
	var hooks sandbox.Hooks
	for _, opt := range opts {
		switch opt := opt.(type) {
		case sandbox.IO:
			streams = opt
		case sandbox.Hooks:
			hooks = opt
		}
	}
	if hooks.Admit != nil {
		release, err := hooks.Admit(ctx)
		if err != nil {
			return nil, err
		}
		if release != nil {
			release()
		}
	}
	if hooks.Begin != nil {
		if err := hooks.Begin(req.ID); err != nil {
			return nil, err
		}
	}
	var stdin []byte
	if streams.Stdin != nil {
		var err error
		if stdin, err = io.ReadAll(streams.Stdin); err != nil {
			return nil, err
		}
	}
	res := result.Result{Status: result.StatusExited}
	if f.program != nil {
		res = f.program(req, string(stdin))
	}
	switch {
	case res.Fault != 0:
	case res.Status == result.StatusCanceled:
		res.Fault = result.FaultOperator
	case res.Status == result.StatusEngineLost, res.Status == result.StatusStartFailed:
		res.Fault = result.FaultEnvironment
	default:
		res.Fault = result.FaultProgram
	}
	res.ID = req.ID
	res.OutputComplete = true
	if res.StdoutBytes == 0 {
		res.StdoutBytes = int64(len(res.Stdout))
	}
	if res.StderrBytes == 0 {
		res.StderrBytes = int64(len(res.Stderr))
	}
	res.Image = result.Image{Name: "debian", ID: "sha256:0123", Locked: true}
	if res.Enforced.TimeoutSeconds == 0 {
		res.Enforced = result.Enforced{TimeoutSeconds: req.Limits.Timeout.Seconds(), MemoryBytes: int64(req.Limits.Memory),
			CPUs: req.Limits.CPUs, PIDs: req.Limits.PIDs}
	}
	if res.Resources.Source == "" {
		res.Resources = result.Resources{Source: "fake", PeakMemoryBytes: 1 << 20, CPUSeconds: 0.5}
	}
	if res.Explanation == "" {
		res.Explanation = "The program ended."
	}
	return &res, nil
}

func (f *fakeBox) Store() *record.Store { return f.store }

func (f *fakeBox) ClearFinal(context.Context, string, string) (string, error) { return "", nil }

func (f *fakeBox) Adopt(context.Context, string, ...sandbox.RunOption) (*result.Result, error) {
	return nil, record.ErrNoRecord
}

func (f *fakeBox) LeftBy(context.Context, string) string { return "" }

var errFake = errors.New("the engine is gone")

// shippedRules are the rules of the shipped registry and profiles.
func shippedRules(t *testing.T) Rules {
	t.Helper()
	tools, err := registry.Parse(configs.Tools(), "tools.yaml")
	require.NoError(t, err)
	profiles, err := policy.ParseProfiles(configs.Profiles(), "profiles.yaml")
	require.NoError(t, err)
	return Rules{Registry: tools, Profiles: profiles}
}

// newHarness executes contracts with a fake box, in a root of its own.
func newHarness(t *testing.T, program func(req sandbox.Request, stdin string) result.Result) (*Harness, *fakeBox) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"root/src", "root/out", "state/runs"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "root/src/a.txt"), []byte("a\n"), 0o644))
	store, err := record.Open(filepath.Join(dir, "state"))
	require.NoError(t, err)
	box := &fakeBox{program: program, store: store}
	h, err := New(box, Options{Rules: shippedRules(t), Root: filepath.Join(dir, "root"), Approvals: Approvals{filepath.Join(dir, "approvals")}})
	require.NoError(t, err)
	return h, box
}

// of is the job of a parsed contract, document that of a text.
func of(c Contract) Job { return Job{Contract: &c} }

func document(text string) Job { return Job{Text: []byte(text)} }

// cat is a contract that everything else is made of.
func cat() Contract {
	return Contract{
		ToolID: "TL-020", Inputs: Inputs{Command: "cat", Arguments: []string{"a.txt"}, WorkingDirectory: "src", InputFiles: []string{"a.txt"}},
		Metadata: Metadata{RequestedBy: "a test", Purpose: "to see"},
	}
}

func (f *fakeBox) ApplyTree(_ context.Context, _, target string, opts tree.ApplyOptions) (tree.Report, error) {
	if opts.Git {
		return tree.Report{Target: target, Complete: true, Changes: []tree.Change{{Path: ".git/config", Change: "created", State: tree.Applied}}}, nil
	}
	return tree.Report{Target: target, Complete: true, Changes: []tree.Change{
		{Path: "new", Change: "created", State: tree.Applied},
		{Path: "theirs", Change: "changed", State: tree.Conflict, Reason: "was changed meanwhile"},
	}}, nil
}
