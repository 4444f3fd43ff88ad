package result

import (
	"slices"
	"strings"
)

// Bounds of an error summary.
const (
	maxSummaryLines = 20
	maxSummaryBytes = 4 << 10
)

// ErrorSummary returns the last lines of stderr for a run that failed without a
// traceback: CPython prints none for a syntax error in the script itself, and
// nobody prints one for a run that was killed. Blank lines are left out. It
// holds at most 20 lines and 4 KiB, whose first line may lack its start, and no
// newline at its end.
func ErrorSummary(stderr string) string {
	var lines []string
	room := maxSummaryBytes
	for rest := stderr; rest != "" && len(lines) < maxSummaryLines && room > 0; {
		i := strings.LastIndexByte(rest, '\n')
		line := strings.TrimSuffix(rest[i+1:], "\r")
		rest = rest[:max(i, 0)]
		if strings.TrimSpace(line) == "" {
			continue
		}
		if len(line) > room {
			line = string(tailBorder([]byte(line[len(line)-room:])))
			rest = ""
		}
		room -= len(line) + len("\n")
		lines = append(lines, line)
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n")
}
