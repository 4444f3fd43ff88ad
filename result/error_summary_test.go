package result

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestErrorSummary(t *testing.T) {
	for _, c := range []struct{ name, stderr, want string }{
		{"empty", "", ""},
		{"blank", "\n \n\t\r\n", ""},
		{"one line", "Killed", "Killed"},
		{"syntax error", "  File \"a.py\", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax\n",
			"  File \"a.py\", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax"},
		{"blank lines between", "a\n\n  \nb\n\n", "a\nb"},
		{"CR LF", "a\r\nb\r\n", "a\nb"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, ErrorSummary(c.stderr))
		})
	}
}

func TestErrorSummaryBounds(t *testing.T) {
	got := ErrorSummary(strings.Repeat("x\n", 100) + "last\n")
	require.Equal(t, strings.Repeat("x\n", 19)+"last", got)

	got = ErrorSummary(strings.Repeat("€", 5000) + "\nlast\n")
	require.LessOrEqual(t, len(got), 4096)
	require.Greater(t, len(got), 4000)
	require.True(t, utf8.ValidString(got))
	require.True(t, strings.HasSuffix(got, "€\nlast"))

	got = ErrorSummary("first\n" + strings.Repeat("y", 4096))
	require.Equal(t, strings.Repeat("y", 4096), got)

	require.Equal(t, "a", ErrorSummary("a"+strings.Repeat("\n", 8<<20)))
}
