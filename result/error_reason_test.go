package result

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReasonFor(t *testing.T) {
	for _, c := range []struct {
		code     int
		timedOut bool
		marker   bool
		want     ErrorReason
	}{
		{0, false, false, ErrorReasonNone},
		{0, false, true, ErrorReasonTraceback},
		{3, false, false, ErrorReasonExitCode},
		{3, false, true, ErrorReasonExitCode},
		{-1, true, false, ErrorReasonTimedOut},
		{-1, true, true, ErrorReasonTimedOut},
		{0, true, false, ErrorReasonTimedOut},
	} {
		require.Equal(t, c.want, ReasonFor(c.code, c.timedOut, c.marker), "%+v", c)
		require.Contains(t, ErrorReasons(), c.want)
	}
}
