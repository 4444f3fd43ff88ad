package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/egress"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/gpu"
	"github.com/evalbox/evalbox/sandbox/observe"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stage"
)

// ErrStillRuns means that the program of a run without a controller has not ended. It may
// run until its time limit, which the container's init keeps.
var ErrStillRuns = errors.New("its program still runs")

// Reasons why a run cannot be finished.
var (
	errElsewhere = errors.New("cannot be finished here")
	// errNoJournal reports a run of which nothing is left: what it had on the engine was
	// removed, and its outputs were moved to its ./final.
	errNoJournal = fmt.Errorf("%w, and its journal is gone: it has no result", outcome.ErrOwnerDied)
)

// journalPatience is how long a controller may take between the record and its journal.
const journalPatience = time.Minute

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
	res, err := r.adopt(ctx, found, o, false)
	if res == nil {
		res = found.Result
	}
	return res, err
}

// adopt is Adopt. With onlyEnded set, a program that still runs is left alone with
// [ErrStillRuns], and a program that has ended is left to another process when ctx ends.
func (r *Runner) adopt(ctx context.Context, found record.Record, o runOptions, onlyEnded bool) (*result.Result, error) {
	defer r.sweepTemp()
	lost := r.mayKnowMore(found)
	switch {
	case found.Result != nil && !lost:
		return found.Result, r.tidy(ctx, found)
	case found.State == record.Unreadable:
		return nil, r.endUnreadable(ctx, found)
	}
	began := time.Now()
	a := &run{runner: r, planned: planned{spec: found.Spec}, io: o.io, hooks: o.hooks}
	note, err := r.store.Claim(ctx, found.ID, a.deadline(stage.PartSlack))
	switch {
	case err != nil && lost:
		return found.Result, r.tidy(ctx, found)
	case errors.Is(err, record.ErrNoJournal):
		return nil, r.settleUnknown(ctx, found, err)
	case err != nil:
		return nil, err
	}
	res, err := r.adoptClaimed(ctx, found, note, o, onlyEnded, began)
	if res == nil {
		// Somebody else may try.
		err = errors.Join(err, r.disclaim(ctx, found.ID, note.Deadline))
	}
	if res == nil && lost && errors.Is(err, engine.ErrNoContainer) {
		return found.Result, r.tidy(ctx, found)
	}
	return res, err
}

// mayKnowMore reports whether the engine of a run that was given up may know its end by now, and
// whether the outputs of the run can still be distinguished from the outputs of other runs.
func (r *Runner) mayKnowMore(found record.Record) bool {
	if found.Result == nil || found.Result.Status != result.StatusEngineLost || !r.store.IsOpen(found.ID) {
		return false
	}
	by := found.ID
	if final := found.Spec.Job.Final; final != "" {
		_, by = stage.FilledLast(r.store, final)
	}
	return by == found.ID
}

// disclaim is [record.Store.Disclaim], also for a caller who has given up.
func (r *Runner) disclaim(ctx context.Context, id string, deadline time.Time) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupBudget)
	defer cancel()
	return r.store.Disclaim(ctx, id, deadline)
}

// endedError reports a run that has ended without a result, because its record is damaged.
type endedError struct{ damage error }

func (e *endedError) Error() string { return e.damage.Error() + "; the run has ended without a result" }

func (e *endedError) Unwrap() []error { return []error{e.damage, outcome.ErrOwnerDied} }

// endUnreadable ends a run that nobody can finish, because its record is damaged: its container and
// volume are removed, its user ID and GPUs are given back, and its outputs move to its ./final. The
// record stays, with the logs and outputs in it. The error says all that, and is an [outcome.ErrOwnerDied].
func (r *Runner) endUnreadable(ctx context.Context, found record.Record) (err error) {
	damage := &endedError{found.Damage}
	if !r.store.IsOpen(found.ID) {
		return damage // that was done
	}
	if err := r.mayEnd(ctx, found.ID); err != nil {
		return err
	}
	switch note, claimErr := r.store.Claim(ctx, found.ID, time.Now().Add(deadlineSlack)); {
	case claimErr == nil:
		defer func() { err = errors.Join(err, r.disclaim(ctx, found.ID, note.Deadline)) }()
		if info, err := r.engine.Info(ctx); err != nil || note.Engine != "" && note.Engine != info.ID {
			return errors.Join(err, fmt.Errorf("run %s: %w: its container is on another engine", found.ID, errElsewhere))
		}
	case !errors.Is(claimErr, record.ErrUnreadable):
		return claimErr
	}
	ctx = context.WithoutCancel(ctx)
	if err := r.removeAndReclaim(ctx, found.ID); err != nil {
		return err
	}
	if err := errors.Join(r.freeGPUs(ctx, found.ID), r.sweepUIDs(ctx)); err != nil {
		return err
	}
	if err := r.store.Settle(found.ID); err != nil {
		return err
	}
	return damage
}

