package sandbox

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
)

func TestDecide(t *testing.T) {
	gone := errors.New("gone")
	exited := func(code int, change ...func(*facts)) facts {
		f := facts{exited: true, code: code}
		for _, c := range change {
			c(&f)
		}
		return f
	}
	oom := func(f *facts) { f.oomKilled = true }
	stop := func(reason stopReason, signals ...string) func(*facts) {
		return func(f *facts) { f.stop, f.signals = reason, signals }
	}
	foreign := func(signals ...string) func(*facts) { return func(f *facts) { f.foreign = signals } }
	for name, test := range map[string]struct {
		facts        facts
		status       result.Status
		fault        result.Fault
		code, signal int
	}{
		"exit 0":                                 {exited(0), result.StatusExited, result.FaultNone, 0, 0},
		"exit 1":                                 {exited(1), result.StatusExited, result.FaultProgram, 1, 0},
		"exit 124 is its own":                    {exited(124), result.StatusExited, result.FaultProgram, 124, 0},
		"exit 128":                               {exited(128), result.StatusExited, result.FaultProgram, 128, 0},
		"exit 255":                               {exited(255), result.StatusExited, result.FaultProgram, 255, 0},
		"SIGSEGV":                                {exited(139), result.StatusSignaled, result.FaultProgram, 139, 11},
		"SIGKILL without evidence is not memory": {exited(137), result.StatusSignaled, result.FaultProgram, 137, 9},
		"SIGTERM is not a time limit":            {exited(143), result.StatusSignaled, result.FaultProgram, 143, 15},
		"SIGCHLD kills nobody":                   {exited(145), result.StatusExited, result.FaultProgram, 145, 0},

		"memory":                     {exited(137, oom), result.StatusOutOfMemory, result.FaultProgram, 137, 9},
		"a child died for memory":    {exited(0, oom), result.StatusExited, result.FaultNone, 0, 0},
		"memory, then its own crash": {exited(1, oom), result.StatusExited, result.FaultProgram, 1, 0},

		"time limit":                  {exited(143, stop(stopTimeout, "SIGTERM")), result.StatusTimedOut, result.FaultProgram, -1, 15},
		"time limit, exits 0":         {exited(0, stop(stopTimeout, "SIGTERM")), result.StatusTimedOut, result.FaultProgram, -1, 0},
		"time limit, killed":          {exited(137, stop(stopTimeout, "SIGTERM", "SIGKILL")), result.StatusTimedOut, result.FaultProgram, -1, 9},
		"time limit wins over memory": {exited(137, stop(stopTimeout, "SIGTERM", "SIGKILL"), oom), result.StatusTimedOut, result.FaultProgram, -1, 9},
		"canceled":                    {exited(143, stop(stopCanceled, "SIGTERM")), result.StatusCanceled, result.FaultOperator, 143, 15},
		"canceled, exits 0":           {exited(0, stop(stopCanceled, "SIGTERM")), result.StatusCanceled, result.FaultOperator, 0, 0},
		"output limit":                {exited(143, stop(stopOutputLimit, "SIGTERM")), result.StatusOutputLimit, result.FaultProgram, 143, 15},
		"disk limit":                  {exited(137, stop(stopDiskLimit, "SIGTERM", "SIGKILL")), result.StatusDiskLimit, result.FaultProgram, 137, 9},

		"stopped by somebody":              {exited(143, foreign("15")), result.StatusSignaled, result.FaultOperator, 143, 15},
		"killed by somebody":               {exited(137, foreign("15", "9")), result.StatusSignaled, result.FaultOperator, 137, 9},
		"another signal of somebody's":     {exited(139, foreign("15")), result.StatusSignaled, result.FaultProgram, 139, 11},
		"somebody asked, it exited itself": {exited(0, foreign("15")), result.StatusExited, result.FaultNone, 0, 0},
		"the engine stopped it": {exited(143, foreign("15"), func(f *facts) { f.engineGone = true }),
			result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"the engine stopped it and told nobody": {exited(143, func(f *facts) { f.engineGone = true }),
			result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"crashed as the engine went": {exited(139, func(f *facts) { f.engineGone = true }),
			result.StatusSignaled, result.FaultProgram, 139, 11},
		"stopped while the engine was away": {exited(143, func(f *facts) { f.interrupted, f.endedAway = true, true }),
			result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"ended while the engine was away": {exited(3, func(f *facts) { f.interrupted, f.endedAway = true, true }),
			result.StatusExited, result.FaultProgram, 3, 0},
		"killed itself after the engine was back": {exited(137, func(f *facts) { f.interrupted = true }),
			result.StatusSignaled, result.FaultProgram, 137, 9},
		"crashed while the engine was away": {exited(139, func(f *facts) { f.interrupted, f.endedAway = true, true }),
			result.StatusSignaled, result.FaultProgram, 139, 11},

		"not found":      {exited(127, func(f *facts) { f.initFailed = true }), result.StatusStartFailed, result.FaultOperator, 127, 0},
		"not executable": {exited(126, func(f *facts) { f.initFailed = true }), result.StatusStartFailed, result.FaultOperator, 126, 0},
		"exit 127":       {exited(127), result.StatusExited, result.FaultProgram, 127, 0},
		"no way to the proxy": {exited(125, func(f *facts) { f.launchFailed = "the image has no socat" }),
			result.StatusStartFailed, result.FaultEnvironment, -1, 0},
		"a forged line": {exited(1, func(f *facts) { f.initFailed = true }), result.StatusExited, result.FaultProgram, 1, 0},

		"start failed":                {facts{startError: gone}, result.StatusStartFailed, result.FaultEnvironment, -1, 0},
		"engine lost":                 {facts{lost: gone}, result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"engine lost after the limit": {facts{lost: gone, stop: stopTimeout}, result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"nothing known":               {facts{}, result.StatusEngineLost, result.FaultEnvironment, -1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := decide(test.facts)
			require.Equal(t, test.status.String(), v.status.String())
			require.Equal(t, test.fault.String(), v.fault.String())
			require.Equal(t, test.code, v.exitCode)
			require.Equal(t, test.signal, v.signal)
			require.NotEmpty(t, v.explanation)
		})
	}
}

// TestDecideIsTotal tries every exit code with every set of facts: there is
// always exactly one cause, and memory is never claimed without evidence.
func TestDecideIsTotal(t *testing.T) {
	for code := range 256 {
		for bits := range 1 << 6 {
			f := facts{exited: true, code: code, oomKilled: bits&1 != 0, interrupted: bits&2 != 0, endedAway: bits&2 != 0,
				engineGone: bits&4 != 0, initFailed: bits&8 != 0}
			if bits&16 != 0 {
				f.foreign = []string{"15"}
			}
			if bits&32 != 0 {
				f.stop, f.signals = stopTimeout, []string{"SIGTERM"}
			}
			v := decide(f)
			require.NotZero(t, v.status)
			require.NotZero(t, v.fault)
			require.NotEmpty(t, v.explanation)
			if v.status == result.StatusOutOfMemory {
				require.True(t, f.oomKilled)
			}
			if f.stop == stopTimeout {
				require.Equal(t, result.StatusTimedOut, v.status)
				require.Equal(t, -1, v.exitCode)
			} else {
				require.NotEqual(t, result.StatusTimedOut, v.status)
			}
		}
	}
}

func TestInitFailureIsRecognised(t *testing.T) {
	line := "[FATAL tini (7)] exec nosuch failed: No such file or directory\n"
	require.True(t, isInitFailure("nosuch", 0, line))
	require.False(t, isInitFailure("python3", 0, line), "another command")
	require.False(t, isInitFailure("nosuch", 1, line), "the program printed")
	require.False(t, isInitFailure("nosuch", 0, line+"more\n"))
	require.False(t, isInitFailure("nosuch", 0, "Traceback\n"))
	require.False(t, isInitFailure("nosuch", 0, ""))
}
