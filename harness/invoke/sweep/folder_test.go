//go:build unix

package sweep

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestCutShort: a folder whose making was cut short, before there were runs, is completed.
func TestCutShort(t *testing.T) {
	plan := testPlan(t)
	definition, err := plan.definition(nil)
	require.NoError(t, err)
	for name, there := range map[string]string{"nothing": "none", "no byte": "", "half of it": string(definition[:len(definition)/2])} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if there != "none" {
				require.NoError(t, os.WriteFile(filepath.Join(dir, DefinitionName), []byte(there), 0o644))
			}
			opts := Options{Dir: dir, Resume: true}
			require.NoError(t, Check(plan, opts))
			report, err := Run(t.Context(), plan, (&tool{}).invoke, opts)
			require.NoError(t, err)
			assert.FileExists(t, report.Manifest)
			text, err := os.ReadFile(filepath.Join(dir, DefinitionName))
			require.NoError(t, err)
			assert.Equal(t, string(definition), string(text))
		})
	}
	// What is no beginning of it is another one.
	other := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(other, DefinitionName), definition[1:], 0o644))
	_, err = Run(t.Context(), plan, (&tool{}).invoke, Options{Dir: other, Resume: true})
	require.ErrorContains(t, err, "is of another sweep: sweep.json is not as it was written")
	// Where there are runs it was not cut short, but changed.
	dir := t.TempDir()
	require.NoError(t, errors.Join(os.WriteFile(filepath.Join(dir, DefinitionName), nil, 0o644), os.Mkdir(filepath.Join(dir, RunsName), 0o755)))
	_, err = Run(t.Context(), plan, (&tool{}).invoke, Options{Dir: dir, Resume: true})
	require.ErrorContains(t, err, "sweep.json is not as it was written")
}

// TestPlanted: what a tool puts where the end of its run is to be written is neither
// waited for nor followed nor believed, and makes the run fail.
func TestPlanted(t *testing.T) {
	plan := testPlan(t)
	for file, plant := range map[string]func(path string) error{
		StdoutName: func(path string) error { return syscall.Mkfifo(path, 0o600) },
		StderrName: func(path string) error { return os.Symlink("../../sweep.json", path) },
		RunName: func(path string) error {
			return errors.Join(os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, "x"), nil, 0o644))
		},
	} {
		for _, fails := range []bool{false, true} {
			dir := filepath.Join(t.TempDir(), "s")
			o := &tool{fail: map[string]bool{plan.Name(0): fails}}
			_, err := Run(t.Context(), plan, func(ctx context.Context, job Job) (Outcome, error) {
				out, err := o.invoke(ctx, job)
				return out, errors.Join(err, plant(filepath.Join(filepath.Dir(job.OutputDir), file)))
			}, Options{Dir: dir})
			failures := new(FailuresError)
			require.ErrorAs(t, err, &failures, file)
			if fails {
				require.Equal(t, "the tool exited with code 3", failures.Failure)
			} else {
				require.Equal(t, "it made "+file+" beside its output folder", failures.Failure)
			}
			definition, err := plan.definition(nil)
			require.NoError(t, err)
			text, err := os.ReadFile(filepath.Join(dir, DefinitionName))
			require.NoError(t, err)
			require.Equal(t, string(definition), string(text))
			for _, name := range []string{StdoutName, StderrName, RunName} {
				info, err := os.Lstat(filepath.Join(dir, RunsName, plan.Name(0), name))
				require.NoError(t, err)
				require.True(t, info.Mode().IsRegular(), name)
			}
		}
	}
}

// TestDifferences: a refusal names what differs, and no value that is kept as a hash.
func TestDifferences(t *testing.T) {
	plan := testPlan(t)
	other, err := ParseSpec([]byte(`{"kind": "other"}`))
	require.NoError(t, err)
	changed, err := NewPlan(Config{Axes: []Axis{{"x", []any{strings.Repeat("long", 40)}}}, Seeds: []int64{1, 2}}, other)
	require.NoError(t, err)
	before, err := plan.definition(map[string]string{"exec": "python3 t.py", "root": "", "env.A": "aa", "env.B": "bb", "env.C": "cc", "same": "s"})
	require.NoError(t, err)
	after, err := changed.definition(map[string]string{"exec": "python3 u.py", "root": "/r", "env.A": "ab", "env.B": "bb", "env.D": "dd", "same": "s"})
	require.NoError(t, err)
	assert.Equal(t, `adapter was "m" and is null; axes is another; base spec is another; env.A is another; env.C is not given any more; `+
		`env.D is new; exec was "python3 t.py" and is "python3 u.py"; root was "" and is "/r"`, differences(before, after))

	const changedText = "sweep.json is not as it was written"
	for _, text := range []string{"", "[]", "{}", `{"setup": 1}`, string(before) + " "} {
		assert.Equal(t, changedText, differences([]byte(text), before), text)
	}
	many := map[string]string{}
	for i := range 100 {
		many["env."+strings.Repeat("x", i+1)] = "v"
	}
	full, err := plan.definition(many)
	require.NoError(t, err)
	none, err := plan.definition(nil)
	require.NoError(t, err)
	assert.Regexp(t, "; and 80 more$", differences(none, full))
}
