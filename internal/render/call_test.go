package render

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/invoke/sweep"
)

// TestSweepTable: the table is bounded, and says what it leaves out.
func TestSweepTable(t *testing.T) {
	require.Empty(t, SweepTable([]sweep.Row{{Values: map[string]any{"x": 1}, Runs: 1}}), "no numbers, no table")
	means := map[string]float64{}
	for i := range 10 {
		means[fmt.Sprintf("n%d", i)] = 1.0 / 3
	}
	rows := []sweep.Row{{Values: map[string]any{"b": 1, "a": "x"}, Runs: 2, Means: means}}
	for range 60 {
		rows = append(rows, sweep.Row{Values: map[string]any{"a": "y", "b": nil}})
	}
	table := SweepTable(rows)
	require.Equal(t, []string{"a", "b", "RUNS", "n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"}, table.Header)
	require.Equal(t, []string{"x", "1", "2", "0.333333"}, table.Rows[0][:4])
	require.Equal(t, []string{"y", "null", "0", "-"}, table.Rows[1][:4])
	require.Len(t, table.Rows, 50)
	require.Equal(t, []string{"2 more numbers: --json has all", "11 more rows: --json has all"}, table.Lines)
}
