// Package outcome decides why a program ended, from the evidence of its run. It is pure.
package outcome

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
)

// Reasons why the end of a program is unknown.
var (
	ErrNoExit = fmt.Errorf("%w: it did not report the end of the program", engine.ErrUnavailable)
	// ErrStoppedBy reports an engine that stopped together with its containers.
	ErrStoppedBy = fmt.Errorf("%w: it stopped, and stopped the program with it", engine.ErrUnavailable)
	// ErrKilled reports a container that somebody else killed.
	ErrKilled = errors.New("somebody else killed the container before the program had ended")
	// ErrRemoved reports a container that somebody else removed.
	ErrRemoved = fmt.Errorf("somebody else removed the container before the program had ended: %w", engine.ErrNoContainer)
	// ErrOtherEngine means that another engine answers at the address of the engine of the container.
	ErrOtherEngine = fmt.Errorf("%w: another engine answers in its place, and the program may still run", engine.ErrUnavailable)
	// ErrInitKilled reports a container whose init something on the engine's machine killed.
	ErrInitKilled = errors.New("something on the engine's machine killed the container before the program had ended")
	// ErrNotBegun reports a job that never reached its container.
	ErrNotBegun = fmt.Errorf("%w: the job was lost on its way to the container", engine.ErrUnavailable)
)

// ErrOwnerDied means that the controller of a run died before its program started.
var ErrOwnerDied = errors.New("the process that was to start the program died")

// ErrUnwatched reports a container that ended without a report while no controller watched it.
var ErrUnwatched = fmt.Errorf("%w while nobody watched it", ErrKilled)

// ErrCanceled means that the caller canceled before the program started.
var ErrCanceled = errors.New("canceled before the program started")

// Canceled returns an [ErrCanceled] with the cause of a context that has ended.
func Canceled(ctx context.Context) error {
	return fmt.Errorf("%w: %w", ErrCanceled, context.Cause(ctx))
}

// Evidence is everything that is known about the end of a run.
type Evidence struct {
	// StartError says why no container could start the program.
	StartError error
	// Accepted says that the container's init accepted the job. Otherwise the engine was
	// lost before it answered, and the program may or may not have run.
	Accepted bool
	// Lost says why the end is unknown.
	Lost error
	// Stop says why evalbox ended the run; Requested lists its requests to do so.
	Stop      StopReason
	Requested []engine.Signal
	// StoppedBy is the rule of StopByRule.
	StoppedBy *result.StoppedBy
	// End is the end as reported by the container's init, or else by the engine.
	End engine.End
	// Limit is the time limit of the program; 0 for none. Shortage is what it lacked of the
	// processors; nil if that is not known.
	Limit    time.Duration
	Shortage *result.Contention
	// SoftSignal is the number of the run's soft signal, 0 if it has none.
	SoftSignal int
	// Recovered says that the controller died, and another process finished the run.
	Recovered bool
	// ProxyLost says that the proxy of the run died with the controller.
	ProxyLost bool
	// FileLimit says that the disk limit bounds the size of each file (RLIMIT_FSIZE), and that
	// nobody asked for a lower bound.
	FileLimit bool
	// DiskFull says that the kernel kept the program from holding more than its disk limit, and
	// that hardly anything more could be written.
	DiskFull bool
	// EngineGone says that the engine became unreachable right after the end.
	EngineGone bool
}

// Outcome is the single cause of a run's end.
type Outcome struct {
	Status   result.Status
	Fault    result.Fault
	ExitCode int
	Signal   int
	Deadline result.Deadline
	// Unfinished says that the program did not end by itself: a limit, the kernel, the caller or
	// somebody else ended it, or its end is not known.
	Unfinished  bool
	Explanation string
	Warnings    []string
	// Err says why the program's own end is unknown, or why the engine did not start it.
	Err error
}

// Decide derives the single cause from the evidence, in a fixed order: failures of evalbox
// or the engine, actions of evalbox, actions of others, kills by the kernel for memory,
// and only then the program's own end. It never infers a cause from a number: the
// container's init distinguishes an exit from a signal, and a program that exits with 137
// or 143 exited.
//
// A program that ends after its soft signal has ended by itself. If it died of that very
// signal, our time limit has ended it.
func Decide(f Evidence) Outcome {
	v := withDeadline(decide(f), f)
	if f.End.Frozen > 0 {
		v.Warnings = append(v.Warnings, standstill(f.End))
	}
	if f.ProxyLost && f.StartError == nil && v.Status != result.StatusEngineLost {
		v.Fault = result.FaultOperator
		v.Explanation += " Its proxy had died with the controller before: it could not reach its hosts any more."
	}
	return v
}

