package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/egress"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/gpu"
	"github.com/evalbox/evalbox/sandbox/observe"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/recover"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stage"
)

// ErrStillRuns means that the program of a run without a controller has not ended. It may
// run until its time limit, which the container's init keeps.
var ErrStillRuns = recover.ErrStillRuns

// Adopt finishes a run whose controller died. It waits for the program if that still runs;
// the limits, ctx and the options have the same meaning as in [Runner.Run], but the program
// keeps the input that it had. The output and the end are those that the engine has kept, so
// the result is the one that the dead controller would have returned, with Recovered set. A
// program that never started gives a result as well, with the status start_failed.
//
// Of several processes that adopt a run, one does; for the others, and for a run whose
// controller lives, the error is [record.ErrRunning]. A run that has its result only loses
// the rest of it on the engine. A run whose engine was lost gets another result if its engine
// knows the end by now. After any other error without a result, the run can be adopted again.
func (r *Runner) Adopt(ctx context.Context, id string, opts ...RunOption) (*result.Result, error) {
	if err := r.isOpen(); err != nil {
		return nil, err
	}
	var o runOptions
	for _, opt := range opts {
		opt.apply(&o)
	}
	found, err := r.store.Get(id)
	if err != nil {
		return nil, err
	}
	res, err := r.adopt(ctx, found, o)
	if res == nil {
		res = found.Result
	}
	return res, err
}

func (r *Runner) adopt(ctx context.Context, found record.Record, o runOptions) (*result.Result, error) {
	return r.recovery.Run(ctx, found, r.resumer(o, nil))
}

// finishBehind finishes a run whose program has ended, behind the runs of this runner.
func (r *Runner) finishBehind(found record.Record) *recover.Work {
	return r.behind.Do(found.ID, func(ctx context.Context, w *recover.Work) {
		w.Result, w.Err = r.recovery.Run(ctx, found, r.resumer(runOptions{}, func() { close(w.Ended) }))
		if w.Err != nil {
			r.log.Debug("a run without a controller was not finished", logRun, found.ID, logError, w.Err)
		}
	})
}

// free gives back the GPUs and the user ID of a run whose process died and whose containers are gone.
func (r *Runner) free(ctx context.Context, found record.Record) error {
	if !found.Spec.Class.GPUs.Any() && found.State != record.Unreadable {
		return r.sweepUIDs(ctx)
	}
	info, err := r.engine.Info(ctx)
	if err != nil {
		return err
	}
	lease, err := r.gpuManager(info).Adopt(ctx, found.ID, gpu.Inventory{})
	if err == nil && lease != nil {
		err = lease.Release(ctx)
	}
	return errors.Join(err, r.sweepUIDs(ctx))
}

// resumer finishes runs with resume.
func (r *Runner) resumer(o runOptions, ended func()) recover.Resume {
	return func(ctx context.Context, found record.Record, note record.Journal, info engine.Info) (*result.Result, error) {
		return r.resume(ctx, found, note, info, o, ended)
	}
}

// resume finishes a run that this process has claimed. ended is nil if the caller waits for the program.
// Otherwise a program that still runs is left alone with [ErrStillRuns], and a program that has ended is
// left to another process when ctx ends; ended is called once it uses no GPU any more.
func (r *Runner) resume(ctx context.Context, found record.Record, note record.Journal, info engine.Info, o runOptions, ended func(),
) (_ *result.Result, err error) {
	began := time.Now()
	a := newRun(r, planned{spec: found.Spec, info: info, request: Request{ID: found.ID}}, o, began)
	a.steps.tracer = tracerOf(ctx)
	defer func() { a.steps.end(err) }()
	a.steps.begin(StepLease)
	a.journal, a.journal.Owner, a.journal.Adopted = note, owner.This().String(), true
	a.journal.Deadline = a.deadline(stage.PartSlack).UTC()
	a.started, a.evidence.Recovered, a.evidence.Accepted = began, true, true
	for _, warning := range note.Warnings {
		a.warn.add("%s", warning)
	}
	if err := a.adoptGPUs(ctx); err != nil { // 3
		return nil, err
	}
	a.left = true // until it is known that no program can use them
	defer a.releaseGPUs(ctx)
	if a.uid, err = r.adoptUID(a.spec.Class.User, found.ID); err != nil {
		return nil, err
	}
	defer a.releaseUID()
	if note.Ref.ID == "" {
		return a.neverStarted(ctx)
	}
	a.steps.begin(StepStage)
	if err := a.resumeStage(true); err != nil { // 4
		return nil, err
	}
	a.steps.begin(StepStart)
	if err := a.reopen(ctx); err != nil { // 5, 6
		return nil, errors.Join(err, a.letGo())
	}
	if a.container == nil && found.Result != nil { // nobody will know more
		return nil, errors.Join(a.evidence.Lost, a.letGo())
	}
	if a.container != nil {
		if ended != nil && !a.hasEnded(ctx) {
			return nil, errors.Join(recover.StillRuns(found.ID), a.letGo())
		}
		heeded := ctx
		if ended != nil {
			a.leave, heeded = ctx, context.WithoutCancel(ctx) // there is nothing to stop
			a.idle = ended
		}
		ctx, done := a.heed(heeded)
		defer done()
		a.watch(ctx)
		a.at("accepted")
		a.steps.begin(StepStream)
		a.supervise(ctx) // 7, 8
		a.at("ended")
	}
	if e := &a.evidence; e.Stop == outcome.StopNone && (e.End.Cause == engine.BySignal || !e.End.Reported) {
		e.Stop, e.StoppedBy = outcome.StopReason(note.Stop), note.StoppedBy // the dead controller had asked for the end
	}
	switch e := &a.evidence; {
	case e.End.NoJob:
		if err := a.letGo(); err != nil {
			return nil, err
		}
		return a.neverStarted(ctx)
	case errors.Is(e.Lost, engine.ErrUnavailable), errors.Is(e.Lost, engine.ErrProtocol):
		// The container is still there, with its output and its end.
		return nil, errors.Join(fmt.Errorf("run %s: %w", found.ID, e.Lost), a.letGo())
	}
	if a.spec.Job.Egress != nil && (a.evidence.End.Abandoned || !a.evidence.End.Reported) {
		a.evidence.ProxyLost = true
		a.warn.add("the requests to the proxy are those up to the death of the controller")
	}
	a.left = false
	return a.finish(ctx) // 9, 10
}

