package sandbox

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/result"
)

// Why the end of a program could not be learned.
var (
	errNoExit       = fmt.Errorf("%w: it did not report the end of the program", ErrEngineUnavailable)
	errNeverStarted = fmt.Errorf("%w: it was lost before it started the program", ErrEngineUnavailable)
)

// facts is everything that is known about how a run ended.
type facts struct {
	// startError is why the engine did not start the container.
	startError error
	// noCommand is 126 or 127 when that was because of the command, which the engine
	// runs itself in a container without an init.
	noCommand int
	// lost is why the end could not be learned.
	lost error
	// interrupted says that the engine was away for a while, or that its
	// stream had to be cut.
	interrupted bool
	// endedAway says that the program may have ended while the engine was away.
	endedAway bool
	// stop is why we ended the run, and signals what we sent to do so.
	stop    stopReason
	signals []string
	// exited and code are the end as the engine reported it.
	exited bool
	code   int
	// oomKilled is the engine's evidence, or the kernel's, that a process of
	// the run was killed for memory.
	oomKilled bool
	// foreign are signals that somebody else sent through the engine.
	foreign []string
	// engineGone says that the engine stopped answering right after the end.
	engineGone bool
	// initFailed says that the init inside the container could not run the
	// command; its line is then all that stderr holds.
	initFailed bool
	// launchFailed is why a launcher did not run the command.
	launchFailed string
}

// verdict is the one cause of a run's end.
type verdict struct {
	status      result.Status
	fault       result.Fault
	exitCode    int
	signal      int
	explanation string
	warnings    []string
}

// decide finds the one cause from the facts, in a fixed order: what failed of
// ours, what we did, what the kernel did for memory, what others did, and only
// then what the exit code says. It never infers a cause from a number alone: 137
// is not "out of memory", 143 is not "timed out".
func decide(f facts) verdict {
	switch {
	case f.noCommand != 0:
		return decideNoCommand(f.noCommand)
	case f.startError != nil:
		return verdict{status: result.StatusStartFailed, fault: result.FaultEnvironment, exitCode: -1,
			explanation: "The engine could not start the container: " + f.startError.Error() + "."}
	case f.lost != nil || !f.exited:
		return verdict{status: result.StatusEngineLost, fault: result.FaultEnvironment, exitCode: -1,
			explanation: "The engine was lost before it told how the program ended."}
	case f.stop != stopNone:
		return decideStopped(f)
	case f.oomKilled && f.code == 137:
		return verdict{status: result.StatusOutOfMemory, fault: result.FaultProgram, exitCode: 137, signal: 9,
			explanation: "The kernel killed the program at its memory limit."}
	}
	v := decideForeign(f)
	if v.status == 0 {
		v = decideExit(f)
	}
	if f.oomKilled {
		v.warnings = append(v.warnings,
			"a process of the run was killed for memory, but the main process ended by itself")
	}
	if len(f.foreign) > 0 && v.fault != result.FaultOperator && v.status != result.StatusEngineLost {
		v.warnings = append(v.warnings, "somebody else sent the program a signal through the engine ("+
			strings.Join(f.foreign, ", ")+"); it may have ended because of that")
	}
	return v
}

