package outcome

import (
	"errors"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
)

func TestDecide(t *testing.T) {
	gone := errors.New("gone")
	with := func(end engine.End, change []func(*Evidence)) Evidence {
		f := Evidence{Accepted: true, End: end}
		for _, c := range change {
			c(&f)
		}
		return f
	}
	exited := func(code int, change ...func(*Evidence)) Evidence {
		return with(engine.End{Reported: true, ExitCode: code}, change)
	}
	died := func(signal int, change ...func(*Evidence)) Evidence {
		return with(engine.End{Reported: true, Signal: signal}, change)
	}
	silent := func(change ...func(*Evidence)) Evidence {
		return with(engine.End{ExitCode: 137}, change)
	}
	failed := func(stage string, errno syscall.Errno) Evidence {
		return with(engine.End{Reported: true, Launch: &engine.LaunchError{Stage: stage, Errno: errno}}, nil)
	}
	oom := func(f *Evidence) { f.End.OOMKilled = true }
	fileLimit := func(f *Evidence) { f.FileLimit = true }
	diskFull := func(f *Evidence) { f.DiskFull = true }
	deadline := func(f *Evidence) { f.End.Cause = engine.ByDeadline }
	orphaned := func(f *Evidence) { f.End.Cause = engine.ByOrphanLimit }
	killed := func(f *Evidence) { f.End.Escalated = true }
	whole := func(f *Evidence) { f.End.Complete = true }
	restart := func(f *Evidence) { f.End.Restarted = true }
	stop := func(reason StopReason) func(*Evidence) {
		return func(f *Evidence) {
			f.Stop, f.Requested, f.End.Cause = reason, []engine.Signal{engine.Stop}, engine.BySignal
		}
	}
	asked := func(f *Evidence) { f.End.Cause, f.End.Foreign = engine.BySignal, []string{"15"} }
	foreign := func(signals ...string) func(*Evidence) { return func(f *Evidence) { f.End.Foreign = signals } }
	goes := func(f *Evidence) { f.EngineGone = true }
	away := func(f *Evidence) { f.End.Interrupted = true }
	// The engine's own signals are not foreign; whether it sent one may not be known any more.
	unsure := func(f *Evidence) { f.End.Interrupted, f.End.Cause, f.End.ForeignErr = true, engine.BySignal, gone }
	took := func(seconds int) func(*Evidence) {
		return func(f *Evidence) { f.Limit, f.End.Duration = 15*time.Second, time.Duration(seconds)*time.Second }
	}
	// The controller's own timer fires when it has not heard of an end.
	timer := func(f *Evidence) { f.Stop, f.Requested = StopTimeout, []engine.Signal{engine.Kill, engine.Abort} }
	frozen := func(f *Evidence) { f.Limit, f.End.Frozen, f.End.Paused = 15*time.Second, 5*time.Second, true }
	stuck := func(f *Evidence) { f.Limit, f.End.Frozen = 15*time.Second, 5*time.Second }
	hiccup := func(f *Evidence) { f.Limit, f.End.Frozen = time.Hour, 2*time.Second }
	lacks := func(verdict result.Share) func(*Evidence) {
		return func(f *Evidence) { f.Shortage = &result.Contention{Verdict: verdict} }
	}
	for name, test := range map[string]struct {
		facts        Evidence
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

		"SIGXFSZ by its own limit":    {died(25), result.StatusSignaled, result.FaultProgram, 153, 25},
		"SIGXFSZ by the disk limit":   {died(25, fileLimit), result.StatusDiskLimit, result.FaultProgram, 153, 25},
		"exit 1 at the disk limit":    {exited(1, diskFull), result.StatusDiskLimit, result.FaultProgram, 1, 0},
		"exit 0 at the disk limit":    {exited(0, diskFull), result.StatusExited, result.FaultNone, 0, 0},
		"SIGBUS at the disk limit":    {died(7, diskFull), result.StatusDiskLimit, result.FaultProgram, 135, 7},
		"memory wins over the disk":   {died(9, diskFull, oom), result.StatusOutOfMemory, result.FaultProgram, 137, 9},
		"time wins over the disk":     {died(15, diskFull, deadline), result.StatusTimedOut, result.FaultProgram, -1, 15},
		"exit 153 is not SIGXFSZ":     {exited(153, fileLimit), result.StatusExited, result.FaultProgram, 153, 0},
		"SIGSEGV under that limit":    {died(11, fileLimit), result.StatusSignaled, result.FaultProgram, 139, 11},
		"time limit wins over files":  {died(25, fileLimit, deadline), result.StatusTimedOut, result.FaultProgram, -1, 25},
		"SIGXFSZ sent by an operator": {died(25, fileLimit, asked), result.StatusSignaled, result.FaultOperator, 153, 25},

		"memory":                      {died(9, oom), result.StatusOutOfMemory, result.FaultProgram, 137, 9},
		"a child died for memory":     {exited(0, oom), result.StatusExited, result.FaultNone, 0, 0},
		"exit 137 after such a child": {exited(137, oom), result.StatusExited, result.FaultProgram, 137, 0},
		"memory, then its own crash":  {died(6, oom), result.StatusSignaled, result.FaultProgram, 134, 6},

		"time limit":                  {died(15, deadline), result.StatusTimedOut, result.FaultProgram, -1, 15},
		"time limit, exits 0":         {exited(0, deadline), result.StatusTimedOut, result.FaultProgram, -1, 0},
		"time limit, killed":          {died(9, deadline, killed), result.StatusTimedOut, result.FaultProgram, -1, 9},
		"time limit wins over memory": {died(9, deadline, killed, oom), result.StatusTimedOut, result.FaultProgram, -1, 9},
		"time limit kept by evalbox":  {died(9, stop(StopTimeout)), result.StatusTimedOut, result.FaultProgram, -1, 9},
		"... with the container":      {silent(stop(StopTimeout)), result.StatusTimedOut, result.FaultProgram, -1, 9},
		"canceled":                    {died(15, stop(StopCanceled)), result.StatusCanceled, result.FaultOperator, 143, 15},
		"canceled, exits 0":           {exited(0, stop(StopCanceled)), result.StatusCanceled, result.FaultOperator, 0, 0},
		"canceled, then its limit":    {died(15, stop(StopCanceled), deadline), result.StatusCanceled, result.FaultOperator, 143, 15},
		"output limit":                {died(15, stop(StopOutputLimit)), result.StatusOutputLimit, result.FaultProgram, 143, 15},
		"disk limit":                  {died(9, stop(StopDiskLimit), killed), result.StatusDiskLimit, result.FaultProgram, 137, 9},
		"no controller for too long":  {died(9, orphaned, killed), result.StatusCanceled, result.FaultOperator, 137, 9},
		"... after it was canceled":   {died(15, stop(StopCanceled), orphaned), result.StatusCanceled, result.FaultOperator, 143, 15},
		"disk full":                   {died(15, stop(StopDiskFull)), result.StatusDiskLimit, result.FaultEnvironment, 143, 15},

		"stopped by somebody":       {died(15, asked), result.StatusSignaled, result.FaultOperator, 143, 15},
		"stopped, then exits 0":     {exited(0, asked), result.StatusSignaled, result.FaultOperator, 143, 15},
		"stopped, then killed":      {died(9, asked, killed), result.StatusSignaled, result.FaultOperator, 137, 9},
		"a signal that did nothing": {exited(0, foreign("10")), result.StatusExited, result.FaultNone, 0, 0},
		"crashed before the signal": {died(11, foreign("15")), result.StatusSignaled, result.FaultProgram, 139, 11},
		"the engine stopped it":     {died(15, asked, goes), result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"stopped during an outage":  {died(15, asked, away), result.StatusSignaled, result.FaultOperator, 143, 15},
		"... perhaps by the engine": {died(15, unsure), result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"ended as the engine went":  {exited(3, goes), result.StatusExited, result.FaultProgram, 3, 0},
		"ended during an outage":    {exited(3, away, whole), result.StatusExited, result.FaultProgram, 3, 0},
		"... well":                  {exited(0, away, whole), result.StatusExited, result.FaultNone, 0, 0},
		"... with lost output":      {exited(0, away), result.StatusExited, result.FaultEnvironment, 0, 0},
		"... badly":                 {exited(3, away), result.StatusExited, result.FaultEnvironment, 3, 0},
		"... for memory":            {died(9, oom, away), result.StatusOutOfMemory, result.FaultProgram, 137, 9},
		"... at its limit":          {exited(0, away, deadline), result.StatusTimedOut, result.FaultProgram, -1, 0},
		"handles a foreign SIGTERM": {exited(0, asked, away, whole), result.StatusSignaled, result.FaultOperator, 143, 15},
		"... perhaps the engine's":  {exited(0, unsure, whole), result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"restarted by somebody":     {exited(0, asked, restart), result.StatusSignaled, result.FaultOperator, 143, 15},
		"restarted and killed":      {died(9, asked, restart), result.StatusSignaled, result.FaultOperator, 137, 9},

		"init killed":                {silent(), result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"restarted at once":          {silent(restart, foreign("9")), result.StatusEngineLost, result.FaultOperator, -1, 0},
		"0 without a report":         {with(engine.End{}, nil), result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"... after a foreign signal": {with(engine.End{Foreign: []string{"15"}}, nil), result.StatusEngineLost, result.FaultOperator, -1, 0},
		"... after an outage":        {with(engine.End{Interrupted: true}, nil), result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"255 after an outage":        {with(engine.End{ExitCode: 255, Interrupted: true}, nil), result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"7 without a report":         {with(engine.End{ExitCode: 7}, nil), result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"killed before its job": {Evidence{End: engine.End{ExitCode: 137, NoJob: true, Foreign: []string{"SIGKILL"}}},
			result.StatusStartFailed, result.FaultOperator, -1, 0},
		"the engine stops before the job": {Evidence{EngineGone: true, End: engine.End{ExitCode: 143, NoJob: true, Interrupted: true, Foreign: []string{"SIGTERM"}}},
			result.StatusStartFailed, result.FaultEnvironment, -1, 0},
		"killed, perhaps before its job": {Evidence{End: engine.End{ExitCode: 137, Foreign: []string{"SIGKILL"}}},
			result.StatusEngineLost, result.FaultOperator, -1, 0},
		"the job never arrived":        {Evidence{End: engine.End{ExitCode: 125, NoJob: true}}, result.StatusStartFailed, result.FaultEnvironment, -1, 0},
		"init killed for memory":       {silent(oom), result.StatusOutOfMemory, result.FaultProgram, 137, 9},
		"init killed by somebody":      {silent(foreign("9")), result.StatusEngineLost, result.FaultOperator, -1, 0},
		"init killed, sender unknown":  {silent(func(f *Evidence) { f.End.ForeignErr = gone }), result.StatusEngineLost, result.FaultOperator, -1, 0},
		"init killed by the engine":    {silent(foreign("9"), goes), result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"init killed during an outage": {silent(away), result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"init killed while canceling":  {silent(stop(StopCanceled)), result.StatusCanceled, result.FaultOperator, 137, 0},

		"timer after its own end":          {exited(3, timer, away, whole, took(4)), result.StatusExited, result.FaultProgram, 3, 0},
		"... after a foreign SIGTERM":      {died(15, asked, timer, away, took(4)), result.StatusSignaled, result.FaultOperator, 143, 15},
		"... of which nothing is known":    {died(15, unsure, timer, took(4)), result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"... that it handled at the limit": {exited(0, asked, timer, away, whole, took(16)), result.StatusSignaled, result.FaultOperator, 143, 15},
		"... after a foreign SIGKILL":      {silent(foreign("SIGKILL"), timer, away, took(4)), result.StatusEngineLost, result.FaultOperator, -1, 0},
		"... at an unknown time":           {silent(foreign("SIGKILL"), timer, away, took(40)), result.StatusEngineLost, result.FaultOperator, -1, 0},
		"... after an end in an outage":    {silent(timer, away, took(40)), result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"... after init was killed":        {silent(timer, took(4)), result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"... and init had kept the limit":  {died(15, deadline, timer, away, took(15)), result.StatusTimedOut, result.FaultProgram, -1, 15},
		"... and init had to be killed":    {silent(timer, took(30)), result.StatusTimedOut, result.FaultProgram, -1, 9},
		"... and init obeyed us":           {died(9, timer, took(30), func(f *Evidence) { f.End.Cause = engine.BySignal }), result.StatusTimedOut, result.FaultProgram, -1, 9},

		"frozen until its limit":      {died(15, deadline, frozen), result.StatusTimedOut, result.FaultOperator, -1, 15},
		"... and beyond":              {died(9, timer, took(30), frozen, func(f *Evidence) { f.End.Cause = engine.BySignal }), result.StatusTimedOut, result.FaultOperator, -1, 9},
		"... and killed by us":        {silent(timer, took(30), frozen), result.StatusTimedOut, result.FaultOperator, -1, 9},
		"stood still":                 {died(15, deadline, stuck), result.StatusTimedOut, result.FaultEnvironment, -1, 15},
		"frozen for a moment":         {died(15, deadline, hiccup), result.StatusTimedOut, result.FaultProgram, -1, 15},
		"frozen, then well":           {exited(0, frozen), result.StatusExited, result.FaultNone, 0, 0},
		"starved until its limit":     {died(15, deadline, lacks(result.Starved)), result.StatusTimedOut, result.FaultEnvironment, -1, 15},
		"a busy machine is no reason": {died(15, deadline, lacks(result.Busy)), result.StatusTimedOut, result.FaultProgram, -1, 15},
		"starved, then its own end":   {exited(3, lacks(result.Starved)), result.StatusExited, result.FaultProgram, 3, 0},

		"not found":           {failed(engine.StageExec, syscall.ENOENT), result.StatusStartFailed, result.FaultOperator, 127, 0},
		"below a file":        {failed(engine.StageExec, syscall.ENOTDIR), result.StatusStartFailed, result.FaultOperator, 127, 0},
		"not executable":      {failed(engine.StageExec, syscall.EACCES), result.StatusStartFailed, result.FaultOperator, 126, 0},
		"no memory for it":    {failed(engine.StageExec, syscall.ENOMEM), result.StatusStartFailed, result.FaultOperator, 126, 0},
		"no directory":        {failed("chdir", syscall.ENOENT), result.StatusStartFailed, result.FaultEnvironment, -1, 0},
		"no way to the proxy": {failed("relay", syscall.EADDRINUSE), result.StatusStartFailed, result.FaultEnvironment, -1, 0},

		"no answer at all":            {Evidence{}, result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"... until its time limit":    {Evidence{Stop: StopTimeout}, result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"the answer alone was lost":   {Evidence{End: engine.End{Reported: true, ExitCode: 3}}, result.StatusExited, result.FaultProgram, 3, 0},
		"start failed":                {Evidence{StartError: gone}, result.StatusStartFailed, result.FaultEnvironment, -1, 0},
		"engine lost":                 {Evidence{Lost: gone}, result.StatusEngineLost, result.FaultEnvironment, -1, 0},
		"engine lost after the limit": {Evidence{Lost: gone, Stop: StopTimeout}, result.StatusEngineLost, result.FaultEnvironment, -1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			v := Decide(test.facts)
			require.Equal(t, test.status.String(), v.Status.String())
			require.Equal(t, test.fault.String(), v.Fault.String())
			require.Equal(t, test.code, v.ExitCode)
			require.Equal(t, test.signal, v.Signal)
			require.NotEmpty(t, v.Explanation)
		})
	}
}

// TestAnEndBeforeOurLimitIsItsOwn: a stop that evalbox requested because no end had been
// reported did not end a program that had already ended by itself.
func TestAnEndBeforeOurLimitIsItsOwn(t *testing.T) {
	for _, end := range []engine.End{{Reported: true, ExitCode: 3}, {Reported: true, Signal: 11}} {
		v := Decide(Evidence{Accepted: true, End: end, Stop: StopTimeout, Requested: []engine.Signal{engine.Kill}})
		require.NotEqual(t, result.StatusTimedOut, v.Status)
		require.Equal(t, end.ExitStatus(), v.ExitCode)
	}
}

// TestDecideIsTotal tries every end with every set of facts. There is always exactly one
// cause; memory is never claimed without evidence, nor a time limit that was not reached;
// and a program that was executed is never reported as not executed.
func TestDecideIsTotal(t *testing.T) {
	gone := errors.New("gone")
	ends := []engine.End{{ExitCode: 137}, {ExitCode: 125}, {ExitCode: 0}}
	for _, code := range []int{0, 1, 3, 124, 125, 126, 127, 128, 130, 137, 139, 143, 153, 254, 255} {
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
			for stop := StopNone; stop <= StopOrphaned; stop++ {
				for bits := range 1 << 9 {
					f := Evidence{Accepted: true, End: end, Stop: stop, EngineGone: bits&1 != 0}
					f.End.Cause, f.End.OOMKilled, f.End.Interrupted = cause, bits&2 != 0, bits&4 != 0
					f.End.Escalated = bits&8 != 0
					if bits&16 != 0 {
						f.End.Foreign = []string{"15"}
					}
					if bits&32 != 0 {
						f.End.ForeignErr = gone
					}
					if bits&64 != 0 {
						f.Lost = gone
					}
					f.End.Complete, f.End.Restarted = bits&128 != 0, bits&256 != 0
					requireOneCause(t, f)
				}
			}
		}
	}
	requireOneCause(t, Evidence{StartError: gone})
	requireOneCause(t, Evidence{})
}

// impossible are the pairs of status and fault that no run has, by the table of package result.
var impossible = sync.OnceValues(func() (map[[2]string]bool, error) {
	text, err := os.ReadFile("../../result/testdata/conclusive.txt")
	var faults []string
	pairs := map[[2]string]bool{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#"):
		case faults == nil:
			faults = cells[1:]
		default:
			for i, cell := range cells[1:] {
				pairs[[2]string{cells[0], faults[i]}] = strings.HasPrefix(cell, "(")
			}
		}
	}
	return pairs, err
})

// exitFault is who is to blame for a program that exited.
func exitFault(end engine.End) result.Fault {
	switch {
	case end.Interrupted && !end.Complete:
		return result.FaultEnvironment
	case end.ExitCode == 0:
		return result.FaultNone
	}
	return result.FaultProgram
}

func requireOneCause(t *testing.T, f Evidence) {
	t.Helper()
	v, end := Decide(f), f.End
	pairs, err := impossible()
	require.NoError(t, err)
	no, known := pairs[[2]string{v.Status.String(), v.Fault.String()}]
	wrong := ""
	struck := end.Cause == engine.ByDeadline || f.Stop == StopTimeout
	switch {
	case v.Status == 0 || v.Fault == 0 || v.Explanation == "":
		wrong = "is incomplete"
	case (v.Status == result.StatusEngineLost) != (v.ExitCode == -1 && v.Err != nil):
		wrong = "an unknown end must have a reason and no code"
	case no || !known:
		wrong = "has a status and a fault that no run has together"
	case v.Status == result.StatusOutOfMemory && !end.OOMKilled:
		wrong = "claims memory without evidence"
	case v.Status == result.StatusTimedOut && (!struck || v.ExitCode != -1):
		wrong = "claims a time limit that was not reached"
	case v.Status == result.StatusStartFailed && f.StartError == nil && end.Launch == nil:
		wrong = "claims that a program was not executed"
	case (v.Status == result.StatusStartFailed) != (f.StartError != nil || end.Launch != nil && f.Lost == nil):
		wrong = "does not report that nothing was executed"
	case f.StartError == nil && f.Lost != nil && v.Status != result.StatusEngineLost:
		wrong = "claims to know the end of a lost run"
	case v.Status == result.StatusExited && (!end.Reported || end.Signal != 0 || v.ExitCode != end.ExitCode):
		wrong = "is not an exit"
	case v.Status == result.StatusExited && v.Fault != exitFault(end):
		wrong = "blames the wrong party for an exit"
	case !end.Reported && f.StartError == nil && f.Stop == StopNone && !struck && v.Fault == result.FaultNone:
		wrong = "blames nobody without a report"
	case !end.Reported && f.StartError == nil && f.Stop == StopNone && !struck && !end.OOMKilled && v.Fault == result.FaultProgram && end.Cause != engine.ByDeadline:
		wrong = "blames the program without a report"
	}
	if wrong != "" { // there are too many cases for one call each
		require.Fail(t, wrong, "%+v\n%+v", f, v)
	}
}

func TestBlameGPUs(t *testing.T) {
	crashed := Evidence{End: engine.End{Reported: true, ExitCode: 1}}
	aborted := Evidence{End: engine.End{Reported: true, Signal: 6}}
	hung := Evidence{End: engine.End{Reported: true, Signal: 15, Cause: engine.ByDeadline}}
	const gone = "GPU 0: nvidia-smi does not list it any more"
	for name, test := range map[string]struct {
		facts  Evidence
		lost   string
		status result.Status
		fault  result.Fault
	}{
		"a crash":                  {crashed, "", result.StatusExited, result.FaultProgram},
		"a crash, and a lost GPU":  {crashed, gone, result.StatusExited, result.FaultEnvironment},
		"an abort, and a lost GPU": {aborted, gone, result.StatusSignaled, result.FaultEnvironment},
		"an end that is well":      {Evidence{End: engine.End{Reported: true}}, gone, result.StatusExited, result.FaultNone},
		"a hang":                   {hung, "", result.StatusTimedOut, result.FaultProgram},
		"a hang, and a lost GPU":   {hung, gone, result.StatusTimedOut, result.FaultEnvironment},
		"out of memory":            {Evidence{End: engine.End{Reported: true, Signal: 9, OOMKilled: true}}, gone, result.StatusOutOfMemory, result.FaultProgram},
		"stopped at a limit":       {Evidence{End: engine.End{Reported: true, Signal: 15, Cause: engine.BySignal}, Stop: StopDiskLimit}, gone, result.StatusDiskLimit, result.FaultProgram},
		"stopped by others":        {Evidence{End: engine.End{Reported: true, Signal: 15, Cause: engine.BySignal, Foreign: []string{"15"}}}, gone, result.StatusSignaled, result.FaultOperator},
		"canceled":                 {Evidence{End: engine.End{Reported: true, Signal: 15, Cause: engine.BySignal}, Stop: StopCanceled}, gone, result.StatusCanceled, result.FaultOperator},
		"a lost engine":            {Evidence{Lost: ErrNoExit}, gone, result.StatusEngineLost, result.FaultEnvironment},
	} {
		t.Run(name, func(t *testing.T) {
			want := Decide(test.facts)
			blamed := want.Fault != test.fault
			got := want
			got.BlameGPUs(test.lost)
			require.Equal(t, test.status, got.Status)
			require.Equal(t, test.fault, got.Fault)
			if blamed {
				want.Fault = result.FaultEnvironment
				want.Warnings = append(want.Warnings, "a GPU was lost during the run: nvidia-smi after the end: "+gone)
			}
			require.Equal(t, want, got, "nothing else changes")
		})
	}
}

// TestDecideLoss checks the ends that an engine brings about by itself, with a report of init and without
// one. A request of evalbox comes first.
func TestDecideLoss(t *testing.T) {
	for loss, want := range map[engine.Loss]struct {
		status result.Status
		fault  result.Fault
		says   string
	}{
		engine.EvictedForDisk: {result.StatusDiskLimit, result.FaultProgram, "more than its disk limit"},
		engine.Evicted:        {result.StatusEngineLost, result.FaultEnvironment, "short of something"},
		engine.Preempted:      {result.StatusEngineLost, result.FaultEnvironment, "more important"},
		engine.NodeLost:       {result.StatusEngineLost, result.FaultEnvironment, "lost or shut down"},
		engine.PodDeadline:    {result.StatusEngineLost, result.FaultEnvironment, "time limit of its own"},
	} {
		for _, end := range []engine.End{{Loss: loss}, {Loss: loss, Reported: true, Signal: 15, Cause: engine.BySignal}} {
			v := Decide(Evidence{Accepted: true, End: end})
			require.Equal(t, []any{want.status, want.fault}, []any{v.Status, v.Fault}, "%+v", end)
			require.Contains(t, v.Explanation, want.says)
		}
		v := Decide(Evidence{Accepted: true, Stop: StopCanceled, End: engine.End{Loss: loss, Reported: true, Signal: 15}})
		require.Equal(t, result.StatusCanceled, v.Status)
	}
}
