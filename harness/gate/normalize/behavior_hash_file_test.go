package normalize

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHashLines: the hash of a log is the same however little of it is held in memory,
// and nothing is left behind.
func TestHashLines(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	var log strings.Builder
	for i := range 500 {
		fmt.Fprintf(&log, "  line %d \r\n\n same\n", i*7919%500)
	}
	log.WriteString("no line feed")
	for _, text := range []string{"", "\n \n", "a", "b\na\n", log.String()} {
		for _, most := range []int{1, 7, 1000, sortBytes} {
			sum, err := hashLines(strings.NewReader(text), most)
			require.NoError(t, err)
			assert.Equal(t, BehaviorHash([]byte(text)), sum, "%d bytes of lines held", most)
		}
		left, err := os.ReadDir(dir)
		require.NoError(t, err)
		assert.Empty(t, left)
	}
	_, err := hashLines(iotest.TimeoutReader(bytes.NewBufferString(log.String())), 100)
	assert.ErrorIs(t, err, iotest.ErrTimeout)
	t.Setenv("TMPDIR", dir+"/nowhere")
	_, err = hashLines(strings.NewReader(log.String()), 100)
	assert.ErrorIs(t, err, os.ErrNotExist)
}
