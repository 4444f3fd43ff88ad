package normalize

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBehaviorHash(t *testing.T) {
	hash := func(text string) string {
		sum, err := BehaviorHash(strings.NewReader(text), int64(len(text)))
		require.NoError(t, err)
		return sum
	}
	// printf 'a\nb' | sha256sum
	const want = "7e18f737311b2dc3b2f269dd78396b0351f14fb66efa879f768cb23181883c78"
	for _, same := range []string{"a\nb\n", "b\n a \n", "\n\tb\r\n\na", "a\nb"} {
		assert.Equal(t, want, hash(same))
	}
	assert.NotEqual(t, hash("a\na"), hash("a"), "the number of lines counts")
	assert.Equal(t, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", hash(" \n\n"))
}

// TestBehaviorHashInPasses: the hash of a log is the same however little of it is sorted at once.
func TestBehaviorHashInPasses(t *testing.T) {
	var log strings.Builder
	for i := range 500 {
		fmt.Fprintf(&log, "  line %d \r\n\n same\n", i*7919%500)
	}
	log.WriteString("no line feed")
	for _, text := range []string{"", "\n \n", "a", "b\na\n", log.String()} {
		want, err := BehaviorHash(strings.NewReader(text), int64(len(text)))
		require.NoError(t, err)
		for _, most := range []int64{64, 1000, sortBytes} {
			sum, err := hashSorted(strings.NewReader(text), int64(len(text)), most)
			require.NoError(t, err)
			assert.Equal(t, want, sum, "%d bytes of lines held", most)
		}
	}
	bounds, err := splitLines(strings.NewReader(log.String()), int64(log.Len()), 1000)
	require.NoError(t, err)
	assert.Len(t, bounds, log.Len()/1000)
	_, err = BehaviorHash(failing{strings.NewReader(log.String())}, int64(log.Len()))
	assert.ErrorIs(t, err, iotest.ErrTimeout)
}

type failing struct{ io.ReadSeeker }

func (failing) Read([]byte) (int, error) { return 0, iotest.ErrTimeout }
