package invoke

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSplitCommand(t *testing.T) {
	for text, want := range map[string][]string{
		"/usr/local/bin/tool":       {"/usr/local/bin/tool"},
		"python -m tool.cli":        {"python", "-m", "tool.cli"},
		"'/opt/my tool' -x \"a b\"": {"/opt/my tool", "-x", "a b"},
		`a\ b c\'d`:                 {"a b", "c'd"},
		"to''ol ''":                 {"tool", ""},
		"tool\t-x\n-y":              {"tool", "-x", "-y"},
		"$HOME/tool *.py | tee #x":  {"$HOME/tool", "*.py", "|", "tee", "#x"},
		"tool `id` $(id); rm && ls": {"tool", "`id`", "$(id);", "rm", "&&", "ls"},
		"tool\u00a0x":               {"tool\u00a0x"},
		"''":                        {""},
	} {
		words, err := SplitCommand(text)
		require.NoError(t, err, text)
		require.Equal(t, want, words, text)
	}
	for text, rule := range map[string]string{
		"": "must not be empty", " \t\n": "must not be empty", "a 'b": "No closing quotation", `a "b`: "No closing quotation",
		`a \`: "No escaped character", "a\x00b": "holds a NUL byte",
	} {
		_, err := SplitCommand(text)
		require.ErrorContains(t, err, rule, text)
		require.ErrorContains(t, err, "executable", text)
	}
}

func FuzzSplitCommand(f *testing.F) {
	f.Add("python -m tool.cli 'a b'")
	f.Fuzz(func(t *testing.T, text string) {
		words, err := SplitCommand(text)
		if err == nil {
			require.NotEmpty(t, words)
		}
	})
}
