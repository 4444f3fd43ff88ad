package text_test

import (
	"strings"
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

func TestMiddle(t *testing.T) {
	long := strings.Repeat("a", 100) + strings.Repeat("ä", 100) + strings.Repeat("z", 100)
	for _, test := range []struct {
		text string
		most int
		more int64
		want string // an expression
	}{
		{"short", 5, 9, `^short$`},
		{long, 400, 0, "^" + long + "$"},
		{long, 100, 0, `^a{27}\[… 346 bytes left out …\]z{27}$`},
		{long, 100, 1000, `^a{27}\[… 1346 bytes left out …\]z{27}$`},
		{long, 100, -5, `^a{27}\[… 346 bytes left out …\]z{27}$`},
		{long, 10, 0, `^\[… 400 bytes left out …\]$`},
		{strings.Repeat("ä", 100), 99, 0, `^ä+\[… 148 bytes left out …\]ä+$`},
		{strings.Repeat("\x80", 100), 80, 0, `left out`},
	} {
		got := text.Middle(test.text, test.most, test.more)
		require.Regexp(t, test.want, got)
		require.LessOrEqual(t, len(got), max(test.most, 60))
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

func TestDisplay(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0 B", 1023: "1023 B", 10328 << 10: "10.09 MiB", 143 << 20: "143 MiB", 3 << 30: "3 GiB"} {
		require.Equal(t, want, text.Size(bytes))
	}
	for seconds, want := range map[float64]string{0: "0.00s", 1.234: "1.23s", 12.34: "12.3s", 61: "1m1s", 7200: "2h0m0s"} {
		require.Equal(t, want, text.Seconds(seconds))
	}
	require.Equal(t, "1 file", text.Count(1, "file"))
	require.Equal(t, "0 files", text.Count(0, "file"))
	require.Equal(t, "abc", text.Fit("abc", 3))
	require.Equal(t, "äb…", text.Fit("äbcd", 3))
	require.Equal(t, "a b", text.Brief("a\n\n  b\n"))
}
