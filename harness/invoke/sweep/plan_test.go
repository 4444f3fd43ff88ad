package sweep

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/invoke"
)

// testPlan is a sweep of four runs.
func testPlan(t *testing.T) Plan {
	t.Helper()
	spec := parseSpec(t, `{"kind": "test"}`)
	plan, err := NewPlan(Config{Axes: []Axis{{"x", []any{0.5, "b"}}}, Seeds: seeds(1, 2), Adapter: new("m")}, spec)
	require.NoError(t, err)
	return plan
}

func parseSpec(t *testing.T, text string) Spec {
	t.Helper()
	fields, err := readObject([]byte(text))
	require.NoError(t, err)
	return Spec{fields}
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
		"same seeds":       {Config{Axes: []Axis{{"a", []any{1}}}, Seeds: seeds(1, 1)}, `directory "a=1_seed=1": is that of runs 1 and 2: {"a":1} with seed 1 and {"a":1} with seed 1`},
		"values alike":     {Config{Axes: []Axis{{"a", []any{-1, "m1"}}}, Seeds: seeds(1)}, `is that of runs 1 and 2: {"a":-1} with seed 1 and {"a":"m1"} with seed 1`},
		"nothing is left":  {Config{Axes: []Axis{{"a", []any{"é", "ü"}}}, Seeds: seeds(1)}, `directory "a=_seed=1"`},
		"too long a name":  {Config{Axes: []Axis{{"a", []any{strings.Repeat("x", 250)}}}, Seeds: seeds(1)}, "has 259 bytes, and a name has at most 255"},
		"no configuration": {Config{}, "axes: must not be empty"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewPlan(test.config, Spec{})
			require.ErrorContains(t, err, test.want)
		})
	}
	_, err := NewPlan(Config{Axes: []Axis{{"a", numbers(500)}}, Seeds: seeds(1, 1)}, Spec{})
	assert.Len(t, strings.Split(err.Error(), "\n"), maxProblems, "an error is bounded")
}

func TestManifest(t *testing.T) {
	plan := testPlan(t)
	text, err := plan.Manifest([]Text{"aa", "", "bb", "cc"})
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
		`{"manifest_schema_family": "\n other ", "axes": 1, "runs": 1}`:                 {"other", FamilyOrchestrator},
		`{"manifest_schema_family": "other", "results": []}`:                            {"other", FamilyRichAggregate},
		`{"manifest_schema_family": "other"}`:                                           {"other", FamilyUnknown},
		`{"manifest_schema_family": "clarity_rich_aggregate_v1", "axes": 1, "runs": 1}`: {FamilyRichAggregate, FamilyRichAggregate},
		`{"manifest_schema_family": " ", "axes": 1, "runs": 1}`:                         {"", FamilyOrchestrator},
		`{"manifest_schema_family": 7, "results": []}`:                                  {"", FamilyRichAggregate},
	} {
		var manifest map[string]any
		require.NoError(t, json.Unmarshal([]byte(text), &manifest))
		explicit, classified := ManifestFamily(manifest)
		assert.Equal(t, want, [2]string{explicit, classified}, text)
	}
}

// TestDifferences: a refusal names what differs, and no value that is a hash.
func TestDifferences(t *testing.T) {
	plan := testPlan(t)
	changed, err := NewPlan(Config{Axes: []Axis{{"x", []any{strings.Repeat("long", 40)}}}, Seeds: seeds(1, 2)}, parseSpec(t, `{"kind": "other"}`))
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

// TestWholeSeeds: a seed of 64 bits keeps all its digits, in the spec, the name and the manifest.
func TestWholeSeeds(t *testing.T) {
	plan, err := NewPlan(Config{Axes: []Axis{{"a", []any{1}}}, Seeds: []invoke.Seed{invoke.NewSeed(uint64(math.MaxUint64)), invoke.NewSeed(int64(math.MinInt64))}}, Spec{})
	require.NoError(t, err)
	assert.Equal(t, "a=1_seed=18446744073709551615", plan.Name(0))
	text, err := plan.Spec(0)
	require.NoError(t, err)
	assert.Contains(t, string(text), `"seed": 18446744073709551615`)
	text, err = plan.Manifest([]Text{"", ""})
	require.NoError(t, err)
	assert.Contains(t, string(text), `"seed": -9223372036854775808`)
}
