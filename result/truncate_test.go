package result

import (
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTruncateOutput(t *testing.T) {
	for _, c := range []struct {
		in   string
		max  int
		kept string
		cut  bool
	}{
		{"", 0, "", false},
		{"abc", 3, "abc", false},
		{"abcd", 3, "abc", true},
		{"ab€", 3, "ab", true},
		{"ab€", 4, "ab", true},
		{"ab€", 5, "ab€", false},
		{"😀😀", 7, "😀", true},
		{"a", 0, "", true},
		{"a", -1, "", true},
	} {
		got, cut := TruncateOutput(c.in, c.max)
		require.Equal(t, c.cut, cut, "%+v", c)
		want := c.kept
		if cut {
			want += "\n\n[WARNING: Output truncated. Original size exceeded " + strconv.Itoa(max(c.max, 0)) + " bytes limit.]"
		}
		require.Equal(t, want, got, "%+v", c)
	}
}

// No run of broken bytes may move the cut far.
func TestTruncateOutputBinary(t *testing.T) {
	got, cut := TruncateOutput(strings.Repeat("\x80", 100), 50)
	require.True(t, cut)
	kept, _, _ := strings.Cut(got, "\n\n[WARNING")
	require.GreaterOrEqual(t, len(kept), 47)
}
