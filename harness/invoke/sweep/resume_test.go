//go:build unix

package sweep

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/invoke"
)

// artifactTool is a tool that leaves right artifacts, one of them listed, and says which
// runs it made.
func artifactTool(ran *[]string, verify invoke.VerifyOptions) Invoke {
	return func(ctx context.Context, job Job) (Outcome, error) {
		*ran = append(*ran, job.Name)
		return Tool(&runner{do: func(inv invoke.Invocation) (invoke.RunResult, error) {
			res := invoke.RunResult{ExitCode: new(0), ManifestPath: filepath.Join(inv.OutputDir, toolManifest)}
			return res, errors.Join(
				os.WriteFile(res.ManifestPath, []byte(`{"run_id": "r", "timestamp": "t", "seed": 1, "artifacts": ["d/model.bin"]}`), 0o644),
				os.WriteFile(filepath.Join(inv.OutputDir, invoke.TracePackName), []byte("{\"step\": \"1\"}\n"), 0o644),
				os.Mkdir(filepath.Join(inv.OutputDir, "d"), 0o755),
				os.WriteFile(filepath.Join(inv.OutputDir, "d", "model.bin"), []byte("weights"), 0o644))
		}}, verify)(ctx, job)
	}
}

// aside moves a folder and leaves a link to it.
func aside(path string) error {
	path = filepath.Clean(path)
	return errors.Join(os.Rename(path, path+"_"), os.Symlink(filepath.Base(path)+"_", path))
}

// TestResumeJudgesAgain: a run is kept if all of its artifacts are as they were, and right
// by what is demanded now. All else runs again.
func TestResumeJudgesAgain(t *testing.T) {
	compat := invoke.VerifyOptions{Mode: invoke.Compat}
	plan := testPlan(t)
	output := func(dir, name string) string { return filepath.Join(dir, RunsName, plan.Name(1), OutputName, name) }
	all := []string{plan.Name(0), plan.Name(1), plan.Name(2), plan.Name(3)}
	for name, test := range map[string]struct {
		spoil  func(dir string) error
		verify Verify
		want   []string
	}{
		"as it was":           {nil, Artifacts(compat), nil},
		"by the hashes alone": {nil, nil, nil},
		"the trace is gone":   {func(dir string) error { return os.Remove(output(dir, invoke.TracePackName)) }, Artifacts(compat), all[1:2]},
		"the trace changed": {func(dir string) error {
			return os.WriteFile(output(dir, invoke.TracePackName), []byte("{\"step\": \"2\"}\n"), 0o644)
		}, Artifacts(compat), all[1:2]},
		"changed, by hashes": {func(dir string) error { return os.WriteFile(output(dir, "d/model.bin"), []byte("WEIGHTS"), 0o644) }, nil, all[1:2]},
		"gone, by hashes":    {func(dir string) error { return os.Remove(output(dir, "d/model.bin")) }, nil, all[1:2]},
		"a file for its folder": {func(dir string) error {
			return errors.Join(os.RemoveAll(output(dir, "d")), os.WriteFile(output(dir, "d"), nil, 0o644))
		}, nil, all[1:2]},
		"a link for it": {func(dir string) error {
			return errors.Join(os.Remove(output(dir, "d/model.bin")), os.Symlink("../manifest.json", output(dir, "d/model.bin")))
		}, nil, all[1:2]},
		"strict from now on":      {nil, Artifacts(invoke.VerifyOptions{}), all[:1]}, // and the first one ends it
		"a profile from now on":   {nil, Artifacts(invoke.VerifyOptions{Mode: invoke.Compat, Profile: invoke.Profile{Artifacts: []invoke.Declared{{Path: "none.bin"}}}}), all},
		"a profile that it meets": {nil, Artifacts(invoke.VerifyOptions{Mode: invoke.Compat, Profile: invoke.Profile{Artifacts: []invoke.Declared{{Path: "d/model.bin"}}}}), nil},
		"a name that leads out": {func(dir string) error {
			// What is there has the hash that is told, but is no artifact.
			path := filepath.Join(dir, RunsName, plan.Name(1), RunName)
			text, err := os.ReadFile(path)
			spec, specErr := invoke.HashArtifact(t.Context(), filepath.Join(dir, RunsName, plan.Name(1), SpecName))
			text = bytes.Replace(text, []byte(`"artifacts": {`), []byte(`"artifacts": {"../spec.json": "`+spec+`", `), 1)
			return errors.Join(err, specErr, os.WriteFile(path, text, 0o644))
		}, nil, all[1:2]},
		"a link for its output": {func(dir string) error { return aside(output(dir, "")) }, nil, all[1:2]},
		"a link for all of it":  {func(dir string) error { return aside(filepath.Join(dir, RunsName, plan.Name(1))) }, nil, all[1:2]},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "s")
			var ran []string
			_, err := Run(t.Context(), plan, artifactTool(&ran, compat), Options{Dir: dir})
			require.NoError(t, err)
			require.Equal(t, all, ran)
			if test.spoil != nil {
				require.NoError(t, test.spoil(dir))
			}
			ran = nil
			_, err = Run(t.Context(), plan, func(ctx context.Context, job Job) (Outcome, error) {
				if name == "strict from now on" {
					return artifactTool(&ran, invoke.VerifyOptions{})(ctx, job)
				}
				return artifactTool(&ran, compat)(ctx, job)
			}, Options{Dir: dir, Resume: true, Verify: test.verify})
			if name == "strict from now on" {
				require.ErrorContains(t, err, "trace_pack.jsonl")
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, test.want, ran)
		})
	}
}

// TestResumeIsTold: what cannot be found out ends the sweep, and deletes nothing.
func TestResumeIsTold(t *testing.T) {
	plan, dir := testPlan(t), filepath.Join(t.TempDir(), "s")
	o := &tool{}
	_, err := Run(t.Context(), plan, o.invoke, Options{Dir: dir})
	require.NoError(t, err)
	before := tree(t, dir)
	failed := errors.New("disk lost")
	report, err := Run(t.Context(), plan, o.invoke, Options{Dir: dir, Resume: true,
		Verify: func(context.Context, string) (Verified, error) { return Verified{}, failed }})
	require.ErrorIs(t, err, failed)
	require.EqualError(t, err, "run x=0p5_seed=1: what it left cannot be checked: disk lost")
	assert.Equal(t, plan.Name(3), report.Runs[3].Name, "the report is complete")
	assert.Equal(t, 4, report.Count(StatusMissing))

	ctx, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	_, err = Run(ctx, plan, o.invoke, Options{Dir: dir, Resume: true, Verify: func(ctx context.Context, dir string) (Verified, error) {
		cancel(interrupted)
		return Artifacts(invoke.VerifyOptions{})(ctx, dir)
	}})
	require.EqualError(t, err, "interrupted")
	assert.Equal(t, before, tree(t, dir))
	assert.Len(t, o.ran, 4)
}

// TestChangedAfterwards: the manifest that counts is the one that was checked.
func TestChangedAfterwards(t *testing.T) {
	_, err := Run(t.Context(), testPlan(t), func(_ context.Context, job Job) (Outcome, error) {
		return Outcome{Artifacts: map[string]string{toolManifest: "aa"}}, os.WriteFile(filepath.Join(job.OutputDir, toolManifest), []byte("{}"), 0o644)
	}, Options{Dir: filepath.Join(t.TempDir(), "s")})
	require.ErrorContains(t, err, "manifest.json was changed after it was checked")
}
