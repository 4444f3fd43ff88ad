package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/spec"
)

func TestFakeClockEnv(t *testing.T) {
	var none *spec.FakeClock
	require.Equal(t, map[string]string{"A": "1"}, clockEnv(none, time.Hour, map[string]string{"A": "1"}))
	given := map[string]string{"A": "1", "FAKETIME": "+1y"}
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.FixedZone("", 7200))
	require.Equal(t, map[string]string{
		"A": "1", "LD_PRELOAD": "/l.so", "FAKETIME": "@2026-01-01 10:00:00", "FAKETIME_DONT_RESET": "1", "NO_FAKE_STAT": "1", "SANDBOX_DEADLINE": "1767265200.500",
	}, clockEnv(&spec.FakeClock{Library: "/l.so", At: at}, time.Hour+500*time.Millisecond, given))
	require.Equal(t, "+1y", given["FAKETIME"], "a request is not changed")
}
