package contract

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// fakeRunner stands in for a sandbox: program says what the command does, and the
// result is made of it as a run makes it.
type fakeRunner struct {
	program func(req sandbox.Request, stdin string) result.Result
	planErr error
	// runErr ends a run before the program starts.
	runErr error
	// records is where records are made.
	records string
	ran     []sandbox.Request
	// probed are the runs that only looked at the image; clock and command are what
	// they find.
	probed         []sandbox.Request
	clock, command result.Result
}

func (f *fakeRunner) Plan(_ context.Context, req sandbox.Request) (sandbox.Spec, error) {
	if f.planErr != nil {
		return sandbox.Spec{}, f.planErr
	}
	var env []string
	for name, value := range req.Env {
		env = append(env, name+"="+value)
	}
	var trees []sandbox.JobTree
	for _, tree := range req.Trees {
		trees = append(trees, sandbox.JobTree{Source: tree.Source, Target: tree.Target})
	}
	var egress *sandbox.Egress
	if req.Egress != nil {
		egress = &sandbox.Egress{Connections: 4}
	}
	return sandbox.Spec{
		Class: sandbox.Class{
			Image: sandbox.Image{ID: "sha256:0123", Locked: true}, Env: []string{"HOME=/tmp", "PYTHONHASHSEED=0"},
			Cgroup: sandbox.Cgroup{MemoryBytes: int64(req.Limits.Memory), NanoCPUs: int64(req.Limits.CPUs * 1e9), PIDs: req.Limits.PIDs},
		},
		Job: sandbox.Job{Command: req.Command, Env: env, Trees: trees, Egress: egress, TimeoutSeconds: req.Limits.Timeout.Seconds()},
	}, nil
}

func (f *fakeRunner) Run(ctx context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error) {
	if req.Labels[labelProbe] != "" {
		f.probed = append(f.probed, req)
		if req.Labels[labelProbe] == "command" {
			return new(f.command), nil
		}
		return new(f.clock), nil
	}
	f.ran = append(f.ran, req)
	if f.runErr != nil {
		return nil, f.runErr
	}
	if f.records != "" {
		if err := os.MkdirAll(filepath.Join(f.records, req.ID, "final"), 0o700); err != nil {
			return nil, err
		}
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

var errFake = errors.New("the engine is gone")

// shippedRules are the rules of the shipped registry and profiles.
func shippedRules(t *testing.T) Rules {
	t.Helper()
	registry, err := ParseRegistry(configs.Tools(), "tools.yaml")
	require.NoError(t, err)
	profiles, err := policy.ParseProfiles(configs.Profiles(), "profiles.yaml")
	require.NoError(t, err)
	return Rules{Registry: registry, Profiles: profiles}
}

// newExecutor carries contracts out with a fake, with a root of its own.
func newExecutor(t *testing.T, program func(req sandbox.Request, stdin string) result.Result) (*Executor, *fakeRunner) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"root/src", "root/out", "records"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "root/src/a.txt"), []byte("a\n"), 0o644))
	runner := &fakeRunner{program: program, records: filepath.Join(dir, "records")}
	runner.command = result.Result{Status: result.StatusExited, ExitCode: 3}
	return &Executor{
		Runner: runner, Rules: shippedRules(t), Root: filepath.Join(dir, "root"), Store: fakeStore{runner.records},
		Ledger: ApprovalLedger{Dir: filepath.Join(dir, "approvals")},
	}, runner
}

// cat is a contract that everything else is made of.
func cat() Contract {
	return Contract{
		ToolID: "TL-020", Inputs: Inputs{Command: "cat", Arguments: []string{"a.txt"}, WorkingDirectory: "src", InputFiles: []string{"a.txt"}},
		Metadata: Metadata{RequestedBy: "a test", Purpose: "to see"},
	}
}

// fakeStore has records.
type fakeStore struct{ dir string }

func (s fakeStore) RecordDir(id string) string { return filepath.Join(s.dir, id) }

func (s fakeStore) TreeDir(id string, i int) string {
	return filepath.Join(s.dir, id, "trees", strconv.Itoa(i))
}

func (s fakeStore) Remove(id string) error { return os.RemoveAll(s.RecordDir(id)) }

func (f *fakeRunner) ApplyTree(_ context.Context, _, target string, opts tree.ApplyOptions) (tree.Report, error) {
	if opts.Git {
		return tree.Report{Target: target, Complete: true, Changes: []tree.Change{{Path: ".git/config", Change: "created", State: tree.Applied}}}, nil
	}
	return tree.Report{Target: target, Complete: true, Changes: []tree.Change{
		{Path: "new", Change: "created", State: tree.Applied},
		{Path: "theirs", Change: "changed", State: tree.Conflict, Reason: "was changed meanwhile"},
	}}, nil
}
