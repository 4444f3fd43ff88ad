package evaluate

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
)

func TestLoadList(t *testing.T) {
	path := filepath.Join(t.TempDir(), "list.jsonl")
	writeFile(t, path, "{\"script\": \"a/svm.py\"}\n\n{\"script\": \"/b.py\", \"name\": \"best\", \"seed\": 4294967295}")
	rows, err := LoadList(path)
	require.NoError(t, err)
	require.Equal(t, []ListedScript{
		{Script: filepath.Join(filepath.Dir(path), "a", "svm.py"), Name: "svm", Source: path + ":1"},
		{Script: "/b.py", Name: "best", Seed: new(uint32(4294967295)), Source: path + ":3"},
	}, rows)
	writeFile(t, path, "{\"script\": \"my model.py\"}\n{\"script\": \"lr=1,2:é.py\"}")
	rows, err = LoadList(path)
	require.NoError(t, err)
	require.Equal(t, "my-model-76eeb051", rows[0].Name)
	require.NoError(t, policy.CheckName("name", rows[1].Name))
	_, err = LoadList(path + ".nowhere")
	require.ErrorContains(t, err, "list.jsonl.nowhere: no such file")
}

func TestParseListRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "l: names no script",
		"\n\n":                              "l: names no script",
		"x":                                 `l:1: is not JSON: "x"`,
		`["a.py"]`:                          "l:1: must be a JSON object",
		`{"name": "a"}`:                     "l:1: script is missing",
		`{"script": ""}`:                    `l:1: script "" must be a text`,
		`{"script": 7}`:                     "l:1: script 7 must be a text",
		`{"script": "a.py", "env": {}}`:     `l:1: "env" is no member of a row`,
		`{"script": "a", "script": "b"}`:    `l:1: "script" is given twice`,
		`{"script": "a.py", "seed": -1}`:    "l:1: seed -1 must be a whole number",
		`{"script": "a.py", "seed": "1"}`:   `l:1: seed "1" must be a whole number`,
		`{"script": "a.py", "name": "../"}`: "l:1: name",
		`{"script": "a.py"} {}`:             "l:1: is not JSON",
	} {
		_, err := readList(strings.NewReader(text), "l")
		require.ErrorContains(t, err, want, text)
	}
	// Every problem is reported at once, up to a bound.
	_, err := readList(strings.NewReader("x\n{\"script\": \"a.py\"}\ny\n"), "l")
	require.ErrorContains(t, err, "l:1:")
	require.ErrorContains(t, err, "l:3:")
	_, err = readList(strings.NewReader(strings.Repeat("x\n", 1000)), "l")
	require.Less(t, len(err.Error()), 10_000)
}