// withDeadline adds the part of the time limit in the end of a run.
func withDeadline(v Outcome, f Evidence) Outcome {
	itself := v.Status == result.StatusExited || v.Status == result.StatusSignaled && v.Fault != result.FaultOperator
	v.Unfinished = !itself
	if v.Status == result.StatusTimedOut {
		v.Deadline = result.DeadlineHard
	}
	if f.End.SoftAfter == 0 || v.Status == result.StatusEngineLost {
		return v
	}
	asked := fmt.Sprintf("asked to finish by %s after %s", result.SignalName(f.SoftSignal), f.End.SoftAfter.Round(time.Second/10))
	switch {
	case itself && v.Status == result.StatusSignaled && v.Signal == f.SoftSignal && f.End.Reported:
		v.Status, v.ExitCode, v.Deadline, v.Unfinished = result.StatusTimedOut, -1, result.DeadlineSoft, true
		v.Explanation = "The program was " + asked + ", and ended by that signal: it does not handle it."
		v.blameTime(f)
		return v
	case itself:
		v.Deadline = result.DeadlineSoft
	}
	v.Explanation += " It had been " + asked + "."
	return v
}

func decide(f Evidence) Outcome {
	switch {
	case errors.Is(f.StartError, ErrOwnerDied):
		return Outcome{Status: result.StatusStartFailed, Fault: result.FaultOperator, ExitCode: -1,
			Explanation: "The program was never started: the process that was to start it died."}
	case f.StartError != nil:
		return Outcome{Status: result.StatusStartFailed, Fault: result.FaultEnvironment, ExitCode: -1,
			Explanation: "The engine could not start the container: " + f.StartError.Error() + "."}
	case errors.Is(f.Lost, engine.ErrNoContainer):
		v := lost("Somebody else removed the container: how the program would have ended is not known.", ErrRemoved)
		v.Fault = result.FaultOperator
		return v
	case errors.Is(f.Lost, ErrOtherEngine):
		return lost("Another engine answers in the place of the engine that has the container: how the program ends is not known.", ErrOtherEngine)
	case f.Lost != nil:
		return lost("The engine was lost before it reported how the program ended.", f.Lost)
	case !f.Accepted && f.End.NoJob:
		return decideNoJob(f)
	case !f.Accepted && !f.End.Reported && len(f.End.Foreign) == 0:
		return lost("The engine was lost before it reported whether the program had started.", ErrNoExit)
	case f.End.Launch != nil:
		return decideLaunch(f.End.Launch)
	case f.Stop == StopNone && f.End.Cause == engine.ByOrphanLimit:
		f.Stop = StopOrphaned
	case f.Stop == StopNone && f.End.Cause == engine.ByDeadline:
		f.Stop = StopTimeout
	case f.Stop == StopTimeout && !f.endedByTimer():
		f.Stop = StopNone
	}
	if f.Stop != StopNone {
		return decideStopped(f)
	}
	if !f.End.Reported {
		return decideSilent(f)
	}
	v := decideReported(f)
	if f.End.OOMKilled && v.Status != result.StatusOutOfMemory {
		v.Warnings = append(v.Warnings,
			"a process of the run was killed for memory, but the main process ended by itself")
	}
	return v
}

// endedByTimer reports whether a program was ended because evalbox's own timer was over, which
// only runs for an init that does not keep the time limit itself. A controller that could not reach
// the engine, or was stopped itself, has its timer fire long after the program's end.
func (f Evidence) endedByTimer() bool {
	end := f.End
	switch {
	case end.Reported && end.Cause == engine.ByDeadline:
		return true
	case end.Reported && end.Cause == engine.ByItself, len(end.Foreign) > 0, end.Duration < f.Limit:
		return false
	}
	return end.Reported || !end.Interrupted
}

// endedByEngine reports whether the engine ended a program with itself, or may have done so: nobody
// else is known to have sent a signal.
func (f Evidence) endedByEngine() bool {
	return f.EngineGone || f.End.Interrupted && (len(f.End.Foreign) == 0 || f.End.ForeignErr != nil)
}

