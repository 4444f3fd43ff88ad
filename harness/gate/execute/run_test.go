//go:build linux

package execute_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/execute"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestRequest: the request to the sandbox is what the manifest says, and nothing of the
// caller's but how to run.
func TestRequest(t *testing.T) {
	tool := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(tool, "bin"), 0o755))
	f := newFake(t)
	f.probe = "path\t/host/tool/bin:/usr/bin\n"
	root := gateDir(t, map[string]string{"a": "a"}, func(m *evidence.RunManifest) {
		m.Name = "a wish/" + strings.Repeat("x", 80)
		m.Toolchain = evidence.Toolchain{Image: "debian", ImageID: "sha256:02", Mounts: []evidence.ToolMount{{Source: tool, Target: "/host/tool", Hash: "as sealed"}}}
		m.ProtectedPaths, m.Exclude = []string{"secret", "dir/"}, []string{"out"}
		m.Gates[0].Env = map[string]string{"CI": "no", "X": "1"}
		m.Gates[1].TimeoutMS = 5
		m.Egress = &evidence.Egress{Level: "registry", Allow: []string{"a.example"}}
		m.Mode.Offline, m.Mode.ClaimGrade = false, true
	}, []string{"one", "arg"}, []string{"two"})
	run(t, t.Context(), root, f, execute.Options{Request: sandbox.Request{
		Image: "other", AllowUnlocked: true, Network: "host", Env: map[string]string{"SECRET": "s"}, User: "1:1", Runtime: "runsc",
		Labels: map[string]string{"mine": "1"}, Limits: policy.Limits{Memory: policy.GiB},
	}})
	require.Len(t, f.ran, 3)
	probe, one, two := f.ran[0], f.ran[1], f.ran[2]
	require.Empty(t, probe.Trees, "nothing of the workspace takes part in the snapshot")
	require.Equal(t, "/host/tool/bin:", probe.Command[len(probe.Command)-1])
	require.Equal(t, []string{"one", "arg"}, one.Command)
	require.Equal(t, "sha256:02", one.Image)
	require.False(t, one.AllowUnlocked)
	require.Empty(t, one.Network)
	require.Equal(t, "1:1", one.User)
	require.Equal(t, "runsc", one.Runtime)
	require.Equal(t, spec.RepoDir, one.WorkDir)
	require.Equal(t, map[string]string{
		"CI": "no", "X": "1", "TZ": "UTC", "LC_ALL": "C.UTF-8", "LANG": "C.UTF-8", "PYTHONHASHSEED": "0", "PATH": "/host/tool/bin:/usr/bin",
	}, one.Env)
	require.Equal(t, []sandbox.Mount{{Source: tool, Target: "/host/tool"}}, one.Mounts)
	require.Equal(t, []string{"out"}, one.Trees[0].Exclude)
	require.Equal(t, []string{"/repo/secret", "/repo/dir/"}, one.Masks)
	require.EqualValues(t, 512<<20, one.Limits.Memory)
	require.InDelta(t, 1.0, one.Limits.CPUs, 0)
	require.Equal(t, "5ms", two.Limits.Timeout.String())
	require.Equal(t, &policy.Egress{Level: policy.Registry, Allow: []string{"a.example"}, Deny: []string{}}, one.Egress)
	require.Equal(t, "1", one.Labels["mine"])
	require.NoError(t, policy.CheckName("name", one.Name))
	require.True(t, strings.HasPrefix(one.Name, "gate-a-wish-"))
	require.Zero(t, f.kept(t))
	sum := hashOf(t, tool)
	require.Equal(t, []evidence.ToolMount{{Source: tool, Target: "/host/tool", Hash: sum}}, snapshotOf(t, root).Toolchain, "as it is now")
	for _, req := range f.ran[1:] {
		require.NotEqual(t, probe.ID, req.ID)
	}
}

// TestOfflineWins: a manifest that says both reaches nothing.
func TestOfflineWins(t *testing.T) {
	f := newFake(t)
	f.program = func(sandbox.Request) (*result.Result, error) { return ended(0), nil }
	root := gateDir(t, nil, func(m *evidence.RunManifest) { m.Egress = &evidence.Egress{Level: "open"} }, []string{"one"})
	run(t, t.Context(), root, f, execute.Options{Keep: true})
	require.Nil(t, f.ran[1].Egress)
	require.Equal(t, 1, f.kept(t))
}

// TestNothingRuns: a manifest that must not be executed is not, whatever its origin.
func TestNothingRuns(t *testing.T) {
	for reason, change := range map[evidence.StopReason]func(*evidence.RunManifest){
		evidence.ReasonModeViolation: func(m *evidence.RunManifest) { m.Mode.Execute = false },
		evidence.ReasonToolsDisabled: func(m *evidence.RunManifest) { m.Mode.Tools = false },
		evidence.ReasonNotSealed:     func(m *evidence.RunManifest) { m.Mode.Sealed = false },
		evidence.ReasonNoCommands:    func(m *evidence.RunManifest) { m.Gates = nil },
		evidence.ReasonNoWorkspace:   func(m *evidence.RunManifest) { m.Workspace = "" },
	} {
		f := newFake(t)
		root := gateDir(t, nil, change, []string{"one"})
		findings, failure := execute.Run(t.Context(), root, f, execute.Options{})
		require.NoError(t, failure, reason)
		require.Len(t, findings, 1, reason)
		require.Equal(t, reason, findings[0].Reason)
		require.Empty(t, f.ran, reason)
		_, err := root.Stat(evidence.RawDir)
		require.ErrorIs(t, err, os.ErrNotExist, reason)
	}
}

// TestFailures tells what the sandbox refuses from what it fails at.
func TestFailures(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		res    *result.Result
		reason evidence.StopReason // empty: our failure
	}{
		"unlocked image":  {err: &lock.UnlockedError{Name: "debian", ID: "sha256:01", Source: "lock"}, reason: evidence.ReasonUnpinned},
		"no image":        {err: &images.NotFoundError{Ref: "nothing"}, reason: evidence.ReasonMissingDependency},
		"field":           {err: &policy.FieldError{Field: "memory", Rule: "is too little"}, reason: evidence.ReasonIncomplete},
		"tree":            {err: &sandbox.PathError{Field: "tree", Path: "/x", Rule: "is not a directory"}, reason: evidence.ReasonIncomplete},
		"tree gone":       {err: &sandbox.PathError{Field: "tree", Path: "/x", Rule: "does not exist"}, reason: evidence.ReasonNoWorkspace},
		"tool gone":       {err: &sandbox.PathError{Field: "mount", Path: "/x", Rule: "does not exist"}, reason: evidence.ReasonMissingDependency},
		"state directory": {err: &sandbox.PathError{Field: "state directory", Path: "/x", Rule: "cannot be made"}},
		"no engine":       {err: sandbox.ErrEngineUnavailable},
		"engine lost":     {err: errors.New("engine went away"), res: &result.Result{Status: result.StatusEngineLost, Fault: result.FaultEnvironment, Stdout: "half"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.program = func(sandbox.Request) (*result.Result, error) { return c.res, c.err }
			root := gateDir(t, nil, nil, []string{"one"}, []string{"two"})
			findings, failure := execute.Run(t.Context(), root, f, execute.Options{})
			require.Len(t, f.ran, 2, "nothing goes on after it")
			if c.reason != "" {
				require.NoError(t, failure)
				require.Len(t, findings, 1)
				require.Equal(t, c.reason, findings[0].Reason)
				require.Equal(t, 1, findings[0].Gate)
				return
			}
			require.ErrorIs(t, failure, c.err)
			require.Empty(t, findings)
			if c.res != nil {
				require.Equal(t, "half", text(t, root, "evidence/raw/01.stdout.log"), "what was seen is kept")
				require.Equal(t, result.StatusEngineLost, resultOf(t, root, "evidence/raw/01.result.json").Status)
			}
		})
	}
}

// TestSets: baseline first, then the gates, then their repetitions, each in its directory.
func TestSets(t *testing.T) {
	baseline := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(baseline, "old"), nil, 0o644))
	f := newFake(t)
	var seen []string
	f.program = func(req sandbox.Request) (*result.Result, error) {
		res := ended(0)
		res.Stdout = req.Labels["gate.set"] + " " + req.Command[0]
		res.StdoutBytes = int64(len(res.Stdout))
		if req.Labels["gate.set"] == "baseline" {
			require.FileExists(t, filepath.Join(req.Trees[0].Source, "old"))
		} else {
			require.FileExists(t, filepath.Join(req.Trees[0].Source, "new"))
		}
		return res, nil
	}
	root := gateDir(t, map[string]string{"new": ""}, func(m *evidence.RunManifest) { m.Baseline, m.Mode.Repeats = baseline, 3 }, []string{"one"}, []string{"two"})
	run(t, t.Context(), root, f, execute.Options{Progress: func(e execute.Event) {
		if e.Stage == execute.StageEnd {
			require.Equal(t, 2, e.Gates)
			require.NotNil(t, e.Result)
			seen = append(seen, e.Set+" "+e.Cmd)
		}
	}})
	require.Equal(t, []string{"baseline one", "baseline two", " one", " two", "repeat-2 one", "repeat-2 two", "repeat-3 one", "repeat-3 two"}, seen)
	require.Equal(t, "baseline two", text(t, root, "evidence/raw/baseline/02.stdout.log"))
	require.Equal(t, " one", text(t, root, "evidence/raw/01.stdout.log"))
	require.Equal(t, "repeat-3 one", text(t, root, "evidence/raw/repeat-3/01.stdout.log"))
}

// TestCanceledBefore: nothing starts for a caller that has gone.
func TestCanceledBefore(t *testing.T) {
	f := newFake(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStop)
	root := gateDir(t, nil, nil, []string{"one"})
	_, failure := execute.Run(ctx, root, f, execute.Options{})
	require.ErrorIs(t, failure, errStop)
	for _, req := range f.ran {
		require.Equal(t, "probe", req.Labels["gate.index"])
	}
}

// TestLogsAreCut: the evidence has the beginning, and says that it is not all.
func TestLogsAreCut(t *testing.T) {
	f := newFake(t)
	f.program = func(sandbox.Request) (*result.Result, error) {
		res := ended(0)
		res.Stdout, res.StdoutBytes, res.Stderr, res.StderrBytes = "12345", 5, "1234", 4
		return res, nil
	}
	root := gateDir(t, nil, func(m *evidence.RunManifest) { m.TimeoutCaps.LogBytes = 4 }, []string{"one"})
	run(t, t.Context(), root, f, execute.Options{})
	require.Equal(t, "1234", text(t, root, "evidence/raw/01.stdout.log"))
	res := resultOf(t, root, "evidence/raw/01.result.json")
	require.True(t, res.StdoutTruncated)
	require.False(t, res.StderrTruncated)
}
