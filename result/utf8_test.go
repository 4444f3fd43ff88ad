package result

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestDecodeUTF8(t *testing.T) {
	const u = "\ufffd"
	for in, want := range map[string]string{
		"":                         "",
		"plain é € 😀\x00\n":        "plain é € 😀\x00\n",
		"a\ufffdb":                 "a\ufffdb", // was in the text
		"\x80":                     u,
		"\x80\xbf":                 u + u,
		"\xc0\xaf":                 u + u,
		"\xed\xa0\x80":             u + u + u, // a surrogate
		"\xf5":                     u,
		"\xf5\x80\x80\x80":         u + u + u + u,
		"\xfe\xff":                 u + u,
		"\xc3":                     u,
		"\xc3a":                    u + "a",
		"\xc3\xc3\xa9":             u + "é",
		"\xe2\x82":                 u,
		"\xe2\x82a":                u + "a",
		"\xe2\x82\xe2\x82\xac":     u + "€",
		"\xe2a":                    u + "a",
		"\xe0\x80\x80":             u + u + u,
		"\xe0\xa0":                 u,
		"\xf0\x9f\x98":             u,
		"\xf0\x9f\x98a":            u + "a",
		"\xf0\x9f\x98\xf0\x9f\x98": u + u,
		"\xf0\x80\x80\x80":         u + u + u + u,
		"\xf4\x8f\xbf":             u,
		"\xf4\x90\x80\x80":         u + u + u + u, // above U+10FFFF
		"a\xffb\xffc":              "a" + u + "b" + u + "c",
	} {
		require.Equal(t, want, DecodeUTF8([]byte(in)), "% x", in)
	}
}

func FuzzDecodeUTF8(f *testing.F) {
	f.Add([]byte("a\xe2\x82b\xf0\x9f\x98"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := DecodeUTF8(b)
		require.True(t, utf8.ValidString(got))
		// One replacement stands for at least one byte and at most as many as
		// Go's decoder, which replaces byte by byte, counts.
		require.LessOrEqual(t, utf8.RuneCountInString(got), utf8.RuneCount(b))
		clean := strings.ReplaceAll(string([]rune(string(b))), "\ufffd", "")
		require.Equal(t, clean, strings.ReplaceAll(got, "\ufffd", ""))
		require.Equal(t, utf8.Valid(b), got == string(b))
	})
}