// wasFrozen reports whether a program lacked a part of its time limit that matters, because its
// container was frozen.
func (f Evidence) wasFrozen() bool { return f.End.Frozen > f.Limit/100 }

// decideNoJob handles containers whose init never had the job.
func decideNoJob(f Evidence) Outcome {
	v := Outcome{Status: result.StatusStartFailed, Fault: result.FaultEnvironment, ExitCode: -1, Err: ErrNotBegun,
		Explanation: "The program was not started: its job was lost on the way to the container."}
	if len(f.End.Foreign) > 0 && !f.endedByEngine() {
		v.Fault = result.FaultOperator
		v.Explanation = "The program was not started: somebody else ended its container through the engine (" +
			strings.Join(f.End.Foreign, ", ") + ") first."
	}
	return v
}

func lost(explanation string, err error) Outcome {
	return Outcome{Status: result.StatusEngineLost, Fault: result.FaultEnvironment, ExitCode: -1, Explanation: explanation, Err: err}
}

// decideStopped handles runs that evalbox or their time limit ended. The exit code only
// shows how the program reacted.
func decideStopped(f Evidence) Outcome {
	v := Outcome{Fault: result.FaultProgram, ExitCode: f.End.ExitStatus()}
	switch f.Stop {
	case StopTimeout:
		v.Status, v.ExitCode = result.StatusTimedOut, -1
		v.Explanation = "The program was stopped at its time limit."
		v.blameTime(f)
	case StopOutputLimit:
		v.Status = result.StatusOutputLimit
		v.Explanation = "The program was stopped for printing more than its output limit."
	case StopDiskLimit:
		v.Status = result.StatusDiskLimit
		v.Explanation = "The program was stopped for writing more to ./final than its disk limit."
	case StopTooDeep:
		v.Status = result.StatusDiskLimit
		v.Explanation = "The program was stopped because ./final held directories so deep that their size could not be measured."
	case StopDiskFull:
		v.Status, v.Fault = result.StatusDiskLimit, result.FaultEnvironment
		v.Explanation = "The program was stopped because the disk of ./final was nearly full."
	case StopUnwatched:
		v.Status, v.Fault = result.StatusDiskLimit, result.FaultEnvironment
		v.Explanation = "The program was stopped because the disk of ./final could not be watched any more."
	case StopOrphaned:
		v.Status, v.Fault = result.StatusCanceled, result.FaultOperator
		v.Explanation = "The program was stopped because its controller was gone for longer than the orphan limit."
	case StopByRule:
		v.Status = result.StatusStoppedByRule
		v.Explanation = "The program was stopped by a rule."
		if by := f.StoppedBy; by != nil {
			v.Explanation = "The program was stopped by the rule " + strconv.Quote(by.Rule) + ": " + by.Reason
		}
	case StopRequested:
		v.Status, v.Fault = result.StatusCanceled, result.FaultOperator
		v.Explanation = "Another process asked to stop the run (sandbox stop)."
	case StopCanceled, StopNone:
		v.Status, v.Fault = result.StatusCanceled, result.FaultOperator
		v.Explanation = "The caller canceled the run."
	}
	v.Signal = f.End.Signal
	if killed := f.End.Escalated || !f.End.Reported; killed {
		v.Explanation += " It did not end on SIGTERM and was killed."
		if v.Status == result.StatusTimedOut {
			v.Signal = 9
		}
	}
	if f.End.OOMKilled {
		v.Warnings = append(v.Warnings, "a process of the run had been killed for memory before it was stopped")
	}
	return v
}

// standstill says how long a container stood still.
func standstill(end engine.End) string {
	took := end.Frozen.Round(time.Second / 10)
	if end.Paused {
		return fmt.Sprintf("the container was frozen (docker pause) for %s", took)
	}
	return fmt.Sprintf("the container stood still for %s, and nobody paused it through the engine", took)
}

