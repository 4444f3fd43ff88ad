package collect

import (
	"encoding/base64"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// decodePath undoes EncodePath from the text alone.
func decodePath(t *testing.T, text string) string {
	t.Helper()
	name, err := strconv.Unquote(`"` + strings.ReplaceAll(text, `"`, `\"`) + `"`)
	require.NoError(t, err, "%q", text)
	return name
}

func TestEncodePath(t *testing.T) {
	for name, want := range map[string]string{
		"a.txt":            "a.txt",
		"a/b c.txt":        "a/b c.txt",
		"-rf":              "-rf",
		`say "hi"`:         `say "hi"`,
		"it's":             "it's",
		"grüße/日本語/😀":      "grüße/日本語/😀",
		"a\nb":             `a\nb`,
		"a\tb":             `a\tb`,
		"a\x00b":           `a\x00b`,
		"\x1b[31mred":      `\x1b[31mred`,
		"a\x7f":            `a\x7f`,
		"a\u0085b":         `a\u0085b`,
		"\x9b31m":          `\x9b31m`,
		"bad\xff":          `bad\xff`,
		"half\xe2\x82":     `half\xe2\x82`,
		"a\\b":             `a\\b`,
		`a\n`:              `a\\n`,
		`\"`:               `\\"`,
		"txt\u202egnp.exe": `txt\u202egnp.exe`,
		"zero\u200bwidth":  `zero\u200bwidth`,
		"\u2028":           `\u2028`,
		"\ufeffbom":        `\ufeffbom`,
		"\U000e0041tag":    `\U000e0041tag`,
	} {
		text, raw := EncodePath(name)
		require.Equal(t, want, text, "%q", name)
		require.Equal(t, name == want, raw == "", "%q: only an escaped name has its bytes beside it", name)
		requireEncoding(t, name)
	}
}

// requireEncoding holds what every encoded name must fulfil.
func requireEncoding(t *testing.T, name string) {
	t.Helper()
	text, raw := EncodePath(name)
	require.True(t, utf8.ValidString(text), "%q", name)
	for _, r := range text {
		require.True(t, unicode.IsGraphic(r), "%q in %q", r, text)
	}
	require.Equal(t, name, decodePath(t, text), "the text alone gives the name back")
	if raw == "" {
		require.Equal(t, name, text)
		return
	}
	bytes, err := base64.StdEncoding.DecodeString(raw)
	require.NoError(t, err)
	require.Equal(t, name, string(bytes))
}

func FuzzEncodePath(f *testing.F) {
	for _, seed := range []string{"", "a", "a\nb", `a\nb`, "\xff", `\xff`, `"`, `\"`, `\\"`, "\u202e", "\ufffd", "\u00a0", "\u3000"} {
		f.Add(seed, "a\nb")
		f.Add(seed, `a\nb`)
	}
	f.Fuzz(func(t *testing.T, name, other string) {
		requireEncoding(t, name)
		if name != other {
			a, _ := EncodePath(name)
			b, _ := EncodePath(other)
			require.NotEqual(t, a, b, "two names, one text")
		}
	})
}
