package evidence

import (
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHints: whatever stops a gate, there is something to try.
func TestHints(t *testing.T) {
	source, err := os.ReadFile("verdict.go")
	require.NoError(t, err)
	reasons := regexp.MustCompile(`Reason\w+ +StopReason = "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	for _, reason := range reasons {
		if name := StopReason(reason[1]); name != ReasonPass {
			assert.NotEmpty(t, name.Hint(), name)
		}
	}
	assert.Len(t, hints, len(reasons)-1)
}
