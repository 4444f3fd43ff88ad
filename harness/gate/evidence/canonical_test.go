package evidence

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCanonical(t *testing.T) {
	code := 1
	text, err := Canonical(struct {
		Zebra  string            `json:"zebra"`
		Apple  []int             `json:"apple"`
		Map    map[string]string `json:"map"`
		Null   *int              `json:"null"`
		Code   *int              `json:"code"`
		Inner  []Counts          `json:"inner"`
		Any    any               `json:"any"`
		Left   []string          `json:"left,omitempty"`
		Hidden func()            `json:"-"`
		Raw    json.RawMessage   `json:"raw"`
		hidden float64
	}{Zebra: "<é>", Code: &code, Any: map[string]any{"b": nil, "a": []string(nil)}, Raw: json.RawMessage(`{"y":1,"x":2}`)})
	require.NoError(t, err)
	want := `{
  "any": {
    "a": [],
    "b": null
  },
  "apple": [],
  "code": 1,
  "inner": [],
  "map": {},
  "null": null,
  "raw": {
    "x": 2,
    "y": 1
  },
  "zebra": "<é>"
}
`
	assert.Equal(t, want, string(text))
	for _, v := range []any{nil, Tests{}, RunManifest{}, []string{}, "text", 7} {
		text, err := Canonical(v)
		require.NoError(t, err)
		assert.NotContains(t, string(text), "\r")
		again, err := Canonical(json.RawMessage(text))
		require.NoError(t, err)
		assert.Equal(t, string(text), string(again))
	}
}

// TestEqualFactsAreEqualBytes: no list and an empty list are the same fact.
func TestEqualFactsAreEqualBytes(t *testing.T) {
	none, err := Canonical(Tests{Commands: []CommandTests{{Argv: nil}}})
	require.NoError(t, err)
	empty, err := Canonical(&Tests{FailingTestsBefore: []string{}, Commands: []CommandTests{{Argv: []string{}, Cases: []Case{}}}})
	require.NoError(t, err)
	assert.Equal(t, string(empty), string(none))
}

func TestCanonicalRefuses(t *testing.T) {
	type loop struct{ Next any }
	endless := &loop{}
	endless.Next = endless
	for name, c := range map[string]struct {
		v    any
		want string
	}{
		"a float":               {1.0, "the document is a floating-point number"},
		"in a struct":           {struct{ A struct{ B float32 } }{}, "A.B is a floating-point"},
		"in a list":             {map[string]any{"x": []any{1, 2.0}}, "x[1] is a floating-point"},
		"behind a pointer":      {struct{ P *float64 }{new(float64)}, "P is a floating-point"},
		"endless":               {endless, "cycle"},
		"what JSON cannot hold": {make(chan int), "marshal from Go chan int"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Canonical(c.v)
			assert.ErrorContains(t, err, c.want)
		})
	}
}