// blameTime corrects who is at fault for the end at a time limit that the program did not get in full.
func (v *Outcome) blameTime(f Evidence) {
	switch {
	case f.wasFrozen():
		v.Fault = result.FaultEnvironment
		if f.End.Paused {
			v.Fault = result.FaultOperator
		}
		stood := standstill(f.End)
		v.Explanation += " " + strings.ToUpper(stood[:1]) + stood[1:] + "."
	case f.Shortage != nil && f.Shortage.Verdict == result.Starved:
		v.Fault = result.FaultEnvironment
		v.Explanation += " Other work on the machine had starved it: " + fmt.Sprintf("its threads waited %.1fs for a processor and ran %.1fs.", f.Shortage.WaitedSeconds, f.Shortage.RanSeconds)
		v.Warnings = append(v.Warnings, "the program was starved of processors and then stopped at its time limit, which says nothing about it: run it again when the machine has less to do, or with fewer runs at once")
	}
}

// decideLoss handles programs that their engine ended by itself.
func decideLoss(end engine.End) Outcome {
	switch end.Loss {
	case engine.EvictedForDisk:
		return Outcome{Status: result.StatusDiskLimit, Fault: result.FaultProgram, ExitCode: end.ExitStatus(), Signal: end.Signal,
			Explanation: "The program was stopped by its engine for writing more than its disk limit."}
	case engine.Preempted:
		return lost("The engine stopped the program to make room for a more important one.", ErrStoppedBy)
	case engine.NodeLost:
		return lost("The machine of the program was lost or shut down.", ErrStoppedBy)
	case engine.PodDeadline:
		return lost("The engine stopped the program at a time limit of its own.", ErrStoppedBy)
	case engine.Evicted, engine.NotLost:
	}
	return lost("The engine stopped the program because its machine was short of something, or was emptied.", ErrStoppedBy)
}

// decideReported handles programs whose end the container's init saw.
func decideReported(f Evidence) Outcome {
	end := f.End
	switch {
	case end.Loss != engine.NotLost:
		return decideLoss(end)
	case end.Cause == engine.BySignal && f.endedByEngine():
		return lost("The engine stopped, and stopped the program with it.", ErrStoppedBy)
	case end.Cause == engine.BySignal && end.Restarted:
		v := restarted
		v.Status, v.ExitCode, v.Signal = result.StatusSignaled, 128+cmp.Or(end.Signal, 15), cmp.Or(end.Signal, 15)
		v.Err = nil
		return v
	case end.Cause == engine.BySignal:
		n := end.Signal
		if n == 0 {
			n = 15
		}
		v := Outcome{Status: result.StatusSignaled, Fault: result.FaultOperator, ExitCode: 128 + n, Signal: n,
			Explanation: fmt.Sprintf("Somebody else stopped the program: %s was sent through the engine, and not by us.", result.SignalName(n))}
		if end.Signal == 0 {
			v.Explanation += fmt.Sprintf(" The program then exited with %d.", end.ExitCode)
		}
		return v
	case end.OOMKilled && end.Signal == 9:
		return Outcome{Status: result.StatusOutOfMemory, Fault: result.FaultProgram, ExitCode: 137, Signal: 9,
			Explanation: "The kernel killed the program at its memory limit."}
	case f.FileLimit && end.Signal == fileTooLarge:
		return Outcome{Status: result.StatusDiskLimit, Fault: result.FaultProgram, ExitCode: end.ExitStatus(), Signal: end.Signal,
			Explanation: "The program was ended by the kernel (SIGXFSZ) for writing a file that is larger than its disk limit."}
	}
	v := Outcome{Status: result.StatusExited, Fault: result.FaultProgram, ExitCode: end.ExitStatus(), Signal: end.Signal}
	if v.Signal > 0 {
		v.Status = result.StatusSignaled
	} else if end.ExitCode == 0 {
		v.Fault = result.FaultNone
	}
	v.Explanation = explainEnd(end)
	if end.Interrupted && !end.Complete {
		v.Fault = result.FaultEnvironment
		v.Explanation += " The engine was away meanwhile, and a part of the output is lost."
	}
	switch {
	case f.DiskFull && end.ExitStatus() == 0:
		v.Warnings = append(v.Warnings, "the program reached its disk limit: files that it wrote may be incomplete")
	case f.DiskFull && v.Fault == result.FaultProgram:
		v.Status = result.StatusDiskLimit
		v.Explanation = "The program was out of disk space: it had reached its disk limit. " + v.Explanation
	}
	return v
}

