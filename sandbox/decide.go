package sandbox

import (
	"errors"
	"fmt"
	"strings"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
)

// Why the end of a program could not be learned.
var (
	errNoExit = fmt.Errorf("%w: it did not report the end of the program", engine.ErrUnavailable)
	// errStoppedBy is an engine that took its containers with it.
	errStoppedBy = fmt.Errorf("%w: it stopped, and stopped the program with it", engine.ErrUnavailable)
	// errKilled is a container that somebody killed or removed.
	errKilled = errors.New("somebody else killed the container before the program had ended")
)

// facts is everything that is known about how a run ended.
type facts struct {
	// startError is why there is no container that could start the program.
	startError error
	// accepted says that the container's init took the job. Otherwise the engine was lost
	// before it told, and the program may have run or not.
	accepted bool
	// lost is why the end could not be learned.
	lost error
	// stop is why we ended the run, and signals what we asked for to do so.
	stop    stopReason
	signals []engine.Signal
	// end is the end as the container's init, or else the engine, reported it.
	end engine.End
	// engineGone says that the engine stopped answering right after the end.
	engineGone bool
}

// verdict is the one cause of a run's end.
type verdict struct {
	status      result.Status
	fault       result.Fault
	exitCode    int
	signal      int
	explanation string
	warnings    []string
	// err is why the program's own end is not known.
	err error
}

// decide finds the one cause from the facts, in a fixed order: what failed of
// ours, what we did, what others did, what the kernel did for memory, and only then what
// the program did. It never infers a cause from a number: the container's init tells an
// exit from a signal, and a program that exits with 137 or 143 exited.
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
		return lost("The engine was lost before it told how the program ended.", f.lost)
	case !f.accepted && !f.end.Reported:
		return lost("The engine was lost before it told whether the program had started.", errNoExit)
	case f.end.Launch != nil:
		return decideLaunch(f.end.Launch)
	case f.stop == stopNone && f.end.Cause == engine.ByDeadline:
		f.stop = stopTimeout
	case f.stop == stopTimeout && f.end.Reported && f.end.Cause == engine.ByItself:
		// It had ended when we gave up waiting for that.
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

// decideStopped is for runs that we ended, or their time limit. The exit code says only
// how the program took it.
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

// decideReported is for programs whose end the container's init saw.
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

// explainEnd says which end it was.
func explainEnd(end engine.End) string {
	if end.Signal > 0 {
		return fmt.Sprintf("The program was ended by signal %d (%s).", end.Signal, result.SignalName(end.Signal))
	}
	return fmt.Sprintf("The program exited with %d.", end.ExitCode)
}

// decideSilent is for containers whose init could not report: it was killed. Never is
// that a better end than the true one.
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

// exitCode is the one number of a shell for an end.
func exitCode(end engine.End) int {
	if end.Signal > 0 {
		return 128 + end.Signal
	}
	return end.ExitCode
}

// decideLaunch is for programs that were not executed.
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
