package invoke

import (
	"encoding/json"
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

// TestSeed: each signed and each unsigned number of 64 bits is a seed.
func TestSeed(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", "42": "42", "007": "7", "+7": "7", "-7": "-7", "-9223372036854775808": "-9223372036854775808",
		"9223372036854775808": "9223372036854775808", "18446744073709551615": "18446744073709551615", "+18446744073709551615": "18446744073709551615",
	} {
		seed, err := ParseSeed(text)
		require.NoError(t, err, text)
		require.Equal(t, want, seed.String())
		n, ok := seed.Uint64()
		require.Equal(t, want[0] != '-', ok)
		if ok {
			require.Equal(t, want, NewSeed(n).String())
		}
		written, err := json.Marshal(seed)
		require.NoError(t, err)
		require.Equal(t, want, string(written))
		var back Seed
		require.NoError(t, json.Unmarshal(written, &back))
		require.Equal(t, seed, back)
	}
	for _, text := range []string{"18446744073709551616", "-9223372036854775809", "+18446744073709551616"} {
		_, err := ParseSeed(text)
		require.EqualError(t, err, "the seed "+text+" must be between -9223372036854775808 and 18446744073709551615")
		require.ErrorAs(t, err, new(*SeedRangeError))
	}
	for _, text := range []string{"", "x", "1-5", "1.0", "1e3", "0x10", "--1", "+-1"} {
		_, err := ParseSeed(text)
		require.ErrorContains(t, err, "must be a whole number", text)
	}
}
