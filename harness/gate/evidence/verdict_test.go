package evidence

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSeverity: every reason that stops a gate has one rank, a class and a hint.
func TestSeverity(t *testing.T) {
	source, err := os.ReadFile("verdict.go")
	require.NoError(t, err)
	reasons := regexp.MustCompile(`Reason\w+ +StopReason = "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	ranks := map[int]bool{}
	for _, reason := range reasons {
		name := StopReason(reason[1])
		ranks[name.Rank()] = true
		if name != ReasonPass {
			assert.NotEmpty(t, name.Hint(), name)
			assert.GreaterOrEqual(t, name.Rank(), 0, name)
		}
	}
	assert.Len(t, severity, len(reasons)-1)
	assert.Len(t, ranks, len(reasons))
	assert.Equal(t, -1, ReasonPass.Rank())
	assert.Equal(t, "PASS", ReasonPass.Class())
	assert.Empty(t, ReasonPass.Hint())
}
