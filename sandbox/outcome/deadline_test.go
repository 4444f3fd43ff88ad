package outcome

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
)

// TestDeadline: a program that ends after its soft signal has ended by itself, unless it died of
// that very signal.
func TestDeadline(t *testing.T) {
	const asked = " It had been asked to finish by SIGTERM after 50s."
	soft := func(end engine.End) Evidence {
		end.Reported, end.SoftAfter = true, 50*time.Second
		return Evidence{Accepted: true, End: end, SoftSignal: 15}
	}
	stopped := func(f Evidence, reason StopReason) Evidence {
		f.Stop, f.Requested, f.End.Cause = reason, []engine.Signal{engine.Stop}, engine.BySignal
		return f
	}
	for name, test := range map[string]struct {
		facts        Evidence
		status       result.Status
		fault        result.Fault
		code, signal int
		deadline     result.Deadline
		explanation  string
	}{
		"never asked": {Evidence{Accepted: true, End: engine.End{Reported: true}, SoftSignal: 15},
			result.StatusExited, result.FaultNone, 0, 0, result.DeadlineNone, "The program exited with 0."},
		"finishes": {soft(engine.End{}),
			result.StatusExited, result.FaultNone, 0, 0, result.DeadlineSoft, "The program exited with 0." + asked},
		"fails": {soft(engine.End{ExitCode: 3}),
			result.StatusExited, result.FaultProgram, 3, 0, result.DeadlineSoft, "The program exited with 3." + asked},
		"exits with 143": {soft(engine.End{ExitCode: 143}),
			result.StatusExited, result.FaultProgram, 143, 0, result.DeadlineSoft, "The program exited with 143." + asked},
		"crashes": {soft(engine.End{Signal: 11}),
			result.StatusSignaled, result.FaultProgram, 139, 11, result.DeadlineSoft, "The program was ended by signal 11 (SIGSEGV)." + asked},
		"has no handler": {soft(engine.End{Signal: 15}), result.StatusTimedOut, result.FaultProgram, -1, 15, result.DeadlineSoft,
			"The program was asked to finish by SIGTERM after 50s, and ended by that signal: it does not handle it."},
		"dies of SIGTERM before it is asked": {Evidence{Accepted: true, End: engine.End{Reported: true, Signal: 15}, SoftSignal: 15},
			result.StatusSignaled, result.FaultProgram, 143, 15, result.DeadlineNone, "The program was ended by signal 15 (SIGTERM)."},
		"goes on": {soft(engine.End{Signal: 15, Cause: engine.ByDeadline}), result.StatusTimedOut, result.FaultProgram, -1, 15, result.DeadlineHard,
			"The program was stopped at its time limit." + asked},
		"goes on, and exits 0 at the limit": {soft(engine.End{Cause: engine.ByDeadline}), result.StatusTimedOut, result.FaultProgram, -1, 0, result.DeadlineHard,
			"The program was stopped at its time limit." + asked},
		"ignores both": {soft(engine.End{Signal: 9, Cause: engine.ByDeadline, Escalated: true}), result.StatusTimedOut, result.FaultProgram, -1, 9, result.DeadlineHard,
			"The program was stopped at its time limit. It did not end on SIGTERM and was killed." + asked},
		"no soft signal": {Evidence{Accepted: true, End: engine.End{Reported: true, Signal: 15, Cause: engine.ByDeadline}},
			result.StatusTimedOut, result.FaultProgram, -1, 15, result.DeadlineHard, "The program was stopped at its time limit."},
		"without a report": {Evidence{Accepted: true, End: engine.End{ExitCode: 137}, Stop: StopTimeout, SoftSignal: 15},
			result.StatusTimedOut, result.FaultProgram, -1, 9, result.DeadlineHard, "The program was stopped at its time limit. It did not end on SIGTERM and was killed."},
		"memory": {soft(engine.End{Signal: 9, OOMKilled: true}), result.StatusOutOfMemory, result.FaultProgram, 137, 9, result.DeadlineNone,
			"The kernel killed the program at its memory limit." + asked},
		"canceled": {stopped(soft(engine.End{Signal: 15}), StopCanceled), result.StatusCanceled, result.FaultOperator, 143, 15, result.DeadlineNone,
			"The caller canceled the run." + asked},
		"disk limit": {stopped(soft(engine.End{}), StopDiskLimit), result.StatusDiskLimit, result.FaultProgram, 0, 0, result.DeadlineNone,
			"The program was stopped for writing more to ./final than its disk limit." + asked},
		"somebody else": {soft(engine.End{Signal: 15, Cause: engine.BySignal, Foreign: []string{"SIGTERM"}}),
			result.StatusSignaled, result.FaultOperator, 143, 15, result.DeadlineNone,
			"Somebody else stopped the program: SIGTERM was sent through the engine, and not by us." + asked},
		"engine lost": {Evidence{Lost: ErrNoExit, SoftSignal: 15, End: engine.End{SoftAfter: time.Second}},
			result.StatusEngineLost, result.FaultEnvironment, -1, 0, result.DeadlineNone, "The engine was lost before it reported how the program ended."},
	} {
		t.Run(name, func(t *testing.T) {
			v := Decide(test.facts)
			require.Equal(t, test.status.String(), v.Status.String())
			require.Equal(t, test.fault.String(), v.Fault.String())
			require.Equal(t, test.code, v.ExitCode)
			require.Equal(t, test.signal, v.Signal)
			require.Equal(t, test.deadline, v.Deadline)
			require.Equal(t, test.explanation, v.Explanation)
			itself := v.Status == result.StatusExited || v.Status == result.StatusSignaled && v.Fault == result.FaultProgram
			require.Equal(t, !itself, v.Unfinished)
		})
	}
}
