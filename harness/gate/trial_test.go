package gate_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Plan is what sealing on the spot asks for.
func (f *fake) Plan(context.Context, sandbox.Request) (spec.Spec, error) {
	return spec.Spec{Class: spec.Class{Image: spec.Image{Reference: "debian", ID: fakeImage, Locked: true}}}, nil
}

func trialJob(t *testing.T, d gate.Document) trial.Job {
	t.Helper()
	text, err := json.Marshal(d)
	require.NoError(t, err)
	return trial.Job{ID: "one", Kind: "gate", Spec: text}
}

// TestTrial: a document is run and judged; a failing gate is a verdict.
func TestTrial(t *testing.T) {
	f := newFake(t)
	h, err := gate.New(f, gate.Options{})
	require.NoError(t, err)
	require.Equal(t, "gate", h.Trial().Kind())
	require.True(t, json.Valid(h.Trial().Schema()))
	workspace := treetest.Dir(t, map[string]string{"test_a.py": "def test_one(): pass\n"})
	job := trialJob(t, gate.Document{Command: []string{"pytest", "-q"}, Workspace: workspace, Out: filepath.Join(t.TempDir(), "out")})
	plan, err := h.Trial().Plan(t.Context(), job)
	require.NoError(t, err)
	require.Empty(t, plan.Problems)
	require.Zero(t, f.ran)
	var roles []string
	res, err := h.Trial().Run(t.Context(), job, func(e trial.Event) { roles = append(roles, e.Role) })
	require.NoError(t, err)
	require.Equal(t, trial.Passed, res.Verdict, res.Problems)
	require.Equal(t, "PASS", res.Reason)
	require.Equal(t, []string{"probe", "gate 1"}, roles)
	require.Len(t, res.Runs, 2)
	var verdict evidence.Verdict
	require.NoError(t, json.Unmarshal(res.Detail, &verdict))
	require.Equal(t, evidence.Pass, verdict.Status)

	// The key follows the files, and the image is asked for its versions once.
	again, err := h.Trial().Plan(t.Context(), job)
	require.NoError(t, err)
	require.Equal(t, plan.Key, again.Key)
	require.NoError(t, os.WriteFile(filepath.Join(workspace, "test_a.py"), []byte("def test_one(): assert False\n"), 0o644))
	other, err := h.Trial().Plan(t.Context(), job)
	require.NoError(t, err)
	require.NotEqual(t, plan.Key, other.Key)
	f.program = func(_ sandbox.Request, g *fakeGate) error { g.ExitCode = 1; return nil }
	job = trialJob(t, gate.Document{Command: []string{"pytest", "-q"}, Workspace: workspace, Out: filepath.Join(t.TempDir(), "out")})
	res, err = h.Trial().Run(t.Context(), job, func(trial.Event) {})
	require.NoError(t, err)
	require.Equal(t, trial.Failed, res.Verdict)
	require.Equal(t, "GATE_FAILED", res.Reason)
	require.Equal(t, 1, res.ExitCode)
	require.Equal(t, []trial.RunRef{{ID: res.Runs[0].ID, Role: "gate 1"}}, res.Runs)
}

// TestTrialRefuses: a document that cannot be carried out is refused, and nothing runs.
func TestTrialRefuses(t *testing.T) {
	f := newFake(t)
	h, err := gate.New(f, gate.Options{})
	require.NoError(t, err)
	for name, text := range map[string]string{
		"unknown key": `{"comand":["pytest"],"out":"x"}`, "neither": `{"out":"x"}`, "both": `{"wish":"a","command":["b"],"out":"x"}`,
		"no directory": `{"command":["pytest"]}`, "no wish": `{"wish":"none.yaml","out":"x"}`,
	} {
		res, err := h.Trial().Run(t.Context(), trial.Job{Spec: json.RawMessage(text)}, func(trial.Event) {})
		require.NoError(t, err, name)
		require.Equal(t, trial.Refused, res.Verdict, name)
		require.NotEmpty(t, res.Problems, name)
	}
	require.Zero(t, f.ran)
	_, err = gate.New(nil, gate.Options{})
	require.Error(t, err)
}

// TestReportErr: the error of a report is for callers that want one.
func TestReportErr(t *testing.T) {
	require.NoError(t, gate.Report{Verdict: evidence.Verdict{Status: evidence.Pass}}.Err())
	err := gate.Report{Verdict: evidence.Verdict{
		Status: evidence.Blocked, StopReason: evidence.ReasonGateFailed, Findings: []evidence.Finding{{Detail: "It exited."}},
	}}.Err()
	var verdict *gate.VerdictError
	require.ErrorAs(t, err, &verdict)
	require.EqualError(t, err, "BLOCKED: GATE_FAILED: It exited.")
}

// TestSealFile: a wish that could never run is not sealed, and a path that protects nothing
// is a warning.
func TestSealFile(t *testing.T) {
	h, err := gate.New(newFake(t), gate.Options{})
	require.NoError(t, err)
	dir := treetest.Dir(t, map[string]string{
		"wish.yaml": oneTest + "protected_paths: [secrets]\n", "lost.yaml": oneTest + "io_boundary: none\n", "bad.yaml": "nme: x\n",
	})
	lock, warnings, err := h.SealFile(t.Context(), filepath.Join(dir, "wish.yaml"))
	require.NoError(t, err)
	require.Equal(t, []string{"secrets is not there, and so it is not protected"}, warnings)
	require.Equal(t, fakeImage, lock.Toolchain.ImageID)
	for _, name := range []string{"lost.yaml", "bad.yaml", "none.yaml"} {
		_, _, err := h.SealFile(t.Context(), filepath.Join(dir, name))
		var hint interface{ Hint() string }
		require.ErrorAs(t, err, &hint, name)
		require.NotEmpty(t, hint.Hint(), name)
	}
	allowed, err := h.Load(t.Context(), gate.Document{Command: []string{"pytest"}, AllowUnobserved: true, Workspace: dir})
	require.NoError(t, err)
	require.True(t, allowed.Lock.Wish.AllowUnobserved && allowed.Sealed, "it is in the hash")
}
