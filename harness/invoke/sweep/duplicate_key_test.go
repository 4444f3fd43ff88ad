package sweep

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseSpecRefusesDuplicates(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": 1, "a": 2}`:                              `"a"`,
		`{"a": 1, "\u0061": 2}`:                         `"a"`,
		`{"x": [{"b": {}}, {"b": 1, "c": [], "b": 2}]}`: `"b"`,
		`{"x": {"y": 1e400, "z": {"z": 1}, "y": "y"}}`:  `"y"`,
		`{"seed": 1, "seed": 2}`:                        `"seed"`,
	} {
		_, err := ParseSpec([]byte(text))
		require.ErrorContains(t, err, "base spec: has the key "+want+" twice in one object", text)
	}
	for _, text := range []string{
		`{}`, `{"a": "a", "b": "a"}`, `{"a": {"a": {"a": ["a", "a"]}}}`, `{"x": [{"a": 1}, {"a": 2}], "a": [[], [{}]], "b": 1e400}`,
	} {
		_, err := ParseSpec([]byte(text))
		assert.NoError(t, err, text)
	}
}