// resumeStage opens the rooms of a run whose controller died.
func (a *run) resumeStage(started bool) (err error) {
	r := a.runner
	a.stage, err = stage.Resume(stage.Options{Store: r.store, Engine: r.engine, Plan: a.spec, Warn: a.warn.add, Stop: a.stop, Log: a.log},
		a.labels(a.journal.Deadline), started)
	if err != nil {
		return err
	}
	a.proxy = egress.Resume(a.spec.Job, a.stage.Dir, a.warn.add)
	a.observer = observe.Resume(a.spec, a.stage.Dir, a.warn.add)
	if err := a.openOutput(); err != nil {
		return errors.Join(err, a.stage.Close())
	}
	return nil
}

// reopen finds the container. A container that is gone is part of the evidence.
func (a *run) reopen(ctx context.Context) (err error) {
	a.container, err = a.runner.engine.Open(context.WithoutCancel(ctx), engine.Ref(a.journal.Ref), engine.Streams{Stdout: a.output.Stdout, Stderr: a.output.Stderr})
	if errors.Is(err, engine.ErrNoContainer) {
		a.container, a.evidence.Lost = nil, err
		return nil
	}
	if err == nil {
		a.log = a.log.With(logContainer, a.journal.Ref.ID)
		a.log.Debug("container opened again")
	}
	return err
}

// endedPatience is how long a look at a program that may still run takes. Its output and its
// report, if it has ended, come within milliseconds.
const endedPatience = 2 * time.Second

// hasEnded reports whether the program has ended. If that is not known quickly, it has not.
func (a *run) hasEnded(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, endedPatience)
	defer cancel()
	_, err := a.container.Wait(ctx)
	return err == nil || errors.Is(err, engine.ErrNoContainer)
}

// letGo closes the rooms of a run that is not finished here. Nothing of it changes.
func (a *run) letGo() error {
	if a.container != nil {
		a.container.Disconnect()
	}
	a.output.Close()
	a.stopWatch()
	_, _ = a.meter.close() // the points are of the process that finishes the run
	return a.stage.Close()
}

// neverStarted ends a run whose controller died before the program started: everything is put
// back, and the result says so.
func (a *run) neverStarted(ctx context.Context) (*result.Result, error) {
	ctx = context.WithoutCancel(ctx)
	a.container = nil
	if err := a.resumeStage(false); err != nil {
		return nil, err
	}
	a.journal.Ref = record.Ref{} // only the container knows it, and goes
	err := a.writeJournal()
	if err == nil {
		err = a.runner.recovery.Remove(ctx, a.spec.Job.RunID, nil)
	}
	if err != nil {
		return nil, errors.Join(err, a.letGo())
	}
	a.nameTaken, a.left = true, false // nothing of it is on the engine any more
	a.evidence = outcome.Evidence{Recovered: true, StartError: outcome.ErrOwnerDied}
	if err := a.stage.Rollback(); err != nil {
		a.warn.add("%v", err)
	}
	return a.finish(ctx)
}

