package sweep

import (
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/invoke"
)

func numbers(n int) []any {
	var all []any
	for i := range n {
		all = append(all, i)
	}
	return all
}

// seeds are seeds of Go numbers.
func seeds(numbers ...int64) []invoke.Seed {
	var all []invoke.Seed
	for _, n := range numbers {
		all = append(all, invoke.NewSeed(n))
	}
	return all
}

func TestConfigValidate(t *testing.T) {
	one := []Axis{{"a", []any{1}}}
	for name, test := range map[string]struct {
		config Config
		want   []string // parts of the error; none for a valid configuration
	}{
		"fine":              {Config{Axes: one, Seeds: seeds(1), Adapter: new("m")}, nil},
		"without adapter":   {Config{Axes: one, Seeds: seeds(-1)}, nil},
		"every type":        {Config{Axes: []Axis{{"a_1", []any{nil, true, "x", 1, int64(2), 2.5, json.Number("1e3")}}}, Seeds: seeds(1)}, nil},
		"blank adapter":     {Config{Axes: one, Seeds: seeds(1), Adapter: new(" \t")}, []string{"adapter must not be empty"}},
		"odd adapter":       {Config{Axes: one, Seeds: seeds(1), Adapter: new("a\x00")}, []string{"adapter \"a\\x00\": must be UTF-8"}},
		"nothing":           {Config{}, []string{"axes: must not be empty", "seeds: must not be empty"}},
		"same axis twice":   {Config{Axes: slices.Concat(one, one, one), Seeds: seeds(1)}, []string{`Duplicate axis names: "a"`}},
		"no name":           {Config{Axes: []Axis{{"", []any{1}}}, Seeds: seeds(1)}, []string{"name must not be empty"}},
		"no values":         {Config{Axes: []Axis{{"a", nil}}, Seeds: seeds(1)}, []string{`axis "a": values must not be empty`}},
		"newline":           {Config{Axes: []Axis{{"a\n", []any{1}}}, Seeds: seeds(1)}, []string{`axis "a\n": the name must be alphanumeric`}},
		"leading digit":     {Config{Axes: []Axis{{"1a", []any{1}}}, Seeds: seeds(1)}, []string{"alphanumeric"}},
		"not ASCII":         {Config{Axes: []Axis{{"ä", []any{1}}}, Seeds: seeds(1)}, []string{"alphanumeric"}},
		"a way out":         {Config{Axes: []Axis{{"../a", []any{1}}}, Seeds: seeds(1)}, []string{"alphanumeric"}},
		"a list as a value": {Config{Axes: []Axis{{"a", []any{1, []any{2}}}}, Seeds: seeds(1)}, []string{`axis "a": value 2 is a list; a value is`}},
		"odd values":        {Config{Axes: []Axis{{"a", []any{map[string]any{}, struct{}{}}}}, Seeds: seeds(1)}, []string{"value 1 is an object", "value 2 is of type struct {}"}},
		"not finite":        {Config{Axes: []Axis{{"a", []any{math.NaN(), math.Inf(1)}}}, Seeds: seeds(1)}, []string{"value 1 is not finite", "value 2 is not finite"}},
		"too large a float": {Config{Axes: []Axis{{"a", []any{json.Number("1e999")}}}, Seeds: seeds(1)}, []string{"does not fit"}},
		"no number":         {Config{Axes: []Axis{{"a", []any{json.Number("0x1"), json.Number("true"), json.Number(" 1"), json.Number("")}}}, Seeds: seeds(1)}, []string{`"0x1" is not a number`, `"true" is`, `" 1" is`, `"" is`}},
		"not UTF-8":         {Config{Axes: []Axis{{"a", []any{"\xff"}}}, Seeds: seeds(1)}, []string{"is not UTF-8"}},
		"long text":         {Config{Axes: []Axis{{"a", []any{strings.Repeat("x", 5000)}}}, Seeds: seeds(1)}, []string{"more than 4096 bytes"}},
		"too many runs":     {Config{Axes: []Axis{{"a", numbers(1000)}, {"b", numbers(101)}}, Seeds: seeds(1)}, []string{"more than 100000 runs"}},
		"very many runs": {Config{Axes: []Axis{{"a", numbers(60000)}, {"b", numbers(60000)}, {"c", numbers(60000)}, {"d", numbers(60000)}, {"e", numbers(60000)}},
			Seeds: seeds(1)}, []string{"more than 100000 runs"}},
	} {
		t.Run(name, func(t *testing.T) {
			err := test.config.Validate()
			if test.want == nil {
				require.NoError(t, err)
				require.Positive(t, test.config.TotalRuns())
				return
			}
			require.Error(t, err)
			for _, want := range test.want {
				assert.ErrorContains(t, err, want)
			}
			assert.Zero(t, test.config.TotalRuns())
			_, err = test.config.Points()
			assert.Error(t, err)
		})
	}
	many := Config{Axes: []Axis{{"a", slices.Repeat([]any{math.NaN()}, 1000)}}, Seeds: seeds(1)}
	assert.Len(t, strings.Split(many.Validate().Error(), "\n"), maxProblems, "an error is bounded")
}

