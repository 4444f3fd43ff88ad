package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/observe"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/stage"
)

// collectBudget bounds the collection of outputs, and killedBudget bounds it after the caller has closed
// [Hooks].Kill.
const (
	collectBudget = 30 * time.Minute
	killedBudget  = 2 * time.Minute
)

// finish gathers the remaining evidence, collects the outputs, writes the result and
// removes the container. Cancellation by the caller does not affect it.
func (a *run) finish(ctx context.Context) (*result.Result, error) {
	ctx = context.WithoutCancel(ctx)
	a.steps.end(a.evidence.Lost)
	a.steps.begin(StepResult)
	a.stopWatch()
	a.meter.wait()
	e := &a.evidence
	e.FileLimit = a.spec.Job.FileSize != nil && a.spec.Job.FileSize.Soft == a.spec.Job.DiskBytes
	// Nothing can change the files any more if all processes of the program are dead.
	gone := e.Lost == nil && e.StartError == nil && e.End.Reported && e.End.ProcessesLeft == 0
	if a.container != nil && (e.Lost != nil || e.StartError != nil) {
		a.container.Disconnect() // no more writes to the streams
	}
	e.EngineGone = a.engineGoes(ctx)
	observed := a.observer.Report(e.Lost == nil && e.End.Reported)
	a.observer.Close()
	a.proxy.Close()
	if e.StartError == nil && a.leaves() {
		return nil, a.leaveIt() // not behind the removal: the container has the end of the program
	}
	if gone {
		a.releaseGPUs(ctx) // the outputs may take long
		a.idle()
	} else {
		a.removeNow(ctx)
	}
	measured := a.endOutput()
	left, err := a.collect(ctx, gone)
	if err != nil {
		return nil, err
	}
	e.DiskFull = left.DiskFull
	e.Shortage = outcome.Contend(e.End, float64(a.spec.Class.Cgroup.NanoCPUs)/1e9)
	a.at("collected")
	decided := outcome.Decide(*e)
	decided.BlameGPUs(a.lostGPUs(ctx, decided))
	a.warnOfRules(decided)
	res := a.result(decided, left, observed)
	res.Metrics = measured
	switch decided.Status { //nolint:exhaustive // the others mean nothing to the rules
	case result.StatusExited:
		a.meter.finished()
	case result.StatusStoppedByRule:
		res.StoppedBy = e.StoppedBy
	}
	err = a.stage.WriteResult(res)
	a.at("written")
	a.steps.end(err)
	if decided.Err == nil {
		decided.Err = e.Lost
	}
	if err != nil {
		// Another process can finish the run as long as its container is there.
		if a.container != nil {
			a.container.Disconnect()
		}
		err = fmt.Errorf("%w; when the result can be written again, finish the run with: sandbox adopt %s", err, a.spec.Job.RunID)
		return res, errors.Join(decided.Err, err, a.disclaim(ctx))
	}
	a.steps.begin(StepRemove)
	removeErr := a.removeOrKeep(ctx)
	if a.stage.Copied() && !a.spec.Job.Keep {
		// Not before the result is on disk: until then the engine has what another process
		// needs to finish the run.
		a.stage.Withdraw(ctx, a.left)
		if warnings := a.warn.sorted(); len(warnings) > len(res.Warnings) {
			res.Warnings = warnings
			err = a.stage.WriteResult(res)
		}
	}
	a.steps.end(removeErr)
	if err == nil && removeErr == nil && !a.left && a.stage.Published() {
		a.settle()
	}
	if e.Lost != nil && a.left || !a.stage.Published() { // anybody may try again, see [Runner.Adopt]
		err = errors.Join(err, a.disclaim(ctx))
	}
	return res, errors.Join(decided.Err, err)
}

// disclaim leaves the run to any process that adopts it.
func (a *run) disclaim(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupBudget)
	defer cancel()
	return a.runner.store.Disclaim(ctx, a.spec.Job.RunID, a.journal.Deadline)
}

// endOutput closes the files of the output and of the measurements, and returns the summary of these.
func (a *run) endOutput() *result.Metrics {
	for _, warning := range a.output.Close() {
		a.warn.add("%s", warning)
	}
	measured, err := a.meter.close()
	if err != nil {
		a.warn.add("%v", err)
	}
	return measured
}

// removeOrKeep removes the container, unless the request keeps it.
func (a *run) removeOrKeep(ctx context.Context) error {
	if a.spec.Job.Keep && a.container != nil {
		a.container.Release()
		return nil
	}
	err := a.remove(ctx)
	if err != nil {
		a.log.Warn("the container is left behind", logError, err)
	}
	return err
}

// warnOfRules warns of rules about metrics that a program, which succeeded, did not print: their names
// may be wrong.
func (a *run) warnOfRules(decided outcome.Outcome) {
	if decided.Status != result.StatusExited || decided.ExitCode != 0 {
		return
	}
	for _, name := range a.meter.missing() {
		a.warn.add("the program did not print metric.%s, which a stop rule is about", name)
	}
}

// leaves reports whether the run is to be left to another process.
func (a *run) leaves() bool { return a.leave != nil && a.leave.Err() != nil }

// leaveIt closes the rooms of a run that is left to another process, and says so.
func (a *run) leaveIt() error {
	return errors.Join(fmt.Errorf("run %s: %w: %w", a.spec.Job.RunID, stage.ErrLeft, context.Cause(a.leave)), a.letGo())
}