// mayEnd returns an error if the owner of a container of a run may live: it cannot be seen from here,
// and the deadline of the container is not over.
func (r *Runner) mayEnd(ctx context.Context, id string) error {
	containers, err := r.engine.List(ctx)
	if err != nil {
		return err
	}
	for _, c := range containers {
		if !r.isOf(id, c.Labels) || c.Labels[spec.LabelPart] != "" {
			continue
		}
		seen := c
		seen.Labels = r.look(c).ownedBy(c)
		if remove, reason := collectable(seen, GCOptions{Kept: true}, time.Now()); !remove {
			return fmt.Errorf("run %s: container %s: %s", id, c.Name, reason)
		}
	}
	return nil
}

// freeGPUs gives back the GPUs of a run whose process died and whose containers are gone.
func (r *Runner) freeGPUs(ctx context.Context, id string) error {
	info, err := r.engine.Info(ctx)
	if err != nil {
		return err
	}
	lease, err := r.gpuManager(info).Adopt(ctx, id, gpu.Inventory{})
	if err != nil || lease == nil {
		return err
	}
	return lease.Release(ctx)
}

// sweepTemp removes temporary files that only a finished run has read.
func (r *Runner) sweepTemp() {
	if err := r.store.SweepTemp(); err != nil { // a garbage collection reports it
		r.log.Debug("the temporary files of a dead process were not removed", logError, err)
	}
}

// settleUnknown ends a run without a journal whose owner is dead: nobody can find out how its
// program ended.
func (r *Runner) settleUnknown(ctx context.Context, found record.Record, noJournal error) error {
	note, err := r.store.Journal(found.ID)
	if err != nil {
		return err
	}
	if note.Owner == "" && time.Since(found.Created) <= journalPatience {
		return noJournal // somebody may be about to write it
	}
	ctx = context.WithoutCancel(ctx)
	if err := r.removeAndReclaim(ctx, found.ID); err != nil {
		return err
	}
	if dir, _ := r.store.Unpublished(found.ID); dir != "" {
		err := fmt.Errorf("run %s: %w; its outputs are in %s", found.ID, errNoJournal, dir)
		return errors.Join(err, r.store.Settle(found.ID))
	}
	if err := r.store.Discard(found.ID); err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", found.ID, errNoJournal)
}

// engineOf describes the engine of a run that this process has claimed. A run whose journal has no
// container is removed: nothing but its record existed, and a container if that had waited for it.
func (r *Runner) engineOf(ctx context.Context, note record.Journal) (engine.Info, error) {
	if note.Container == "" {
		if err := r.removeAndReclaim(ctx, note.ID); err != nil {
			return engine.Info{}, err
		}
		return engine.Info{}, errors.Join(fmt.Errorf("run %s: %w", note.ID, outcome.ErrOwnerDied), r.store.Discard(note.ID))
	}
	info, err := r.engine.Info(ctx)
	if err == nil && note.Engine != info.ID {
		err = fmt.Errorf("run %s: %w: its container is on another engine", note.ID, errElsewhere)
	}
	return info, err
}

