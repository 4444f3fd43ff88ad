package sweep

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/invoke"
)

// TestLoad: the directory says the same as the report of the sweep that wrote it.
func TestLoad(t *testing.T) {
	plan, dir := testPlan(t), filepath.Join(t.TempDir(), "s")
	o := &tool{fail: map[string]bool{plan.Name(1): true}, do: func(ctx context.Context, name string, inv invoke.Invocation) error {
		if err := leave(ctx, name, inv); err != nil {
			return err
		}
		manifest := `{"run_id": "r", "timestamp": "t", "seed": 1, "artifacts": ["d/model.bin"], "metrics": {"accuracy": 0.5}}`
		return os.WriteFile(filepath.Join(inv.OutputDir, invoke.ManifestName), []byte(manifest), 0o644)
	}}
	report, err := Run(t.Context(), o, plan, Options{Dir: dir, KeepGoing: true, Setup: map[string]string{"exec": "x"}})
	require.ErrorAs(t, err, new(*FailuresError))
	loaded, err := Load(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, report, loaded.Report)
	require.True(t, loaded.Complete)
	require.Equal(t, map[string]string{"exec": "x"}, loaded.Setup)
	require.Equal(t, []map[string]float64{{"metrics.accuracy": 0.5}, nil, {"metrics.accuracy": 0.5}, {"metrics.accuracy": 0.5}}, loaded.Numbers)

	require.NoError(t, os.RemoveAll(filepath.Join(dir, RunsName, plan.Name(2))))
	require.NoError(t, os.Remove(filepath.Join(dir, ManifestName)))
	loaded, err = Load(t.Context(), dir)
	require.NoError(t, err)
	require.Equal(t, StatusMissing, loaded.Runs[2].Status)
	require.False(t, loaded.Complete)

	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Load(canceled, dir)
	require.ErrorIs(t, err, context.Canceled)
}

func TestLoadRefuses(t *testing.T) {
	for rule, definition := range map[string]string{
		"is not JSON": "x", `schema is "a", want "evalbox/sweep/v1"`: `{"schema": "a"}`, "axes must be an object": `{"schema": "evalbox/sweep/v1", "axes": []}`,
		`the axis "a" must be a list`: `{"schema": "evalbox/sweep/v1", "axes": {"a": 1}}`, "seeds: must not be empty": `{"schema": "evalbox/sweep/v1", "axes": {"a": [1]}}`,
		"value 1 is a list": `{"schema": "evalbox/sweep/v1", "axes": {"a": [[]]}, "seeds": [1]}`, "is not the definition of a sweep": `{"schema": "evalbox/sweep/v1", "seeds": [[]]}`,
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, DefinitionName), []byte(definition), 0o644))
		_, err := Load(t.Context(), dir)
		file := new(FileError)
		require.ErrorAs(t, err, &file, rule)
		require.Equal(t, filepath.Join(dir, DefinitionName), file.Path)
		require.ErrorContains(t, err, rule)
		require.NotEmpty(t, file.Hint())
	}
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "nosuch")} {
		_, err := Load(t.Context(), dir)
		require.ErrorAs(t, err, new(*DirError))
	}
}
