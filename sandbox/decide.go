package sandbox

import (
	"errors"
	"fmt"
	"strings"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
)

// Reasons why the end of a program is unknown.
var (
	errNoExit = fmt.Errorf("%w: it did not report the end of the program", engine.ErrUnavailable)
	// errStoppedBy reports an engine that stopped together with its containers.
	errStoppedBy = fmt.Errorf("%w: it stopped, and stopped the program with it", engine.ErrUnavailable)
	// errKilled reports a container that somebody else killed or removed.
	errKilled = errors.New("somebody else killed the container before the program had ended")
)

// facts is everything that is known about the end of a run.
type facts struct {
	// startError says why no container could start the program.
	startError error
	// accepted says that the container's init accepted the job. Otherwise the engine was
	// lost before it answered, and the program may or may not have run.
	accepted bool
	// lost says why the end is unknown.
	lost error
	// stop says why evalbox ended the run; signals lists its requests to do so.
	stop    stopReason
	signals []engine.Signal
	// end is the end as reported by the container's init, or else by the engine.
	end engine.End
	// engineGone says that the engine became unreachable right after the end.
	engineGone bool
}

// verdict is the single cause of a run's end.
type verdict struct {
	status      result.Status
	fault       result.Fault
	exitCode    int
	signal      int
	explanation string
	warnings    []string
	// err says why the program's own end is unknown.
	err error
}

// decide derives the single cause from the facts, in a fixed order: failures of evalbox
// or the engine, actions of evalbox, actions of others, kills by the kernel for memory,
// and only then the program's own end. It never infers a cause from a number: the
// container's init distinguishes an exit from a signal, and a program that exits with 137
// or 143 exited.
func decide(f facts) verdict {
	switch {
	case f.startError != nil:
		return verdict{status: result.StatusStartFailed, fault: result.FaultEnvironment, exitCode: -1,
			explanation: "The engine could not start the container: " + f.startError.Error() + "."}
	case errors.Is(f.lost, engine.ErrNoContainer):
		v := lost("Somebody else removed the container: how the program would have ended is not known.", f.lost)
		v.fault = result.FaultOperator
		return v
	case f.lost != nil:
		return lost("The engine was lost before it reported how the program ended.", f.lost)
	case !f.accepted && !f.end.Reported:
		return lost("The engine was lost before it reported whether the program had started.", errNoExit)
	case f.end.Launch != nil:
		return decideLaunch(f.end.Launch)
	case f.stop == stopNone && f.end.Cause == engine.ByDeadline:
		f.stop = stopTimeout
	case f.stop == stopTimeout && f.end.Reported && f.end.Cause == engine.ByItself:
		// It ended just before evalbox gave up waiting.
		f.stop = stopNone
	}
	if f.stop != stopNone {
		return decideStopped(f)
	}
	if !f.end.Reported {
		return decideSilent(f)
	}
	v := decideReported(f)
	if f.end.OOMKilled && v.status != result.StatusOutOfMemory {
		v.warnings = append(v.warnings,
			"a process of the run was killed for memory, but the main process ended by itself")
	}
	return v
}

func lost(explanation string, err error) verdict {
	return verdict{status: result.StatusEngineLost, fault: result.FaultEnvironment, exitCode: -1, explanation: explanation, err: err}
}

// decideStopped handles runs that evalbox or their time limit ended. The exit code only
// shows how the program reacted.
func decideStopped(f facts) verdict {
	v := verdict{fault: result.FaultProgram, exitCode: exitCode(f.end)}
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
	v.signal = f.end.Signal
	if killed := f.end.Escalated || !f.end.Reported; killed {
		v.explanation += " It did not end on SIGTERM and was killed."
		if v.status == result.StatusTimedOut {
			v.signal = 9
		}
	}
	if f.end.OOMKilled {
		v.warnings = append(v.warnings, "a process of the run had been killed for memory before it was stopped")
	}
	return v
}

// decideReported handles programs whose end the container's init saw.
func decideReported(f facts) verdict {
	end := f.end
	switch {
	case end.Cause == engine.BySignal && (f.engineGone || end.Interrupted):
		return lost("The engine stopped, and stopped the program with it.", errStoppedBy)
	case end.Cause == engine.BySignal:
		n := end.Signal
		if n == 0 {
			n = 15
		}
		v := verdict{status: result.StatusSignaled, fault: result.FaultOperator, exitCode: 128 + n, signal: n,
			explanation: fmt.Sprintf("Somebody else stopped the program: %s was sent through the engine, and not by us.", result.SignalName(n))}
		if end.Signal == 0 {
			v.explanation += fmt.Sprintf(" The program then exited with %d.", end.ExitCode)
		}
		return v
	case end.OOMKilled && end.Signal == 9:
		return verdict{status: result.StatusOutOfMemory, fault: result.FaultProgram, exitCode: 137, signal: 9,
			explanation: "The kernel killed the program at its memory limit."}
	}
	v := verdict{status: result.StatusExited, fault: result.FaultProgram, exitCode: exitCode(end), signal: end.Signal}
	if v.signal > 0 {
		v.status = result.StatusSignaled
	} else if end.ExitCode == 0 {
		v.fault = result.FaultNone
	}
	v.explanation = explainEnd(end)
	return v
}

// explainEnd describes the program's end.
func explainEnd(end engine.End) string {
	if end.Signal > 0 {
		return fmt.Sprintf("The program was ended by signal %d (%s).", end.Signal, result.SignalName(end.Signal))
	}
	return fmt.Sprintf("The program exited with %d.", end.ExitCode)
}

// decideSilent handles containers whose init was killed before it could report. The
// verdict is never more favorable than the program's real end.
func decideSilent(f facts) verdict {
	end := f.end
	switch {
	case end.OOMKilled:
		return verdict{status: result.StatusOutOfMemory, fault: result.FaultProgram, exitCode: 137, signal: 9,
			explanation: "The kernel killed the program at its memory limit, with the whole container."}
	case f.engineGone || end.Interrupted:
		return lost("The engine stopped, and stopped the program with it.", errStoppedBy)
	case len(end.Foreign) > 0 || end.ForeignErr != nil:
		v := lost("Somebody else killed the container through the engine ("+strings.Join(end.Foreign, ", ")+
			"): how the program would have ended is not known.", errKilled)
		v.fault = result.FaultOperator
		return v
	}
	return verdict{status: result.StatusSignaled, fault: result.FaultProgram, exitCode: 137, signal: 9,
		explanation: "The container ended without a report (init_killed): the program killed the container's init, and itself with it."}
}

// exitCode returns the exit status that a shell would report.
func exitCode(end engine.End) int {
	if end.Signal > 0 {
		return 128 + end.Signal
	}
	return end.ExitCode
}

// decideLaunch handles programs that were not executed.
func decideLaunch(err *engine.LaunchError) verdict {
	v := verdict{status: result.StatusStartFailed, fault: result.FaultOperator, exitCode: err.ExitCode()}
	switch {
	case err.Stage != engine.StageExec:
		v.fault, v.exitCode = result.FaultEnvironment, -1
		v.explanation = "The program was not started: " + err.Error() + "."
	case v.exitCode == 127:
		v.explanation = "The command is not in the image."
	default:
		v.explanation = "The command is not executable."
	}
	return v
}

// isLoss reports whether the engine failed, rather than refused.
func isLoss(err error) bool { return errors.Is(err, engine.ErrUnavailable) }
