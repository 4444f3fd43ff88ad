package text_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/text"
)

func TestShortAndQuote(t *testing.T) {
	for whole, want := range map[string][2]string{
		"":                         {"", `""`},
		"four":                     {"four", `"four"`},
		"fives":                    {"five…", `"five"…`},
		"abcä":                     {"abc…", `"abc"…`},
		"äöü":                      {"äö…", `"äö"…`},
		"a\n\x00b":                 {"a\n\x00b", `"a\n\x00b"`},
		"\x80\x80":                 {"\x80\x80", `"\x80\x80"`},
		"abc😀":                     {"abc…", `"abc"…`},
		"\x80\x80\x80\x80\x80\x80": {"\x80\x80\x80\x80…", `"\x80\x80\x80\x80"…`},
	} {
		require.Equal(t, want, [2]string{text.Short(whole, 4), text.Quote(whole, 4)})
	}
}

func TestOneLine(t *testing.T) {
	require.Equal(t, "a b c", text.OneLine(" a\n\tb  c\r\n"))
}

func TestCount(t *testing.T) {
	for want, n := range map[string]int64{"0 files": 0, "1 file": 1, "2 files": 2} {
		require.Equal(t, want, text.Count(n, "file"))
	}
	require.Equal(t, "3 processes", text.Count(3, "process"))
}
