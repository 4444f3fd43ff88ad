package outcome

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
)

// TestContend: a program is starved by what it waited for in vain, not by what it did not use.
func TestContend(t *testing.T) {
	const second = time.Second
	known := func(ran, waited, lacked time.Duration) wire.Share {
		return wire.Share{Known: true, Ran: ran, Waited: waited, Lacked: lacked}
	}
	for name, test := range map[string]struct {
		share wire.Share
		used  time.Duration
		want  result.Share
	}{
		"spins alone":                      {known(20*second, 100*time.Millisecond, 100*time.Millisecond), 0, result.Quiet},
		"sleeps":                           {known(10*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond), 0, result.Quiet},
		"waits for its own threads":        {known(40*second, 120*second, 0), 0, result.Quiet},
		"gets three quarters":              {known(15*second, 5*second, 5*second), 0, result.Busy},
		"gets a twentieth":                 {known(second, 19*second, 19*second), 0, result.Starved},
		"sleeps most of the time":          {known(second, 3*second, 3*second), 0, result.Busy},
		"lacks much and gets more":         {known(30*second, 20*second, 10*second), 0, result.Busy},
		"short processes wait":             {wire.Share{Known: true, Ran: second / 10, Pressure: 19 * second, Available: 40 * second}, second, result.Starved},
		"... for each other":               {wire.Share{Known: true, Ran: second / 10, Pressure: 19 * second, Available: 20 * second}, 20 * second, result.Quiet},
		"starts slowly, then sleeps":       {known(second/10, 6*second, 6*second), 0, result.Busy},
		"pressure":                         {wire.Share{Pressure: 19 * second}, second, result.Starved},
		"pressure of its own threads":      {wire.Share{Pressure: 20 * second}, 40 * second, result.Quiet},
		"pressure of a program that waits": {wire.Share{Pressure: 20 * time.Millisecond}, 10 * time.Millisecond, result.Quiet},
	} {
		t.Run(name, func(t *testing.T) {
			got := Contend(engine.End{Reported: true, Duration: 20 * second, Share: test.share, Usage: engine.Usage{CPU: test.used}}, 2)
			require.Equal(t, test.want, got.Verdict)
			waited := test.share.Waited
			if got.Source != "threads" {
				waited = test.share.Pressure
			}
			require.InDelta(t, waited.Seconds(), got.WaitedSeconds, 0.001)
		})
	}
	short := Contend(engine.End{Reported: true, Duration: second / 10, Share: known(second/100, second/20, second/20)}, 2)
	require.Equal(t, result.Quiet, short.Verdict, "a moment is not noticed")
	require.Nil(t, Contend(engine.End{Reported: true, Duration: second}, 2), "a kernel that does not count")
	require.Nil(t, Contend(engine.End{Share: known(1, 2, 3)}, 2), "no report")
}
