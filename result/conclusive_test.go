package result

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConclusive compares the rule with the table of every status and every fault.
func TestConclusive(t *testing.T) {
	text, err := os.ReadFile("testdata/conclusive.txt")
	require.NoError(t, err)
	var faults []string
	seen := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#"):
			continue
		case faults == nil:
			faults = cells[1:]
			continue
		}
		require.Len(t, cells, len(faults)+1, line)
		var status Status
		require.NoError(t, status.UnmarshalText([]byte(cells[0])))
		for i, cell := range cells[1:] {
			var fault Fault
			require.NoError(t, fault.UnmarshalText([]byte(faults[i])))
			pair := status.String() + "/" + fault.String()
			require.Contains(t, []string{"yes", "no"}, strings.Trim(cell, "()"), pair)
			require.Equal(t, strings.Trim(cell, "()") == "yes", Result{Status: status, Fault: fault}.Conclusive(), pair)
			seen[pair] = true
		}
	}
	require.Len(t, seen, len(Statuses())*len(Faults()))
	require.False(t, Result{}.Conclusive())
	require.False(t, Result{Fault: FaultNone}.Conclusive())
	require.False(t, Result{Status: StatusExited}.Conclusive())
}
