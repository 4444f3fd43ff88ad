package compare

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

func TestCompareLines(t *testing.T) {
	long := strings.Repeat("x", 200_000)
	for name, c := range map[string]struct {
		want, got string
		line      *Line
	}{
		"both empty":          {"", "", nil},
		"equal":               {"a\nb\n", "a\nb\n", nil},
		"second line":         {"a\nb\nc\n", "a\nB\nc\n", &Line{2, "b", "B"}},
		"first is shorter":    {"a\n", "a\nb\n", &Line{2, "", "b"}},
		"second is shorter":   {"a\nb\n", "a\n", &Line{2, "b", ""}},
		"no newline at end":   {"a\nb", "a\nb\n", &Line{2, "b", "b"}},
		"end of a long line":  {"a\n" + long + "1\n", "a\n" + long + "2\n", &Line{2, strings.Repeat("x", 3392) + "1", ""}},
		"after a long line":   {long + "\nb", long + "\nc", &Line{2, "b", "c"}},
		"not UTF-8":           {"\xff\n", "\xfe\n", &Line{1, "�", "�"}},
		"one is much shorter": {long, "", &Line{1, long[:maxShown] + "…", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			line, err := lines(strings.NewReader(c.want), strings.NewReader(c.got))
			require.NoError(t, err)
			if name == "end of a long line" { // what is shown is bounded
				require.Equal(t, 2, line.Line)
				require.LessOrEqual(t, len(line.Want), maxShown+len("…"))
				return
			}
			require.Equal(t, c.line, line)
		})
	}
	failed := errors.New("broken")
	_, err := lines(iotest.ErrReader(failed), strings.NewReader(""))
	require.ErrorIs(t, err, failed)
}
