package sweep

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/invoke"
)

// runner answers in the place of a tool.
type runner struct {
	got invoke.Invocation
	do  func(inv invoke.Invocation) (invoke.RunResult, error)
}

func (r *runner) Run(_ context.Context, inv invoke.Invocation) (invoke.RunResult, error) {
	r.got = inv
	return r.do(inv)
}

// TestTool: what the tool does wrong is an outcome, what we do wrong an error.
func TestTool(t *testing.T) {
	artifacts := func(manifest, trace string) func(inv invoke.Invocation) (invoke.RunResult, error) {
		return func(inv invoke.Invocation) (invoke.RunResult, error) {
			res := invoke.RunResult{ExitCode: new(0), Stdout: "out", Stderr: "err", ManifestPath: filepath.Join(inv.OutputDir, "manifest.json")}
			return res, errors.Join(
				os.WriteFile(res.ManifestPath, []byte(manifest), 0o644),
				os.WriteFile(filepath.Join(inv.OutputDir, "trace_pack.jsonl"), []byte(trace), 0o644))
		}
	}
	const good = `{"run_id": "r", "timestamp": "t", "seed": 1, "artifacts": []}`
	fails := func(reason invoke.Reason) func(invoke.Invocation) (invoke.RunResult, error) {
		return func(invoke.Invocation) (invoke.RunResult, error) {
			res := invoke.RunResult{ExitCode: new(3), Stdout: "out", Stderr: "err"}
			return res, &invoke.InvocationError{Reason: reason, Result: res}
		}
	}
	for name, test := range map[string]struct {
		do      func(invoke.Invocation) (invoke.RunResult, error)
		failure string
		err     bool
	}{
		"succeeds":       {do: artifacts(good, "{\"step\": 1}\n")},
		"a wrong trace":  {do: artifacts(good, "{\"step\": 1}\n{}\n"), failure: "trace_pack.jsonl"},
		"wrong twice":    {do: artifacts("{}", "{}\n"), failure: "(and 1 more)"},
		"a failing tool": {do: fails(invoke.ReasonNonzeroExit), failure: "nonzero_exit"},
		"no artifact":    {do: fails(invoke.ReasonMissingArtifact), failure: "missing_artifact"},
		"a limit":        {do: fails(invoke.ReasonLimit), failure: "limit"},
		"canceled":       {do: fails(invoke.ReasonCanceled), err: true},
		"engine":         {do: fails(invoke.ReasonEngine), err: true},
		"not written":    {do: fails(invoke.ReasonNotWritten), err: true},
		"refused": {do: func(invoke.Invocation) (invoke.RunResult, error) {
			return invoke.RunResult{}, errors.New("refused")
		}, err: true},
		"no manifest": {do: func(invoke.Invocation) (invoke.RunResult, error) { return invoke.RunResult{}, nil }, err: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := &runner{do: test.do}
			job := Job{Name: "a=1_seed=7", Config: "/c/spec.json", OutputDir: t.TempDir(), Adapter: new("m"), Seed: 7}
			outcome, err := Tool(r, invoke.VerifyOptions{})(t.Context(), job)
			assert.Equal(t, invoke.Invocation{Config: job.Config, OutputDir: job.OutputDir, Adapter: new("m"), Seed: new(int64(7))}, r.got)
			if test.err {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, "out", outcome.Stdout)
			assert.Equal(t, "err", outcome.Stderr)
			assert.Contains(t, outcome.Failure, test.failure)
			if name == "succeeds" {
				assert.Empty(t, outcome.Failure)
			}
		})
	}
}

// TestToolDemands: what is demanded of artifacts reaches them.
func TestToolDemands(t *testing.T) {
	r := &runner{do: func(inv invoke.Invocation) (invoke.RunResult, error) {
		res := invoke.RunResult{ExitCode: new(0), ManifestPath: filepath.Join(inv.OutputDir, "manifest.json")}
		return res, errors.Join(
			os.WriteFile(res.ManifestPath, []byte(`{"run_id": "r", "timestamp": "t", "seed": 1, "artifacts": []}`), 0o644),
			os.WriteFile(filepath.Join(inv.OutputDir, "trace_pack.jsonl"), []byte("{\"step\": \"1\"}\n"), 0o644))
	}}
	profile := invoke.Profile{Artifacts: []invoke.Declared{{Path: "model.bin"}}}
	for want, verify := range map[string]invoke.VerifyOptions{
		"trace_pack.jsonl": {}, "": {Mode: invoke.Compat}, "model.bin": {Mode: invoke.Compat, Profile: profile},
	} {
		outcome, err := Tool(r, verify)(t.Context(), Job{OutputDir: t.TempDir()})
		require.NoError(t, err)
		if want == "" {
			require.Empty(t, outcome.Failure)
			require.Len(t, outcome.Artifacts, 2)
			continue
		}
		require.Contains(t, outcome.Failure, want)
	}
}
