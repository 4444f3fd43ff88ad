package cli

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestExitCodesAreDocumented: the table of docs/result.md has every code, and no other.
func TestExitCodesAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/result.md")
	require.NoError(t, err)
	section := regexp.MustCompile(`(?s)\n## Exit codes\n(.*?)\n## |\n## Exit codes\n(.*)$`).FindString(string(text))
	var documented []int
	for _, row := range regexp.MustCompile(`(?m)^\| ([0-9, ]+) \|`).FindAllStringSubmatch(section, -1) {
		for _, code := range regexp.MustCompile(`[0-9]+`).FindAllString(row[1], -1) {
			n, err := strconv.Atoi(code)
			require.NoError(t, err)
			documented = append(documented, n)
		}
	}
	require.ElementsMatch(t, []int{
		ExitProblem, ExitUsage, ExitNeedInfo, ExitTimeLimit, ExitSandbox, ExitNotExecutable, ExitNotFound, ExitInterrupted, ExitKilled,
	}, documented)
}
