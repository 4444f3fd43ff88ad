package hostile

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/probe"
)

func TestTable(t *testing.T) {
	dir := t.TempDir()
	for engine, verdicts := range map[string][]probe.Verdict{
		"old runc root": {{Group: "ends", Name: "exit"}, {Group: "a", Name: "b_c", Differs: []string{"x is 1, not 2"}}},
		"new runc root": {{Group: "ends", Name: "exit"}},
	} {
		c := collector{all: verdicts}
		require.NoError(t, c.save(dir, engine))
	}
	text, err := os.ReadFile(dir + "/table.txt")
	require.NoError(t, err)
	lines := strings.Split(string(text), "\n")
	require.Equal(t, []string{"group", "probe", "new", "runc", "root", "old", "runc", "root"}, strings.Fields(lines[0]))
	require.Equal(t, []string{"a", "b", "c", "-", "DIFFERS"}, strings.Fields(lines[1]))
	require.Equal(t, []string{"ends", "exit", "ok", "ok"}, strings.Fields(lines[2]))
	require.Equal(t, "2 probes; new runc root: 1 ok, 0 differ; old runc root: 1 ok, 1 differ", lines[3])
	require.Equal(t, "old runc root: a/b_c: x is 1, not 2", lines[4])
}

// TestPrintTable writes the table of all columns again, for columns of other users.
func TestPrintTable(t *testing.T) {
	if dir := os.Getenv("EVALBOX_HOSTILE_TABLE"); dir != "" {
		require.NoError(t, writeTable(dir))
	}
}