func (r *Runner) adoptClaimed(ctx context.Context, found record.Record, note record.Journal, o runOptions, onlyEnded bool, began time.Time,
) (_ *result.Result, err error) {
	info, err := r.engineOf(ctx, note)
	if err != nil {
		return nil, err
	}
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
	if err := a.resumeStage(ctx, true); err != nil { // 4
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
		if onlyEnded && !a.hasEnded(ctx) {
			return nil, errors.Join(fmt.Errorf("run %s: %w", found.ID, ErrStillRuns), a.letGo())
		}
		heeded := ctx
		if onlyEnded {
			a.leave, heeded = ctx, context.WithoutCancel(ctx) // there is nothing to stop
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
func (a *run) resumeStage(_ context.Context, started bool) (err error) {
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

// reopen finds the container. One that is gone is part of the evidence. An interruption ends
// the program, once it is found.
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
	if err := a.runner.removeLeft(ctx, a.spec.Job.RunID); err != nil {
		return nil, err
	}
	a.nameTaken, a.left = true, false // nothing of it is on the engine any more
	if err := a.resumeStage(ctx, false); err != nil {
		return nil, err
	}
	a.evidence = outcome.Evidence{Recovered: true, StartError: outcome.ErrOwnerDied}
	if err := a.stage.Rollback(); err != nil {
		a.warn.add("%v", err)
	}
	return a.finish(ctx)
}

// removeLeft removes what the engine has of a run of this store.
func (r *Runner) removeLeft(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupBudget)
	defer cancel()
	containers, err := r.engine.List(ctx)
	if err != nil {
		return err
	}
	for _, c := range containers {
		if r.isOf(id, c.Labels) {
			if err := r.engine.Remove(ctx, c.ID); err != nil {
				return err
			}
		}
	}
	volumes, err := stage.Volumes(ctx, r.engine)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		if r.isOf(id, v.Labels) {
			return stage.RemoveVolume(ctx, r.engine, id)
		}
	}
	return nil
}

// removeAndReclaim removes the run from the engine first, and then its files here: until its container is gone, its program may run.
func (r *Runner) removeAndReclaim(ctx context.Context, id string) error {
	if err := r.removeLeft(ctx, id); err != nil {
		return err
	}
	return stage.Reclaim(r.store, id)
}

// isOf reports whether something on the engine is of a run of this store.
func (r *Runner) isOf(id string, labels map[string]string) bool {
	return labels[spec.LabelRun] == id && labels[spec.LabelState] == r.store.Dir()
}

// tidy removes what a controller that died right behind its result has left on the engine.
func (r *Runner) tidy(ctx context.Context, found record.Record) error {
	if found.Spec.Job.Keep {
		if runs, err := r.stillRuns(ctx, found.ID); runs || err != nil {
			return err
		}
		return stage.Publish(ctx, r.store, found.ID)
	}
	switch _, err := r.store.Claim(ctx, found.ID, time.Now().Add(deadlineSlack)); {
	case errors.Is(err, record.ErrRunning):
		return nil // its controller is about to do that
	case errors.Is(err, record.ErrNoJournal), errors.Is(err, record.ErrUnreadable): // its owner is dead as well
	case err != nil:
		return err
	}
	if err := r.removeAndReclaim(ctx, found.ID); err != nil {
		return errors.Join(err, r.disclaim(ctx, found.ID, time.Now())) // somebody else may try
	}
	return r.store.Settle(found.ID)
}

// stillRuns reports whether the engine has a container of a run that has not ended.
func (r *Runner) stillRuns(ctx context.Context, id string) (bool, error) {
	containers, err := r.engine.List(ctx)
	return slices.ContainsFunc(containers, func(c engine.Found) bool {
		return r.isOf(id, c.Labels) && c.Labels[spec.LabelPart] == "" && !c.Ended
	}), err
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
type Adopted struct {
	RunID string
	// Result is nil if the run was not finished; Err then says why.
	Result *result.Result
	Err    error
}

// Settled reports whether there is no result and never will be, and nothing of the run is left but
// its record: its process died before the run had a container, or its journal is gone, or its record
// is damaged. Err says so.
func (a Adopted) Settled() bool { return a.Result == nil && errors.Is(a.Err, outcome.ErrOwnerDied) }

// maxAdopted bounds the ended runs that are finished at the same time.
const maxAdopted = 8

// AdoptAll finishes all runs of the state directory whose controllers died, as [Runner.Adopt]
// does, and waits for the programs that still run. Each is called once for each of them, one
// at a time, when the run is over.
func (r *Runner) AdoptAll(ctx context.Context, each func(Adopted), opts ...RunOption) error {
	var o runOptions
	for _, opt := range opts {
		opt.apply(&o)
	}
	return r.adoptAll(ctx, o, false, each)
}

func (r *Runner) adoptAll(ctx context.Context, o runOptions, onlyEnded bool, each func(Adopted)) error {
	ids, err := r.store.Orphans()
	var (
		all  sync.WaitGroup
		mu   sync.Mutex
		room = make(chan struct{}, maxAdopted)
	)
	if !onlyEnded {
		room = make(chan struct{}, len(ids)) // a program that runs holds up no other
	}
	for _, id := range ids {
		room <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		all.Go(func() {
			defer func() { <-room }()
			done := Adopted{RunID: id}
			found, err := r.store.Load(id)
			if err == nil {
				done.Result, err = r.adopt(ctx, found, o, onlyEnded)
			}
			done.Err = err
			mu.Lock()
			defer mu.Unlock()
			each(done)
		})
	}
	all.Wait()
	return err
}

// finishEnded finishes the runs without a controller whose programs have ended, and reports them. It
// returns why each of the others cannot be finished now.
func (r *Runner) finishEnded(ctx context.Context, report *GCReport) (unfinished map[string]error, err error) {
	unfinished = map[string]error{}
	var unpublished []error
	err = r.adoptAll(ctx, runOptions{}, true, func(done Adopted) {
		is := Collected{spec.Job{RunID: done.RunID}.ContainerName(), done.RunID, ""}
		var outputs *stage.UnpublishedError
		switch {
		case errors.As(done.Err, &outputs):
			is.Reason = outputs.Error()
			report.Left = append(report.Left, is)
			if !errors.Is(outputs, fsx.ErrReplaced) { // only the user can make room
				unpublished = append(unpublished, outputs)
			}
		case done.Result != nil:
			is.Reason = done.Result.Explanation
			report.Finished = append(report.Finished, is)
		case done.Settled():
			is.Reason = done.Err.Error()
			report.Ended = append(report.Ended, is)
		default:
			unfinished[done.RunID] = done.Err
		}
	})
	return unfinished, errors.Join(append(unpublished, err)...)
}

// finishBehind finishes, behind a program that runs, what other controllers have left and has
// ended. It takes one look into a directory, and one call of the engine if that has anything.
func (r *Runner) finishBehind() {
	r.behind.mu.Lock()
	defer r.behind.mu.Unlock()
	if r.behind.closed || r.behind.work != nil || time.Since(r.behind.last) < behindPeriod {
		return
	}
	r.behind.last = time.Now()
	done := make(chan struct{})
	work, cancel := context.WithCancel(context.Background())
	r.behind.work, r.behind.cancel = done, cancel
	go func() {
		defer func() {
			r.behind.mu.Lock()
			defer r.behind.mu.Unlock()
			r.behind.work = nil
			close(done)
		}()
		defer cancel()
		ctx, stop := context.WithTimeout(work, behindPeriod)
		defer stop()
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
			if !c.Ended || c.Labels[spec.LabelPart] != "" || c.Labels[spec.LabelState] != r.store.Dir() || !slices.Contains(ids, c.Labels[spec.LabelRun]) {
				continue
			}
			if ctx.Err() != nil {
				return
			}
			found, err := r.store.Load(c.Labels[spec.LabelRun])
			if err == nil {
				_, err = r.adopt(work, found, runOptions{}, true)
			}
			if err != nil {
				r.log.Debug("a run without a controller was not finished", logRun, c.Labels[spec.LabelRun], logError, err)
			}
		}
	}()
}

// behindPeriod is how often a runner looks for runs without a controller, and how long it
// begins to finish them.
const behindPeriod = time.Minute

// behind is the work of a runner behind its runs.
type behind struct {
	mu     sync.Mutex
	last   time.Time
	closed bool
	// work is closed when the work in progress is done; nil if there is none. cancel ends it early.
	work   chan struct{}
	cancel context.CancelFunc
}

// wait waits for the work in progress, as long as its caller does. It reports whether there was any.
func (b *behind) wait(ctx context.Context) bool {
	b.mu.Lock()
	work := b.work
	b.mu.Unlock()
	if work == nil {
		return false
	}
	select {
	case <-work:
	case <-ctx.Done():
	}
	return true
}

// close ends the work. A run that is being finished is left to the next process.
func (b *behind) close() {
	b.mu.Lock()
	b.closed = true
	if b.cancel != nil {
		b.cancel()
	}
	b.mu.Unlock()
	b.wait(context.Background())
}
