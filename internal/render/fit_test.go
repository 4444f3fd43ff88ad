package render

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFit(t *testing.T) {
	rows := [][]string{
		{"ID", "NAME", "STATUS", "COMMAND"},
		{"1a2b3c4d5e", strings.Repeat("n", 36), "failed: stdout differs: expected 1, got 2", "python3 -c " + strings.Repeat("x", 300)},
		{"20b1449cd0", "短い名前短い名前短い名前短い名前短い名前", "exited 0", "true"},
	}
	require.Equal(t, rows, Fit(rows, 0), "nothing is cut through a pipe")
	require.Equal(t, rows, Fit(rows, 1000))
	for width := 24; width < 200; width++ {
		for _, row := range Fit(rows, width) {
			total := gap * (len(row) - 1)
			for _, cell := range row {
				total += columnsOf(cell)
			}
			require.LessOrEqual(t, total, width, "%v", row)
		}
	}
	fitted := Fit(rows, 80)
	require.Equal(t, []string{"ID", "NAME", "STATUS", "COMMAND"}, fitted[0])
	require.Equal(t, "1a2b3c4d5e", fitted[1][0], "the handle stays whole")
	require.True(t, strings.HasSuffix(fitted[1][3], "…"))
	require.Equal(t, "exited 0", fitted[2][2])
	require.Equal(t, [][]string(nil), Fit(nil, 80))
}
