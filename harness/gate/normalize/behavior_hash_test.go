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
	bounds, err := splitLines(strings.NewReader(log.String()), int64(log.Len()), 1000, trimmed)
	require.NoError(t, err)
	assert.Len(t, bounds, log.Len()/1000)
	_, err = BehaviorHash(failing{strings.NewReader(log.String())}, int64(log.Len()))
	assert.ErrorIs(t, err, iotest.ErrTimeout)
}

func TestUnorderedHash(t *testing.T) {
	hash := func(streams ...string) string {
		places := []int64{2}
		for _, s := range streams {
			places = append(places, places[len(places)-1]+int64(len(s)))
		}
		sum, err := unorderedHash(strings.NewReader("x\n"+strings.Join(streams, "")), places)
		require.NoError(t, err)
		return sum
	}
	// printf '\na\nb\nc\n' | sha256sum
	const want = "c17658c946a824694616753c742ed7b4c1ee8e14fd32410421117418988eead3"
	assert.Equal(t, want, hash("a\n\nb\n", "c\n"))
	assert.Equal(t, want, hash("b\na\n\n", "c\n"))
	for name, other := range map[string][]string{
		"a line more": {"a\n\nb\nb\n", "c\n"}, "an empty line less": {"a\nb\n", "c\n"}, "a space": {" a\n\nb\n", "c\n"}, "a line on stderr": {"b\n\n", "a\nc\n"},
	} {
		assert.NotEqual(t, want, hash(other...), name)
	}
}

type failing struct{ io.ReadSeeker }

func (failing) Read([]byte) (int, error) { return 0, iotest.ErrTimeout }
