package sweep

import (
	"bytes"
	"encoding/json"
	"math"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/internal/schematest"
)

// TestRunFileRoundTrip: what is known about a run is known in another process.
func TestRunFileRoundTrip(t *testing.T) {
	schematest.RoundTrip(t, reflect.TypeFor[runFile](), nil)
}

func TestDeterministicJSON(t *testing.T) {
	for _, test := range []struct {
		value any
		want  string
	}{
		{map[string]any{"b": 1, "a": []any{}, "B": map[string]any{}, "é": nil}, `{"B":{},"a":[],"b":1,"é":null}`},
		{[]any{3, 1.0, 1e-7, int64(-2), true, false, json.Number("1.10")}, `[3,1.0,1e-07,-2,true,false,1.10]`},
		{map[string]any{"\U0001f600": 1, "\ue000": 2}, "{\"\ue000\":2,\"\U0001f600\":1}"}, // by code points
		{"<&>\u2028\u2029é\"\\\b\f\n\r\t\x00\x1f\x7f/", "\"<&>\u2028\u2029é\\\"\\\\\\b\\f\\n\\r\\t\\u0000\\u001f\x7f/\""},
	} {
		got, err := DeterministicJSON(test.value)
		require.NoError(t, err)
		assert.Equal(t, test.want, string(got))
		var back any
		require.NoError(t, json.Unmarshal(got, &back))
	}
	for name, bad := range map[string]any{
		"not finite": math.Inf(1), "no number": json.Number("true"), "not UTF-8": "\xff",
		"in a list": []any{"\xff"}, "a key": map[string]any{"\xff": 1}, "in an object": map[string]any{"a": math.NaN()},
	} {
		_, err := DeterministicJSON(bad)
		assert.ErrorContains(t, err, "JSON: ", name)
	}
}

func TestReadObject(t *testing.T) {
	for text, want := range map[string]string{
		``: "it is empty", `[1]`: "must be a JSON object", `null`: "must be a JSON object", `"x"`: "must be a JSON object",
		`{`: "is not JSON", `{} {}`: "after top-level value", `{"a": 1,}`: "is not JSON", "{\"a\": \"\xff\"}": "invalid UTF-8", "\ufeff{}": "is not JSON",
		`{"a": "\ud800"}`: "surrogate", `{"a": "\\\uDC00x"}`: "surrogate", `{"a": "\ud800\ud800"}`: "surrogate",
		`{"a": NaN}`: "is not JSON",
	} {
		_, err := readObject([]byte(text))
		require.ErrorContains(t, err, want, text)
	}
	for _, text := range []string{`{"a": "\ud83d\ude00"}`, `{"a": "\\ud800"}`, `{"a": "\u00e9"}`, " {}\n"} {
		_, err := readObject([]byte(text))
		require.NoError(t, err, text)
	}
}

// TestSpecAt: the base is kept, in its own spelling, and what the sweep says wins.
func TestSpecAt(t *testing.T) {
	spec := parseSpec(t, `{"z": {"list": [], "n": 1.10, "big": 12345678901234567890}, "seed": 999, "perturbations": {"old": 1}, "t": "<é\u2028>"}`)
	point := Point{map[string]any{"b": json.Number("0.5"), "a": nil}, invoke.NewSeed(-7)}
	text, err := spec.At(point)
	require.NoError(t, err)
	want := `{
  "perturbations": {
    "a": null,
    "b": 0.5
  },
  "seed": -7,
  "t": "<é` + "\u2028" + `>",
  "z": {
    "big": 12345678901234567890,
    "list": [],
    "n": 1.10
  }
}`
	assert.Equal(t, want, string(text), "byte for byte")
	assert.Equal(t, json.Number("999"), spec.fields["seed"], "the base is not changed")

	config := Config{Axes: []Axis{{"x", []any{1}}}, Seeds: seeds(1)}
	plan, err := NewPlan(config, spec)
	require.NoError(t, err)
	same, err := NewPlan(config, parseSpec(t, `{"t":"<\u00e9\u2028>","perturbations":{"old":1},"seed":999,"z":{"n":1.10,"big":12345678901234567890,"list":[]}}`))
	require.NoError(t, err)
	a, err := plan.definition(nil)
	require.NoError(t, err)
	b, err := same.definition(nil)
	require.NoError(t, err)
	assert.Equal(t, string(a), string(b), "neither spaces nor the order of keys count")
	empty, err := Spec{}.At(point)
	require.NoError(t, err)
	assert.Contains(t, string(empty), "perturbations")
}

// FuzzSpec: what can be read is passed on without loss.
func FuzzSpec(f *testing.F) {
	for _, seed := range []string{`{"a": [1, 2.50, "\ud83d\ude00", {"b": null}]}`, `{"a": "\ud800"}`, `{"\u0000": "\\u"}`, `[]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		fields, err := readObject(text)
		if err != nil {
			return
		}
		written, err := Spec{fields}.At(Point{map[string]any{}, invoke.NewSeed(1)})
		require.NoError(t, err)
		again, err := readObject(written)
		require.NoError(t, err)
		twice, err := Spec{again}.At(Point{map[string]any{}, invoke.NewSeed(1)})
		require.NoError(t, err)
		require.True(t, bytes.Equal(written, twice))
		var want, got map[string]any
		require.NoError(t, json.Unmarshal(text, &want))
		require.NoError(t, json.Unmarshal(written, &got))
		want["perturbations"], want["seed"] = map[string]any{}, 1.0
		require.Equal(t, want, got)
	})
}

func TestReadObjectRefusesDuplicates(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": 1, "a": 2}`:                              `"a"`,
		`{"a": 1, "\u0061": 2}`:                         `"a"`,
		`{"x": [{"b": {}}, {"b": 1, "c": [], "b": 2}]}`: `"b"`,
		`{"x": {"y": 1e400, "z": {"z": 1}, "y": "y"}}`:  `"y"`,
		`{"seed": 1, "seed": 2}`:                        `"seed"`,
	} {
		_, err := readObject([]byte(text))
		require.ErrorContains(t, err, "has the key "+want+" twice in one object", text)
	}
	for _, text := range []string{
		`{}`, `{"a": "a", "b": "a"}`, `{"a": {"a": {"a": ["a", "a"]}}}`, `{"x": [{"a": 1}, {"a": 2}], "a": [[], [{}]], "b": 1e400}`,
	} {
		_, err := readObject([]byte(text))
		assert.NoError(t, err, text)
	}
}
