package outcome

import (
	"math"
	"time"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
)

// A program is busy if it lacked busyShare of its time, and starved if it lacked starvedShare of its
// time and got less than half of what it could have used: a program that starts slowly and then sleeps
// is not starved.
const (
	busyShare    = 0.05
	starvedShare = 0.5
	// leastLacked is too short to notice: every start waits for a moment.
	leastLacked = time.Second / 10
)

// Contend judges what a program lacked of the processors; nil if that is not known. cpus is its CPU
// limit in processors.
func Contend(end engine.End, cpus float64) *result.Contention {
	share, source := end.Share, "threads"
	if !share.Known {
		share.Available = time.Duration(cpus * float64(end.Duration))
	}
	// The control group also counts threads that have ended.
	pressed := max(min(share.Pressure, share.Available-end.Usage.CPU), 0)
	switch {
	case !end.Reported:
		return nil
	case pressed > share.Lacked, !share.Known && share.Pressure > 0:
		source = "cgroup v2 pressure"
		share.Ran, share.Waited, share.Lacked = end.Usage.CPU, max(share.Waited, share.Pressure), pressed
	case !share.Known:
		return nil
	}
	c := result.Contention{
		Verdict: result.Quiet, Source: source,
		RanSeconds: seconds(share.Ran), WaitedSeconds: seconds(share.Waited), LackedSeconds: seconds(share.Lacked),
		ThrottledSeconds: seconds(share.Throttled), FrozenSeconds: seconds(end.Frozen),
	}
	wall := end.Duration.Seconds()
	switch lacked := share.Lacked.Seconds(); {
	case wall <= 0, share.Lacked < leastLacked:
	case lacked >= starvedShare*wall && share.Lacked > share.Ran:
		c.Verdict = result.Starved
	case lacked >= busyShare*wall:
		c.Verdict = result.Busy
	}
	return &c
}

// seconds rounds to milliseconds.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }
