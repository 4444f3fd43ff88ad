package ends

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestFits(t *testing.T) {
	assert.True(t, Fits("a.c", "a.c"))
	assert.False(t, Fits("a.c", "abc"))
	assert.True(t, Fits("/a.c/", "abc"))
	assert.False(t, Fits("/a.c/", "abcd"), "the whole text")
	assert.False(t, Fits("", "x"))
}

func TestRepeated(t *testing.T) {
	for written, times := range map[string]int{"": 0, "ab": 1, "ababab": 3, "aba": -1, "abb": -1, "abbb": -1} {
		r := Repeated{Text: "ab"}
		for i := 0; i < len(written); i += 3 {
			_, _ = r.Write([]byte(written[i:min(i+3, len(written))])) // never fails
		}
		assert.Equal(t, times, r.Times(), written)
	}
}
