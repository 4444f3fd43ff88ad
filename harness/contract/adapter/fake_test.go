package adapter

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/internal/schematest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// fakeBox stands in for a sandbox: program says what the command does with its streams.
type fakeBox struct {
	program func(req sandbox.Request, stdin io.Reader, stdout io.Writer) result.Result
	store   *record.Store
	ran     []sandbox.Request
}

func (f *fakeBox) Plan(_ context.Context, req sandbox.Request) (spec.Spec, error) {
	return spec.Spec{
		Class: spec.Class{WorkDir: req.WorkDir, Image: spec.Image{ID: "sha256:0123"}},
		Job:   spec.Job{Command: req.Command, TimeoutSeconds: req.Limits.Timeout.Seconds()},
	}, nil
}

func (f *fakeBox) Run(_ context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error) {
	req.ID = record.NewID(time.Now())
	f.ran = append(f.ran, req)
	if err := os.MkdirAll(filepath.Join(f.store.RecordDir(req.ID), "final"), 0o700); err != nil {
		return nil, err
	}
	streams := sandbox.IO{Stdin: strings.NewReader(""), Stdout: io.Discard}
	for _, opt := range opts {
		switch opt := opt.(type) {
		case sandbox.IO:
			if opt.Stdin != nil {
				streams.Stdin = opt.Stdin
			}
			if opt.Stdout != nil {
				streams.Stdout = opt.Stdout
			}
		case sandbox.Hooks:
			if err := opt.Begin(req.ID); err != nil {
				return nil, err
			}
		}
	}
	res := f.program(req, streams.Stdin, streams.Stdout)
	if res.Fault == 0 {
		res.Fault = result.FaultProgram
	}
	res.ID, res.OutputComplete, res.Explanation = req.ID, true, "The program ended."
	res.StdoutBytes, res.StderrBytes = max(res.StdoutBytes, int64(len(res.Stdout))), max(res.StderrBytes, int64(len(res.Stderr)))
	res.Enforced = result.Enforced{TimeoutSeconds: req.Limits.Timeout.Seconds(), MemoryBytes: int64(req.Limits.Memory), CPUs: req.Limits.CPUs, PIDs: req.Limits.PIDs}
	return &res, nil
}

func (f *fakeBox) Store() *record.Store { return f.store }

func (f *fakeBox) ClearFinal(context.Context, string, string) (string, error) { return "", nil }

func (f *fakeBox) Adopt(context.Context, string, ...sandbox.RunOption) (*result.Result, error) {
	return nil, record.ErrNoRecord
}

func (f *fakeBox) LeftBy(context.Context, string) string { return "" }

func (f *fakeBox) ApplyTree(context.Context, string, string, tree.ApplyOptions) (tree.Report, error) {
	return tree.Report{}, nil
}

// testTools are the tools of the tests: T for commands and servers of every host.
const testTools = `schema: evalbox/tools/v1
tools:
  - tool_id: T
    name: tool
    version: "1"
    owner: me
    status: active
    scope: {commands: [cat, python3, cargo, go, server], data_access: write, network: api, filesystem: extended}
    approval: {approver: me, date: "2026-01-31"}
`

// bench carries out contracts with a fake box.
type bench struct {
	*contract.Harness
	box      *fakeBox
	adapters *Registry
}

// newBench has an adapter for each document.
func newBench(t *testing.T, documents ...string) *bench {
	t.Helper()
	dir := t.TempDir()
	own := filepath.Join(dir, "adapters")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "root"), 0o755))
	require.NoError(t, os.Mkdir(own, 0o700))
	for i, text := range documents {
		require.NoError(t, os.WriteFile(filepath.Join(own, string(rune('a'+i))+".yaml"), []byte(text), 0o600))
	}
	adapters, err := Open(own, nil, OpenCache(filepath.Join(dir, "cache"), false))
	require.NoError(t, err)
	tools, err := registry.Parse([]byte(testTools), "tools.yaml")
	require.NoError(t, err)
	profiles, err := policy.ParseProfiles(configs.Profiles(), "profiles.yaml")
	require.NoError(t, err)
	store, err := record.Open(filepath.Join(dir, "state"))
	require.NoError(t, err)
	box := &fakeBox{store: store}
	h, err := contract.New(box, contract.Options{
		Rules: contract.Rules{Registry: tools, Profiles: profiles, Adapters: adapters}, Root: filepath.Join(dir, "root"),
		Policy: policy.Policy{AllowEgress: policy.API, AllowPrivateEgress: true}, Approvals: contract.Approvals{Dir: filepath.Join(dir, "approvals")},
		Jitter: func(time.Duration) time.Duration { return 0 },
	})
	require.NoError(t, err)
	return &bench{h, box, adapters}
}

// prints is a program that writes a text.
func prints(text string) func(sandbox.Request, io.Reader, io.Writer) result.Result {
	return func(sandbox.Request, io.Reader, io.Writer) result.Result {
		return result.Result{Status: result.StatusExited, Stdout: text}
	}
}

// outcomeSchema is read once.
var outcomeSchema struct {
	once sync.Once
	*jsonschema.Schema
}

// call calls an operation of the adapter A, and checks the form of the outcome.
func (b *bench) call(t *testing.T, operation string, parameters map[string]any) contract.Outcome {
	t.Helper()
	return b.carryOut(t, contract.Contract{ToolID: "T", AdapterID: "A", Inputs: contract.Inputs{Operation: operation, Parameters: parameters}})
}

func (b *bench) carryOut(t *testing.T, c contract.Contract) contract.Outcome {
	t.Helper()
	o, err := b.Run(t.Context(), contract.Job{Contract: &c})
	require.NoError(t, err)
	text, err := o.Encode()
	require.NoError(t, err)
	outcomeSchema.once.Do(func() { outcomeSchema.Schema = schematest.Load(t, contract.OutcomeSchemaJSON) })
	schematest.Valid(t, outcomeSchema.Schema, text)
	return o
}

// broken are the rules that an outcome says are broken.
func broken(o contract.Outcome) (rules []string) {
	for _, v := range o.Violations {
		rules = append(rules, v.String())
	}
	return rules
}