// TestPoints: axes by code points, values and seeds as given, seeds fastest.
func TestPoints(t *testing.T) {
	config := Config{Axes: []Axis{{"b", []any{2, 1}}, {"B", []any{"x"}}, {"a", []any{1.0, true}}}, Seeds: seeds(7, -3)}
	points, err := config.Points()
	require.NoError(t, err)
	var got []string
	for _, p := range points {
		got = append(got, p.String())
	}
	assert.Equal(t, []string{
		`{"B":"x","a":1.0,"b":2} with seed 7`, `{"B":"x","a":1.0,"b":2} with seed -3`,
		`{"B":"x","a":1.0,"b":1} with seed 7`, `{"B":"x","a":1.0,"b":1} with seed -3`,
		`{"B":"x","a":true,"b":2} with seed 7`, `{"B":"x","a":true,"b":2} with seed -3`,
		`{"B":"x","a":true,"b":1} with seed 7`, `{"B":"x","a":true,"b":1} with seed -3`,
	}, got)
	assert.Equal(t, len(points), config.TotalRuns())
	assert.Equal(t, "b", config.Axes[0].Name, "the configuration is not changed")
	assert.Equal(t, 2, config.Axes[0].Values[0])
}

func TestEncodeValue(t *testing.T) {
	for _, test := range []struct {
		value any
		want  string
	}{
		{0.5, "0p5"}, {-2.0, "m2p0"}, {3, "3"}, {int64(-3), "m3"}, {uint64(math.MaxUint64), "18446744073709551615"}, {"fast", "fast"}, {"very fast", "veryfast"}, {"a/../b", "appb"},
		{true, "True"}, {false, "False"}, {nil, "None"}, {"", ""}, {"é", ""}, {"-", "m"}, {"a_b", "a_b"}, {"a=b", "ab"}, {"\x00\n", ""},
		{1e16, "1e16"}, {1e15, "1000000000000000p0"}, {123456789012345680.0, "1p2345678901234568e17"}, {0.0001, "0p0001"}, {0.00001, "1em05"},
		{json.Number("1.10"), "1p1"}, {json.Number("1E2"), "100p0"}, {json.Number("-0"), "0"}, {json.Number("-0.0"), "m0p0"},
		{json.Number("123456789012345678901234567890"), "123456789012345678901234567890"}, {5e-324, "5em324"},
	} {
		got, err := EncodeValue(test.value)
		require.NoError(t, err)
		assert.Equal(t, test.want, got, "%v", test.value)
	}
	_, err := EncodeValue([]any{1})
	require.ErrorContains(t, err, "is a list")
}

func TestDirName(t *testing.T) {
	got, err := DirName(map[string]any{"z": 1.5, "a": "x y", "Z": nil}, invoke.NewSeed(-4))
	require.NoError(t, err)
	assert.Equal(t, "Z=None_a=xy_z=1p5_seed=-4", got)
	_, err = DirName(map[string]any{"a": struct{}{}}, invoke.NewSeed(1))
	require.Error(t, err)
}

// FuzzEncodeValue: whatever the value is, its name is one part of a path, of a few
// characters, and a float reads back as the same float.
func FuzzEncodeValue(f *testing.F) {
	f.Add("../..", 0.1)
	f.Add("a\x00/b", 1e-7)
	f.Fuzz(func(t *testing.T, text string, number float64) {
		for _, value := range []any{text, number} {
			encoded, err := EncodeValue(value)
			if err != nil {
				continue
			}
			require.Empty(t, strings.Trim(encoded, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"))
		}
		if written, err := normal(number); err == nil {
			back, err := strconv.ParseFloat(string(written.(json.Number)), 64)
			require.NoError(t, err)
			require.Equal(t, math.Float64bits(number), math.Float64bits(back))
			require.True(t, json.Valid([]byte(written.(json.Number))))
		}
	})
}