// collect collects the outputs, and moves them to ./final. [Hooks].Kill ends the program and bounds the
// time for that: the outputs are kept. mayLeave says that another process can collect them as well: the error
// then says that it has to.
func (a *run) collect(ctx context.Context, mayLeave bool) (stage.Left, error) {
	e := &a.evidence
	collecting, cancel := context.WithTimeout(ctx, collectBudget)
	defer cancel()
	mayLeave = mayLeave && a.leave != nil
	if mayLeave {
		leaving, leave := context.WithCancelCause(collecting)
		defer context.AfterFunc(a.leave, func() { leave(stage.ErrLeft) })()
		collecting = leaving
	}
	if a.hooks.Kill != nil {
		go func() {
			select {
			case <-a.hooks.Kill:
				time.AfterFunc(killedBudget, cancel)
			case <-collecting.Done():
			}
		}()
	}
	// The processes of a container end with it, also if somebody else removed it.
	ended := e.Lost == nil || errors.Is(e.Lost, engine.ErrNoContainer)
	left := a.stage.Collect(collecting, e.StartError == nil, ended, e.Stop == outcome.StopDiskLimit)
	if mayLeave && errors.Is(context.Cause(collecting), stage.ErrLeft) {
		return left, a.leaveIt()
	}
	if a.stage.Copied() && a.spec.Job.Keep {
		a.stage.Withdraw(ctx, false)
	}
	return left, nil
}

// settle notes that nothing of the run is left to do.
func (a *run) settle() {
	if err := a.runner.store.Settle(a.spec.Job.RunID); err != nil {
		a.log.Debug("the run is still noted as open", logError, err)
	}
}

// remove makes sure that the container is removed, which takes the engine a while longer.
func (a *run) remove(ctx context.Context) error {
	if a.container == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupBudget)
	defer cancel()
	return a.container.Remove(ctx)
}

// removeNow waits until the container is gone, because it may still contain processes.
func (a *run) removeNow(ctx context.Context) {
	if a.spec.Job.Keep || a.nameTaken {
		return
	}
	if errors.Is(a.evidence.Lost, outcome.ErrOtherEngine) {
		a.left = true // where nobody can remove it now
		a.warn.add("container %s is left behind on an engine that does not answer any more", a.spec.Job.ContainerName())
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cleanupBudget)
	defer cancel()
	if err := a.runner.engine.Remove(ctx, a.spec.Job.ContainerName()); err != nil {
		e := &a.evidence
		a.left = true
		e.EngineGone = e.EngineGone || errors.Is(err, engine.ErrUnavailable)
		a.warn.add("container %s is left behind: %v", a.spec.Job.ContainerName(), err)
		if e.Lost == nil && e.StartError == nil && !e.End.Reported {
			e.Lost = errors.Join(outcome.ErrNoExit, err) // it may still be running
		}
	}
}

// shutdownGrace is how long an engine that is shutting down may still answer after it has
// stopped a container.
const shutdownGrace = 3 * time.Second

// engineGoes distinguishes an engine that shuts down from an operator who stopped the
// program, or restarted its container: the engine soon stops answering. It only takes time if
// somebody else stopped the program.
func (a *run) engineGoes(ctx context.Context) bool {
	end := a.evidence.End
	asked := a.evidence.Stop != outcome.StopNone && a.evidence.Stop != outcome.StopTimeout
	if a.evidence.Lost != nil || a.evidence.StartError != nil || asked || len(end.Foreign) == 0 && end.ForeignErr == nil {
		return false
	}
	if errors.Is(end.ForeignErr, engine.ErrUnavailable) {
		return true
	}
	// An engine that is shutting down waits for its containers.
	a.container.Release()
	ctx, cancel := context.WithTimeout(ctx, shutdownGrace)
	defer cancel()
	restarts, _ := a.container.(engine.Restarts)
	for {
		if _, err := a.runner.engine.Info(ctx); err != nil {
			return errors.Is(err, engine.ErrUnavailable)
		}
		if restarts != nil && restarts.Restarted(ctx) {
			a.evidence.End.Restarted = true
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(shutdownGrace / 10):
		}
	}
}

// abandon removes everything that a run created before its program could start.
func (a *run) abandon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupBudget)
	defer cancel()
	a.steps.begin(StepRemove)
	var errs []error
	if !a.nameTaken {
		// By name: the container may exist even if the answer to its creation was lost.
		// This waits until the name is free, because the run may be retried.
		errs = append(errs, a.runner.engine.Remove(ctx, a.spec.Job.ContainerName()))
	}
	a.observer.Close()
	a.proxy.Close()
	a.output.Close()
	_, _ = a.meter.close() // nothing was measured
	err := errors.Join(append(errs, a.stage.Discard(ctx))...)
	a.steps.end(err)
	return err
}

// startFailed ends a run whose program never ran. If the host or the request is at fault,
// nothing is left behind. If the engine refused to start the container, there is a
// result, for the record.
func (a *run) startFailed(ctx context.Context, startErr error) (*result.Result, error) {
	a.steps.end(startErr)
	noContainer := a.container == nil && (a.output == nil || !errors.Is(startErr, engine.ErrNotStarted))
	if noContainer || a.unmonitored || !isEngines(startErr) {
		return nil, errors.Join(startErr, a.abandon(ctx))
	}
	a.evidence.StartError = startErr
	if err := a.stage.Rollback(); err != nil {
		a.warn.add("%v", err)
	}
	res, err := a.finish(ctx)
	return res, errors.Join(startErr, err)
}

// isEngines reports whether the engine caused an error, not the host, the request or the
// caller.
func isEngines(err error) bool {
	var path *PathError
	var field *policy.FieldError
	var elsewhere *stage.NotSharedError
	return !errors.As(err, &path) && !errors.As(err, &field) && !errors.As(err, &elsewhere) && !errors.Is(err, outcome.ErrCanceled) &&
		!errors.Is(err, observe.ErrUnobserved) && !errors.Is(err, engine.ErrUnenforceable) && !errors.Is(err, record.ErrNoSpace)
}