// restarted is the outcome of a container that somebody else restarted.
var restarted = func() Outcome {
	v := lost("Somebody else restarted the container: the program was stopped, and does not run again.", ErrKilled)
	v.Fault = result.FaultOperator
	return v
}()

// fileTooLarge is the number of SIGXFSZ on Linux, which is that of the container: it follows a file
// that grows beyond RLIMIT_FSIZE.
const fileTooLarge = 25

// explainEnd describes the program's end.
func explainEnd(end engine.End) string {
	if end.Signal > 0 {
		return fmt.Sprintf("The program was ended by signal %d (%s).", end.Signal, result.SignalName(end.Signal))
	}
	return fmt.Sprintf("The program exited with %d.", end.ExitCode)
}

// decideSilent handles containers whose init was killed before it could report. A program cannot
// kill the init of its container, except by using up its memory. The exit code of such a container
// is not the program's, and an engine that was away reports 0 or 255 for an end that it did not see.
func decideSilent(f Evidence) Outcome {
	end := f.End
	switch {
	case end.Loss != engine.NotLost:
		return decideLoss(end)
	case end.Restarted:
		return restarted
	case end.OOMKilled:
		return Outcome{Status: result.StatusOutOfMemory, Fault: result.FaultProgram, ExitCode: 137, Signal: 9,
			Explanation: "The kernel killed the program at its memory limit, with the whole container."}
	case f.endedByEngine():
		return lost("The engine stopped, and stopped the program with it.", ErrStoppedBy)
	case f.Recovered && len(end.Foreign) == 0:
		return lost("The controller died, and the container then ended without a report: how the program ended is not known.", ErrUnwatched)
	case len(end.Foreign) > 0 || end.ForeignErr != nil:
		v := lost("Somebody else killed the container through the engine ("+strings.Join(end.Foreign, ", ")+
			"): how the program would have ended is not known.", ErrKilled)
		v.Fault = result.FaultOperator
		return v
	}
	return lost("The container ended without a report (init_killed): something on the engine's machine killed it, and not the program.", ErrInitKilled)
}

// decideLaunch handles programs that were not executed.
func decideLaunch(err *engine.LaunchError) Outcome {
	v := Outcome{Status: result.StatusStartFailed, Fault: result.FaultOperator, ExitCode: err.ExitCode()}
	switch {
	case err.Stage != engine.StageExec:
		v.Fault, v.ExitCode = result.FaultEnvironment, -1
		v.Explanation = "The program was not started: " + err.Error() + "."
	case v.ExitCode == 127:
		v.Explanation = "The command is not in the image."
	default:
		v.Explanation = "The command is not executable."
	}
	return v
}

// StopReason says why evalbox ended a run.
type StopReason int

const (
	// StopNone means that evalbox did not end it.
	StopNone StopReason = iota
	StopTimeout
	StopCanceled
	StopOutputLimit
	StopDiskLimit
	// StopTooDeep is for directories so deep that their size cannot be determined.
	StopTooDeep
	StopDiskFull
	// StopUnwatched is for a disk that could not be monitored any more.
	StopUnwatched
	// StopOrphaned means that the controller was gone, and that the container's init ended
	// the run at its orphan limit.
	StopOrphaned
	// StopRequested means that another process asked for the end.
	StopRequested
	// StopByRule means that a stop rule was fulfilled.
	StopByRule
)

// ErrStopped means that another process asked to end the run.
var ErrStopped = errors.New("another process asked to stop the run")

// ByCaller reports whether the caller, or another process of the same user, ended the run.
func (s StopReason) ByCaller() bool { return s == StopCanceled || s == StopRequested }

// BlameGPUs corrects an outcome that blames the program for an end that the loss of a GPU may have
// caused. lost says which GPUs nvidia-smi found lost at the end of the run, and is empty for none. Only
// the fault changes.
func (v *Outcome) BlameGPUs(lost string) {
	switch v.Status { //nolint:exhaustive // evalbox or the kernel ended the others, for a known reason
	case result.StatusExited, result.StatusSignaled, result.StatusTimedOut: // a program without its GPU may hang
	default:
		return
	}
	if lost == "" || v.Fault != result.FaultProgram {
		return
	}
	v.Fault = result.FaultEnvironment
	v.Warnings = append(v.Warnings, "a GPU was lost during the run: nvidia-smi after the end: "+lost)
}
