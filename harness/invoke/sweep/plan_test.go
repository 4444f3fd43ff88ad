package sweep

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testPlan is a sweep of four runs.
func testPlan(t *testing.T) Plan {
	t.Helper()
	spec, err := ParseSpec([]byte(`{"kind": "test"}`))
	require.NoError(t, err)
	plan, err := NewPlan(Config{Axes: []Axis{{"x", []any{0.5, "b"}}}, Seeds: []int64{1, 2}, Adapter: new("m")}, spec)
	require.NoError(t, err)
	return plan
}

func TestNewPlan(t *testing.T) {
	plan := testPlan(t)
	require.Equal(t, 4, plan.Len())
	assert.Equal(t, "x=0p5_seed=1", plan.Name(0))
	assert.Equal(t, "x=b_seed=2", plan.Name(3))
	text, err := plan.Spec(3)
	require.NoError(t, err)
	assert.JSONEq(t, `{"kind": "test", "perturbations": {"x": "b"}, "seed": 2}`, string(text))
}

func TestNewPlanRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		config Config
		want   string
	}{
		"same seeds":       {Config{Axes: []Axis{{"a", []any{1}}}, Seeds: []int64{1, 1}}, `folder "a=1_seed=1": is that of runs 1 and 2: {"a":1} with seed 1 and {"a":1} with seed 1`},
		"values alike":     {Config{Axes: []Axis{{"a", []any{-1, "m1"}}}, Seeds: []int64{1}}, `is that of runs 1 and 2: {"a":-1} with seed 1 and {"a":"m1"} with seed 1`},
		"nothing is left":  {Config{Axes: []Axis{{"a", []any{"é", "ü"}}}, Seeds: []int64{1}}, `folder "a=_seed=1"`},
		"too long a name":  {Config{Axes: []Axis{{"a", []any{strings.Repeat("x", 250)}}}, Seeds: []int64{1}}, "has 259 bytes, and a name has at most 255"},
		"no configuration": {Config{}, "axes: must not be empty"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewPlan(test.config, Spec{})
			require.ErrorContains(t, err, test.want)
		})
	}
	_, err := NewPlan(Config{Axes: []Axis{{"a", numbers(500)}}, Seeds: []int64{1, 1}}, Spec{})
	assert.Len(t, strings.Split(err.Error(), "\n"), maxTold, "an error is bounded")
}

func TestManifest(t *testing.T) {
	plan := testPlan(t)
	text, err := plan.Manifest([]string{"aa", "", "bb", "cc"})
	require.NoError(t, err)
	want := `{
  "axes": {
    "x": [
      0.5,
      "b"
    ]
  },
  "manifest_schema_family": "clarity_sweep_orchestrator_v1",
  "runs": [
    {
      "axis_values": {
        "x": 0.5
      },
      "manifest_hash": "aa",
      "seed": 1
    },
    {
      "axis_values": {
        "x": 0.5
      },
      "manifest_hash": null,
      "seed": 2
    },
    {
      "axis_values": {
        "x": "b"
      },
      "manifest_hash": "bb",
      "seed": 1
    },
    {
      "axis_values": {
        "x": "b"
      },
      "manifest_hash": "cc",
      "seed": 2
    }
  ],
  "seeds": [
    1,
    2
  ]
}`
	assert.Equal(t, want, string(text), "byte for byte")
	_, err = plan.Manifest(nil)
	require.ErrorContains(t, err, "4 runs but 0 hashes")

	var manifest map[string]any
	require.NoError(t, json.Unmarshal(text, &manifest))
	explicit, classified := ManifestFamily(manifest)
	assert.Equal(t, FamilyOrchestrator, explicit)
	assert.Equal(t, FamilyOrchestrator, classified)
}

func TestManifestFamily(t *testing.T) {
	for text, want := range map[string][2]string{
		`{"axes": {}, "runs": []}`: {"", FamilyOrchestrator},
		`{"axes": {}}`:             {"", FamilyUnknown},
		`{"results": []}`:          {"", FamilyRichAggregate},
		`{"results": {}}`:          {"", FamilyUnknown},
		`{"manifest_schema_family": "\n other ", "axes": 1, "runs": 1}`: {"other", "other"},
		`{"manifest_schema_family": " ", "axes": 1, "runs": 1}`:         {"", FamilyOrchestrator},
		`{"manifest_schema_family": 7, "results": []}`:                  {"", FamilyRichAggregate},
	} {
		var manifest map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &manifest))
		explicit, classified := ManifestFamily(manifest)
		assert.Equal(t, want, [2]string{explicit, classified}, text)
	}
}

func TestInside(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(base, "own", "deep"), 0o755))
	for link, target := range map[string]string{
		"alias": "own", "own/out": base, "own/dangling": "../elsewhere/x", "own/loop": "loop", "own/up": "deep/../..", "far": base + "/own/deep",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(base, link)))
	}
	for path, want := range map[string]bool{
		"own": true, "own/a/b": true, "own/a/../b": true, "alias/new": true, "far/..": true, "far": true,
		"": false, "own_too/x": false, "own/../x": false, "own/out/x": false, "own/out/own/x": true, "own/dangling": false, "own/up/x": false, "far/../..": false,
	} {
		got, err := Inside(base+"/own", base+"/"+path)
		require.NoError(t, err, path)
		assert.Equal(t, want, got, path)
	}
	_, err = Inside(base+"/own", base+"/own/loop")
	require.ErrorContains(t, err, "too many links")
	t.Chdir(base)
	inside, err := Inside("own", "alias/x")
	require.NoError(t, err)
	assert.True(t, inside)
}
