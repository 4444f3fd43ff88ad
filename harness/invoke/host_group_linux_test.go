package invoke

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestStateOf(t *testing.T) {
	state, group, ok := stateOf([]byte("12 (a) b) (c) S 1 34 34 0 -1"))
	require.True(t, ok)
	require.Equal(t, byte('S'), state)
	require.Equal(t, 34, group)
	for _, text := range []string{"", "12 (a)", "12 (a) S 1", "12 a S 1 2", "12 (a) S 1 x"} {
		_, _, ok := stateOf([]byte(text))
		require.False(t, ok, text)
	}
}
