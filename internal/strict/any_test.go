package strict_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/strict"
)

func TestAnyAndPairs(t *testing.T) {
	type document struct {
		Value  any            `json:"value"`
		Values map[string]any `json:"values"`
		Order  strict.Pairs   `json:"order"`
	}
	for name, text := range map[string]string{
		"YAML": "value: {a: [1, 2.5, null, yes, 'x']}\nvalues: {n: null, t: true}\norder: {z: 1st, a: 2nd, m: 3rd}\n",
		"JSON": `{"value": {"a": [1, 2.5, null, "yes", "x"]}, "values": {"n": null, "t": true}, "order": {"z": "1st", "a": "2nd", "m": "3rd"}}`,
	} {
		var d document
		require.Empty(t, strict.Decode([]byte(text), &d, strict.Options{Tag: "json"}), name)
		require.Equal(t, map[string]any{"a": []any{int64(1), 2.5, nil, "yes", "x"}}, d.Value, name)
		require.Equal(t, map[string]any{"n": nil, "t": true}, d.Values, name)
		require.Equal(t, strict.Pairs{{Key: "z", Value: "1st"}, {Key: "a", Value: "2nd"}, {Key: "m", Value: "3rd"}}, d.Order, name)
	}
	for text, want := range map[string]string{
		"value: 0x10":                     "value: 0x10 must be a whole number in decimal digits of at most 64 bits; put it in quotes to keep its digits",
		"value: {a: .inf}":                "value.a: .inf must be a finite number",
		"value: {a: 1, a: 2}":             "value.a: is given twice, first in line 1",
		"value: [!!str 1]":                "value[0]: must not have a tag such as \"!!str\"",
		"order: {a: 1}":                   "order.a: 1 must be text: put it in quotes, is a number",
		"order: [a]":                      "order: must be a mapping, is a list",
		`{"value": 12345678901234567890}`: "value: 12345678901234567890 must be a whole number in decimal digits of at most 64 bits; put it in quotes to keep its digits",
	} {
		var d document
		problems := strict.Decode([]byte(text), &d, strict.Options{Tag: "json"})
		require.Len(t, problems, 1, text)
		require.Equal(t, want, problems[0].String(), text)
	}
}