// adoptGPUs takes the lease of the dead controller over.
func (a *run) adoptGPUs(ctx context.Context) error {
	gpus := a.spec.Class.GPUs
	if !gpus.Any() || gpus.Kind != "" {
		return nil
	}
	inv, err := gpuInventory(ctx, gpus.Driver, a.info)
	if err != nil {
		a.warn.add("the GPUs cannot be looked at: %v", err)
	}
	a.gpus, err = a.runner.gpuManager(a.info).Adopt(ctx, a.spec.Job.RunID, inv)
	return err
}

// Adopted is one run that another process had started, and what became of it.
type Adopted = recover.Recovered

// AdoptAll finishes all runs of the state directory whose controllers died, as [Runner.Adopt]
// does, and waits for the programs that still run. Each is called once for each of them, one
// at a time, when the run is over.
func (r *Runner) AdoptAll(ctx context.Context, each func(Adopted), opts ...RunOption) error {
	var o runOptions
	for _, opt := range opts {
		opt.apply(&o)
	}
	return r.recovery.All(ctx, recover.Filter{}, r.resumer(o, nil), each)
}

// Types of [Runner.GC].
type (
	GCOptions = recover.Options
	GCReport  = recover.Report
	Collected = recover.Collected
)

// GC finishes the runs whose controllers died and whose programs have ended, see
// [Runner.Adopt]. Then it removes the containers that dead controllers left behind, and the
// volumes of runs whose files are copied. It moves outputs to the ./final of their runs, and removes
// the temporary files of dead controllers. A program that still runs may run until its time
// limit. GC never touches a container whose owner lives, or one without the labels of
// evalbox. An owner that cannot be seen from here (another machine, another PID namespace)
// counts as dead after the deadline of the container, which is an hour after the latest end
// of its program.
//
// A run whose record is damaged ends without a result: nobody can finish it. Its record stays.
//
// After a failure GC continues, and joins the errors.
func (r *Runner) GC(ctx context.Context, opts GCOptions) (GCReport, error) {
	return r.recovery.Collect(ctx, opts, r.resumer(runOptions{}, func() {}), func(ctx context.Context) error {
		r.tidyWork()
		return errors.Join(r.sweepPool(ctx), r.sweepUIDs(ctx))
	})
}

// recoverFinal finishes the run of a dead controller whose outputs come to this ./final, before another
// run uses it.
func (r *Runner) recoverFinal(ctx context.Context, final string) error {
	if final == "" {
		return nil
	}
	last, next := stage.FilledLast(r.store, final)
	id := cmp.Or(next, last)
	if id == "" {
		return nil
	}
	found, err := r.store.Load(id)
	switch {
	case errors.Is(err, record.ErrNoRecord), err == nil && found.State == record.Finished && next == "":
		return nil
	case err != nil:
		return err
	case found.State == record.Running: // its lock says so
		return nil
	}
	work := r.finishBehind(found)
	select {
	case <-work.Done:
		err = work.Err
	case <-ctx.Done():
		return outcome.Canceled(ctx)
	}
	if errors.Is(err, ErrStillRuns) && found.Result != nil && !found.Spec.Job.Keep {
		_, err = r.recovery.Run(ctx, found, nil)
	}
	if err == nil || work.Result != nil || errors.Is(err, outcome.ErrOwnerDied) || errors.Is(err, record.ErrRunning) {
		return nil
	}
	return fmt.Errorf("final %q is still in use: %w", final, err)
}

// behindPeriod is how often a runner looks for runs without a controller, and how long it begins to finish
// them.
const behindPeriod = time.Minute

// lookBehind finishes, behind a program that runs, what other controllers have left and has ended. It takes
// one look into a directory, and one call of the engine if that has anything.
func (r *Runner) lookBehind() {
	if last := r.lookedBehind.Load(); last != nil && time.Since(*last) < behindPeriod {
		return
	}
	now := time.Now()
	r.lookedBehind.Store(&now)
	r.behind.Do("", func(ctx context.Context, _ *recover.Work) {
		ctx, cancel := context.WithTimeout(ctx, behindPeriod)
		defer cancel()
		if err := r.sweepPool(ctx); err != nil {
			r.log.Debug("the waiting containers of a dead process were not removed", logError, err)
		}
		ids, err := r.store.Orphans()
		if err != nil || len(ids) == 0 {
			return
		}
		containers, err := r.engine.List(ctx)
		if err != nil {
			return
		}
		for _, c := range containers {
			if !c.Ended || c.Labels[spec.LabelPart] != "" || c.Labels[spec.LabelState] != r.store.Dir() {
				continue
			}
			if found, err := r.store.Load(c.Labels[spec.LabelRun]); err == nil && ctx.Err() == nil && slices.Contains(ids, found.ID) {
				<-r.finishBehind(found).Done // one after the other: the machine is for the program
			}
		}
	})
}
