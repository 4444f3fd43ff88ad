package adapter

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGolden(t *testing.T) {
	g := Golden{filepath.Join(t.TempDir(), "golden/A")}
	got, err := g.Read("first")
	require.NoError(t, err)
	require.Nil(t, got)
	value := map[string]any{"b": []any{int64(1), 2.5, json.Number("12345678901234567890"), nil}, "a": "<é>"}
	require.NoError(t, g.Write("first", value))
	got, err = g.Read("first")
	require.NoError(t, err)
	same, err := g.Same(got, value)
	require.NoError(t, err)
	require.True(t, same)
	same, err = g.Same(json.RawMessage(`{"a":"<é>","b":[1,2.5,12345678901234567890,null]}`), value)
	require.NoError(t, err)
	require.True(t, same, "the form does not matter")
	for _, other := range []any{nil, map[string]any{"a": "<é>"}, []any{}, "x"} {
		same, err = g.Same(got, other)
		require.NoError(t, err)
		require.False(t, same)
	}

	a := &Adapter{Examples: []Example{{Name: "first"}, {Name: "second"}}}
	all, err := g.Fixtures(a)
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.JSONEq(t, string(got), string(all["first"]))

	require.NoError(t, os.WriteFile(filepath.Join(g.Dir, "second.json"), []byte("{"), 0o600))
	_, err = g.Fixtures(a)
	require.ErrorContains(t, err, "second.json: is not JSON")
	require.NoError(t, g.Write("second", nil))
	got, err = g.Read("second")
	require.NoError(t, err)
	require.Equal(t, "null", string(got), "null is a value")
	require.ErrorContains(t, Golden{"/dev/null/golden"}.Write("x", 1), "golden output of x: ")
}

// An example is a contract that its adapter carries out.
func TestExample(t *testing.T) {
	b := newBench(t, adapterText("A", "examples: [{name: one, parameters: {a: x}, arguments: [y], stdin: in}]"))
	b.box.program = prints("out")
	a, err := b.adapters.Resolve("A", "")
	require.NoError(t, err)
	o := b.carryOut(t, a.Examples[0].Contract(a))
	require.True(t, o.Success, o.Error)
	require.Equal(t, "out", o.Call.Value)
	require.Equal(t, []string{"cat", "x", "y"}, b.box.ran[0].Command)
	require.True(t, b.box.ran[0].Stdin)
}