// decideStopped is for runs that we ended. The exit code says only how the
// program took it.
func decideStopped(f facts) verdict {
	v := verdict{fault: result.FaultProgram, exitCode: f.code}
	switch f.stop {
	case stopTimeout:
		v.status, v.exitCode = result.StatusTimedOut, -1
		v.explanation = "The program was stopped at its time limit."
	case stopOutputLimit:
		v.status = result.StatusOutputLimit
		v.explanation = "The program was stopped for printing more than its output limit."
	case stopDiskLimit:
		v.status = result.StatusDiskLimit
		v.explanation = "The program was stopped for writing more to ./final than its disk limit."
	case stopTooDeep:
		v.status = result.StatusDiskLimit
		v.explanation = "The program was stopped because ./final held folders so deep that their size could not be told."
	case stopDiskFull:
		v.status, v.fault = result.StatusDiskLimit, result.FaultEnvironment
		v.explanation = "The program was stopped because the disk of ./final was nearly full."
	case stopUnwatched:
		v.status, v.fault = result.StatusDiskLimit, result.FaultEnvironment
		v.explanation = "The program was stopped because the disk of ./final could not be watched any more."
	case stopCanceled, stopNone:
		v.status, v.fault = result.StatusCanceled, result.FaultOperator
		v.explanation = "The caller canceled the run."
	}
	if n := signalOf(f.code); n > 0 && v.status != result.StatusTimedOut {
		v.signal = n
	}
	switch {
	case slices.Contains(f.signals, "SIGKILL"):
		v.explanation += " It did not end on SIGTERM and was killed."
		if v.status == result.StatusTimedOut {
			v.signal = 9
		}
	case v.status == result.StatusTimedOut && f.code == 143:
		v.signal = 15
	}
	if f.oomKilled {
		v.warnings = append(v.warnings, "a process of the run had been killed for memory before it was stopped")
	}
	return v
}

// decideForeign is for ends that somebody brought about through the engine; the
// exit code alone would blame the program. It returns the zero verdict when
// nobody did.
func decideForeign(f facts) verdict {
	n := signalOf(f.code)
	told := slices.ContainsFunc(f.foreign, func(s string) bool { return sameSignal(s, n) })
	// An engine that went away may have taken the events with it; then only the
	// two signals that engines send count.
	away := (f.engineGone || f.endedAway) && (n == 9 || n == 15)
	if n == 0 || !told && !away {
		return verdict{}
	}
	v := verdict{fault: result.FaultOperator, exitCode: f.code, signal: n, status: result.StatusSignaled,
		explanation: fmt.Sprintf("Somebody else stopped the program: %s was sent through the engine, and not by us.", result.SignalName(n))}
	if away {
		v.status, v.fault, v.exitCode, v.signal = result.StatusEngineLost, result.FaultEnvironment, -1, 0
		v.explanation = "The engine stopped, and stopped the program with it."
	}
	return v
}

// sameSignal compares a signal of an engine's event, a number or a name, with a
// number.
func sameSignal(text string, n int) bool {
	return text == fmt.Sprint(n) || strings.TrimPrefix(text, "SIG") == strings.TrimPrefix(result.SignalName(n), "SIG")
}

// decideExit is for programs that ended by themselves.
func decideExit(f facts) verdict {
	if f.initFailed && (f.code == 126 || f.code == 127) {
		return decideNoCommand(f.code)
	}
	if f.launchFailed != "" {
		return verdict{status: result.StatusStartFailed, fault: result.FaultEnvironment, exitCode: -1,
			explanation: "The program was not started: " + f.launchFailed + "."}
	}
	meaning := result.ExplainExit(f.code, result.ExitContext{})
	v := verdict{status: result.StatusExited, fault: result.FaultProgram, exitCode: f.code, explanation: meaning.Text}
	if n := signalOf(f.code); n > 0 {
		v.status, v.signal = result.StatusSignaled, n
	}
	if f.code == 0 {
		v.fault = result.FaultNone
	}
	return v
}

// decideNoCommand is for commands that cannot be run.
func decideNoCommand(code int) verdict {
	what := map[int]string{126: "The command is not executable.", 127: "The command is not in the image."}[code]
	return verdict{status: result.StatusStartFailed, fault: result.FaultOperator, exitCode: code, explanation: what}
}

// fatalSignals are those that end a process unless it does something about it;
// 128 plus any other number is an exit code like others.
var fatalSignals = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 24, 25, 26, 27, 29, 30, 31}

// signalOf is the signal that an exit code of a container stands for, or 0. The
// engine reports a program killed by signal n and one that exits with 128+n
// alike; the explanation says so.
func signalOf(code int) int {
	if n := code - 128; slices.Contains(fatalSignals, n) {
		return n
	}
	return 0
}

// isLoss reports whether the engine failed, rather than refused.
func isLoss(err error) bool { return errors.Is(err, ErrEngineUnavailable) }
