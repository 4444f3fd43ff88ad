package sandbox

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
)

func TestDecide(t *testing.T) {
	gone := errors.New("gone")
	with := func(end engine.End, change []func(*facts)) facts {
		f := facts{accepted: true, end: end}
		for _, c := range change {
			c(&f)
		}
		return f
	}
	exited := func(code int, change ...func(*facts)) facts {
		return with(engine.End{Reported: true, ExitCode: code}, change)
	}
	died := func(signal int, change ...func(*facts)) facts {
		return with(engine.End{Reported: true, Signal: signal}, change)
	}
	silent := func(change ...func(*facts)) facts {
		return with(engine.End{ExitCode: 137}, change)
	}
	failed := func(stage string, errno syscall.Errno) facts {
		return with(engine.End{Reported: true, Launch: &engine.LaunchError{Stage: stage, Errno: errno}}, nil)
	}
	oom := func(f *facts) { f.end.OOMKilled = true }
	deadline := func(f *facts) { f.end.Cause = engine.ByDeadline }
	killed := func(f *facts) { f.end.Escalated = true }
	stop := func(reason stopReason) func(*facts) {
		return func(f *facts) {
			f.stop, f.signals, f.end.Cause = reason, []engine.Signal{engine.Stop}, engine.BySignal
		}
	}
	asked := func(f *facts) { f.end.Cause, f.end.Foreign = engine.BySignal, []string{"15"} }
	foreign := func(signals ...string) func(*facts) { return func(f *facts) { f.end.Foreign = signals } }
	goes := func(f *facts) { f.engineGone = true }
	away := func(f *facts) { f.end.Interrupted = true }
	for name, test := range map[string]struct {
		facts        facts
		status       result.Status
		fault        result.Fault
		code, signal int
	}{
		"exit 0":                   {exited(0), result.StatusExited, result.FaultNone, 0, 0},
		"exit 1":                   {exited(1), result.StatusExited, result.FaultProgram, 1, 0},
		"exit 124 is its own":      {exited(124), result.StatusExited, result.FaultProgram, 124, 0},
		"exit 127 is its own":      {exited(127), result.StatusExited, result.FaultProgram, 127, 0},
		"exit 137 is not a signal": {exited(137), result.StatusExited, result.FaultProgram, 137, 0},
		"exit 139 is not a crash":  {exited(139), result.StatusExited, result.FaultProgram, 139, 0},
		"exit 143 is not a stop":   {exited(143), result.StatusExited, result.FaultProgram, 143, 0},
		"exit 255":                 {exited(255), result.StatusExited, result.FaultProgram, 255, 0},
		"SIGSEGV":                  {died(11), result.StatusSignaled, result.FaultProgram, 139, 11},
		"SIGKILL without a cause":  {died(9), result.StatusSignaled, result.FaultProgram, 137, 9},
		"SIGTERM to itself":        {died(15), result.StatusSignaled, result.FaultProgram, 143, 15},

		"memory":                      {died(9, oom), result.StatusOutOfMemory, result.FaultProgram, 137, 9},
		"a child died for memory":     {exited(0, oom), result.StatusExited, result.FaultNone, 0, 0},
		"exit 137 after such a child": {exited(137, oom), result.StatusExited, result.FaultProgram, 137, 0},
		"memory, then its own crash":  {died(6, oom), result.StatusSignaled, result.FaultProgram, 134, 6},

		"time limit":                  {died(15, deadline), result.StatusTimedOut, result.FaultProgram, -1, 15},
		"time limit, exits 0":         {exited(0, deadline), result.StatusTimedOut, result.FaultProgram, -1, 0},
		"time limit, killed":          {died(9, deadline, killed), result.StatusTimedOut, result.FaultProgram, -1, 9},
		"time limit wins over memory": {died(9, deadline, killed, oom), result.StatusTimedOut, result.FaultProgram, -1, 9},
		"time limit kept by evalbox":  {died(9, stop(stopTimeout)), result.StatusTimedOut, result.FaultProgram, -1, 9},
		"... with the container":      {silent(stop(stopTimeout)), result.StatusTimedOut, result.FaultProgram, -1, 9},
		"canceled":                    {died(15, stop(stopCanceled)), result.StatusCanceled, result.FaultOperator, 143, 15},
		"canceled, exits 0":           {exited(0, stop(stopCanceled)), result.StatusCanceled, result.FaultOperator, 0, 0},
		"canceled, then its limit":    {died(15, stop(stopCanceled), deadline), result.StatusCanceled, result.FaultOperator, 143, 15},
		"output limit":                {died(15, stop(stopOutputLimit)), result.StatusOutputLimit, result.FaultProgram, 143, 15},
		"disk limit":                  {died(9, stop(stopDiskLimit), killed), result.StatusDiskLimit, result.FaultProgram, 137, 9},
		"disk full":                   {died(15, stop(stopDiskFull)), result.StatusDiskLimit, result.FaultEnvironment, 143, 15},

		"stopped by somebody":       {died(15, asked), result.StatusSignaled, result.FaultOperator, 143, 15},
		"stopped, then exits 0":     {exited(0, asked), result.StatusSignaled, result.FaultOperator, 143, 15},
		"stopped, then killed":      {died(9, asked, killed), result.StatusSignaled, result.FaultOperator, 137, 9},
		"a signal that did nothing": {exited(0, foreign("10")), result.StatusExited, result.FaultNone, 0, 0},
		"crashed before the signal": {died(11, foreign("15")), result.StatusSignaled, result.FaultProgram, 139, 11},
		"the engine stopped it":     {died(15, asked, goes), result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"stopped during an outage":  {died(15, asked, away), result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"ended as the engine went":  {exited(3, goes), result.StatusExited, result.FaultProgram, 3, 0},
		"ended during an outage":    {exited(3, away), result.StatusExited, result.FaultProgram, 3, 0},

		"init killed":                  {silent(), result.StatusSignaled, result.FaultProgram, 137, 9},
		"init killed for memory":       {silent(oom), result.StatusOutOfMemory, result.FaultProgram, 137, 9},
		"init killed by somebody":      {silent(foreign("9")), result.StatusEngineLost, result.FaultOperator, -1, 0},
		"init killed, sender unknown":  {silent(func(f *facts) { f.end.ForeignErr = gone }), result.StatusEngineLost, result.FaultOperator, -1, 0},
		"init killed by the engine":    {silent(foreign("9"), goes), result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"init killed during an outage": {silent(away), result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"init killed while canceling":  {silent(stop(stopCanceled)), result.StatusCanceled, result.FaultOperator, 137, 0},
		"an end without any report":    {facts{accepted: true}, result.StatusSignaled, result.FaultProgram, 137, 9},

		"not found":           {failed(engine.StageExec, syscall.ENOENT), result.StatusStartFailed, result.FaultOperator, 127, 0},
		"below a file":        {failed(engine.StageExec, syscall.ENOTDIR), result.StatusStartFailed, result.FaultOperator, 127, 0},
		"not executable":      {failed(engine.StageExec, syscall.EACCES), result.StatusStartFailed, result.FaultOperator, 126, 0},
		"no memory for it":    {failed(engine.StageExec, syscall.ENOMEM), result.StatusStartFailed, result.FaultOperator, 126, 0},
		"no folder":           {failed("chdir", syscall.ENOENT), result.StatusStartFailed, result.FaultEnvironment, -1, 0},
		"no way to the proxy": {failed("relay", syscall.EADDRINUSE), result.StatusStartFailed, result.FaultEnvironment, -1, 0},

		"no answer at all":            {facts{}, result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"... until its time limit":    {facts{stop: stopTimeout}, result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"the answer alone was lost":   {facts{end: engine.End{Reported: true, ExitCode: 3}}, result.StatusExited, result.FaultProgram, 3, 0},
		"start failed":                {facts{startError: gone}, result.StatusStartFailed, result.FaultEnvironment, -1, 0},
		"engine lost":                 {facts{lost: gone}, result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"engine lost after the limit": {facts{lost: gone, stop: stopTimeout}, result.StatusEngineLost, result.FaultEnvironment, -1, 0},
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

// TestAnEndBeforeOurLimitIsItsOwn: a stop that evalbox requested because no end had been
// reported did not end a program that had already ended by itself.
func TestAnEndBeforeOurLimitIsItsOwn(t *testing.T) {
	for _, end := range []engine.End{{Reported: true, ExitCode: 3}, {Reported: true, Signal: 11}} {
		v := decide(facts{accepted: true, end: end, stop: stopTimeout, signals: []engine.Signal{engine.Kill}})
		require.NotEqual(t, result.StatusTimedOut, v.status)
		require.Equal(t, exitCode(end), v.exitCode)
	}
}

// TestDecideIsTotal tries every end with every set of facts. There is always exactly one
// cause; memory is never claimed without evidence, nor a time limit that was not reached;
// and a program that was executed is never reported as not executed.
func TestDecideIsTotal(t *testing.T) {
	gone := errors.New("gone")
	ends := []engine.End{{ExitCode: 137}, {ExitCode: 125}, {ExitCode: 0}}
	for code := range 256 {
		ends = append(ends, engine.End{Reported: true, ExitCode: code})
	}
	for signal := 1; signal <= 64; signal++ {
		ends = append(ends, engine.End{Reported: true, Signal: signal})
	}
	for _, stage := range []string{"stdin", "rlimit", "chdir", "filter", "relay", engine.StageExec, "oom score", "fork"} {
		for _, errno := range []syscall.Errno{syscall.ENOENT, syscall.EACCES, syscall.EPERM} {
			ends = append(ends, engine.End{Reported: true, Launch: &engine.LaunchError{Stage: stage, Errno: errno}})
		}
	}
	for _, end := range ends {
		for _, cause := range []engine.Cause{engine.ByItself, engine.ByDeadline, engine.BySignal} {
			for stop := stopNone; stop <= stopUnwatched; stop++ {
				for bits := range 1 << 7 {
					f := facts{accepted: true, end: end, stop: stop, engineGone: bits&1 != 0}
					f.end.Cause, f.end.OOMKilled, f.end.Interrupted = cause, bits&2 != 0, bits&4 != 0
					f.end.Escalated = bits&8 != 0
					if bits&16 != 0 {
						f.end.Foreign = []string{"15"}
					}
					if bits&32 != 0 {
						f.end.ForeignErr = gone
					}
					if bits&64 != 0 {
						f.lost = gone
					}
					requireOneCause(t, f)
				}
			}
		}
	}
	requireOneCause(t, facts{startError: gone})
	requireOneCause(t, facts{})
}

func requireOneCause(t *testing.T, f facts) {
	t.Helper()
	v, end := decide(f), f.end
	wrong := ""
	struck := end.Cause == engine.ByDeadline || f.stop == stopTimeout
	switch {
	case v.status == 0 || v.fault == 0 || v.explanation == "":
		wrong = "is incomplete"
	case (v.status == result.StatusEngineLost) != (v.exitCode == -1 && v.err != nil):
		wrong = "an unknown end must have a reason and no code"
	case v.status == result.StatusOutOfMemory && !end.OOMKilled:
		wrong = "claims memory without evidence"
	case v.status == result.StatusTimedOut && (!struck || v.exitCode != -1):
		wrong = "claims a time limit that was not reached"
	case v.status == result.StatusStartFailed && f.startError == nil && end.Launch == nil:
		wrong = "claims that a program was not executed"
	case (v.status == result.StatusStartFailed) != (f.startError != nil || end.Launch != nil && f.lost == nil):
		wrong = "does not report that nothing was executed"
	case f.startError == nil && f.lost != nil && v.status != result.StatusEngineLost:
		wrong = "claims to know the end of a lost run"
	case v.status == result.StatusExited && (!end.Reported || end.Signal != 0 || v.exitCode != end.ExitCode):
		wrong = "is not an exit"
	case v.status == result.StatusExited && (v.fault == result.FaultNone) != (end.ExitCode == 0):
		wrong = "blames the wrong party for an exit"
	case !end.Reported && f.startError == nil && f.stop == stopNone && !struck && v.fault == result.FaultNone:
		wrong = "blames nobody without a report"
	}
	if wrong != "" { // there are too many cases for one call each
		require.Fail(t, wrong, "%+v\n%+v", f, v)
	}
}
