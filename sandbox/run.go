package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
)

// cleanupBudget bounds the removal of a container and everything that belongs to it.
const cleanupBudget = time.Minute

// Run runs one program and reports the result. It blocks until the program has ended, its
// outputs are collected and its result is on disk. The removal of its container is then
// certain, but may take the engine a moment longer.
//
// A program that crashes, hangs or is killed produces a result, not an error; so does a
// command that the image does not have (start_failed, 126 or 127). An error means that
// the sandbox failed or refused. If the container had been created by then, the error
// comes with a result that has the status start_failed or engine_lost and contains what
// was observed.
//
// When ctx ends, the program gets SIGTERM, the grace period, then SIGKILL, and the result
// has the status canceled. If ctx ends before the start, Run only returns the error of
// ctx. Closing [Hooks].Kill skips the grace period.
func (r *Runner) Run(ctx context.Context, req Request, opts ...RunOption) (*result.Result, error) {
	var o runOptions
	for _, opt := range opts {
		opt.apply(&o)
	}
	req.Stdin = o.io.Stdin != nil
	if req.ID == "" {
		req.ID = record.NewID(time.Now())
	}
	res, err := r.runOnce(ctx, req, o)
	if errors.Is(err, errNotShared) && (req.Transfer == "" || req.Transfer == TransferAuto) {
		// Nothing has run, and nothing is left behind.
		req.Transfer = TransferCopy
		return r.runOnce(ctx, req, o)
	}
	return res, err
}

// runOnce is Run with the transfer that the plan chooses.
func (r *Runner) runOnce(ctx context.Context, req Request, o runOptions) (*result.Result, error) {
	began := time.Now()
	prepared, err := r.plan(ctx, req)
	if err != nil {
		return nil, err
	}
	r.markUsed(prepared.spec.Class.Image.ID)
	a := &attempt{
		runner: r, req: prepared.request, io: o.io, hooks: o.hooks, spec: prepared.spec, info: prepared.info, began: began,
		warnings: prepared.warnings, pinned: prepared.pinned, asked: prepared.asked, stopHelpers: func() {},
		log: r.log.With(logRun, prepared.spec.Job.RunID),
	}
	if err := a.leaseGPUs(ctx, prepared.gpus); err != nil {
		return nil, err
	}
	defer a.releaseGPUs(ctx)
	if err := r.reclaimFinal(ctx, a.spec.Job.Final); err != nil {
		return nil, err
	}
	if a.work, err = openWorkspace(r.store, a.spec); err != nil {
		return nil, err
	}
	defer a.closeEgress()
	if err := a.openEgress(); err != nil {
		return nil, errors.Join(err, a.work.discard())
	}
	defer a.closeObserver()
	if err := a.openObserver(ctx); err != nil {
		return nil, errors.Join(err, a.work.discard())
	}
	if err := a.prepare(ctx); err != nil {
		return a.startFailed(ctx, err)
	}
	if err := a.admit(ctx); err != nil {
		return a.startFailed(ctx, err)
	}
	defer a.release()
	if err := a.start(ctx); err != nil {
		return a.startFailed(ctx, err)
	}
	a.supervise(ctx)
	a.release()
	return a.finish(ctx)
}

// markUsed records that an image is in use, for the pruning of other images.
func (r *Runner) markUsed(image string) {
	dir, err := images.DefaultUsageDir()
	if err == nil {
		err = images.MarkUsed(dir, image, time.Now())
	}
	if err != nil { // it only affects the order of pruning
		r.log.Debug("the use of the image was not remembered", logError, err)
	}
}

// prepare writes the journal, copies the files if the transfer requires it, and prepares
// a container in which only init is waiting. It compares what init sees with the plan.
func (a *attempt) prepare(ctx context.Context) error {
	deadline := a.deadline(deadlineSlack)
	if a.copies() {
		deadline = a.deadline(partSlack)
	}
	note := record.Journal{
		Schema: record.JournalSchema, ID: a.spec.Job.RunID, Owner: owner.This().String(),
		Container: a.spec.Job.ContainerName(), Created: time.Now().UTC(), Deadline: deadline.UTC(), Final: a.work.lent,
		Transfer: a.spec.Class.Transfer,
	}
	if err := errors.Join(
		record.WriteJSON(filepath.Join(a.work.record, record.JournalFile), note),
		record.WriteJSON(filepath.Join(a.work.record, record.SpecFile), a.spec),
	); err != nil {
		return record.StateError(a.work.record, "cannot be written", err)
	}
	// Until Prepare succeeds, a container with this name belongs to another run.
	a.nameTaken = true
	if err := a.openTrees(ctx); err != nil {
		return err
	}
	sources := a.work.paths
	var watched chan error
	if a.copies() {
		var err error
		if sources, err = a.openDepot(ctx, a.labels(deadline)); err != nil {
			return err
		}
		// Start the disk monitor concurrently: it takes as long to start as the
		// container.
		watched = make(chan error, 1)
		go func() { watched <- a.startWatcher(context.WithoutCancel(ctx)) }()
	}
	err := a.prepareContainer(ctx, sources)
	if watched != nil {
		watchErr := <-watched
		a.unwatched = watchErr != nil
		err = errors.Join(err, watchErr)
	}
	return err
}

// prepareContainer prepares the container and checks that it matches the plan.
func (a *attempt) prepareContainer(ctx context.Context, sources engine.Sources) (err error) {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", errCanceledBefore, context.Cause(ctx))
	}
	if err := a.checkPinned(); err != nil {
		return err
	}
	if err := a.openOutput(); err != nil {
		return err
	}
	meta := engine.Meta{
		Name: a.spec.Job.ContainerName(), Labels: a.labels(a.deadline(deadlineSlack)), Sources: sources,
		Witness: a.observer.witness(),
	}
	if !a.copies() {
		for _, bind := range a.spec.Class.Binds {
			meta.Stat = append(meta.Stat, bind.Target)
		}
	}
	a.container, err = a.runner.engine.Prepare(ctx, a.spec.Class, meta)
	a.nameTaken = errors.Is(err, engine.ErrNameTaken)
	switch {
	case errors.Is(err, engine.ErrNoSource) && !a.copies():
		return a.notShared(ctx, false, err)
	case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("%w: %w", errCanceledBefore, context.Cause(ctx))
	case err != nil:
		return err
	}
	a.warnings = append(a.warnings, a.container.Warnings()...)
	a.log = a.log.With(logContainer, a.container.Ref().ID)
	a.log.Debug("container prepared")
	return errors.Join(a.checkPrepared(), a.checkMounted(ctx))
}

// deadlineSlack is how long after its time limit a container may still exist before a
// sweep that cannot see its owner considers the owner dead.
const deadlineSlack = time.Hour

// partSlack is the same for the helper containers and the volume of a run whose files are
// copied. They exist before its container, from the first copied file, and after it.
const (
	partSlack = 24 * time.Hour
	// fillBudget bounds the copying of files to the engine.
	fillBudget = partSlack / 2
)

// deadline is the time at which the run is certainly over.
func (a *attempt) deadline(slack time.Duration) time.Time {
	return time.Now().Add(a.limit() + slack)
}

// labels returns the labels of the caller and of evalbox.
func (a *attempt) labels(deadline time.Time) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, a.spec.Job.Labels)
	maps.Copy(labels, map[string]string{
		LabelManaged:  "true",
		LabelRun:      a.spec.Job.RunID,
		LabelName:     a.spec.Job.Name,
		LabelOwner:    owner.This().String(),
		LabelDeadline: deadline.UTC().Format(time.RFC3339),
		LabelSpec:     a.spec.Class.Hash(),
		LabelState:    a.runner.store.Dir(),
	})
	if a.spec.Job.Keep {
		labels[LabelKeep] = "true"
	}
	return labels
}

// start gives the program's user access to ./final and starts the program.
func (a *attempt) start(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", errCanceledBefore, context.Cause(ctx))
	}
	if err := a.checkPinned(); err != nil {
		return err
	}
	if err := a.beginObserving(ctx); err != nil {
		return err
	}
	if err := a.work.handOver(ctx); err != nil {
		return err
	}
	if a.hooks.Started != nil {
		a.hooks.Started()
	}
	streams := engine.Streams{Stdin: a.io.Stdin, Stdout: a.stdout, Stderr: a.stderr}
	switch err := a.container.Start(context.WithoutCancel(ctx), a.spec.Job, streams); {
	case err == nil:
		a.facts.Accepted = true
	case errors.Is(err, engine.ErrUnavailable):
		// The answer was lost, so the program may or may not be running. Its end will
		// show.
		a.log.Debug("the answer to the start was lost", logError, err)
	default:
		return err
	}
	a.started = time.Now()
	a.observer.started()
	a.log.Debug("program started")
	helping, stop := context.WithCancel(context.WithoutCancel(ctx))
	a.stopHelpers = stop
	a.watch(helping)
	return nil
}

// errCanceledBefore means that the caller canceled before the program started.
var errCanceledBefore = errors.New("canceled before the program started")

// abandon removes everything that a run created before its program could start. The
// program's user never saw ./final.
func (a *attempt) abandon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupBudget)
	defer cancel()
	var errs []error
	if !a.nameTaken {
		// By name: the container may exist even if the answer to its creation was lost.
		// This waits until the name is free, because the run may be retried.
		errs = append(errs, a.runner.engine.Remove(ctx, a.spec.Job.ContainerName()))
	}
	errs = append(errs, a.closeDepot(ctx))
	a.closeOutput()
	return errors.Join(append(errs, a.work.discard())...)
}

// startFailed ends a run whose program never ran. If the host or the request is at fault,
// nothing is left behind. If the engine refused to start the container, there is a
// result, for the record.
func (a *attempt) startFailed(ctx context.Context, startErr error) (*result.Result, error) {
	if a.container == nil && !errors.Is(startErr, engine.ErrNotStarted) || a.unwatched || !isEngines(startErr) {
		return nil, errors.Join(startErr, a.abandon(ctx))
	}
	a.facts.StartError = startErr
	if err := a.work.putBack(); err != nil {
		a.warnings = append(a.warnings, err.Error())
	}
	res, err := a.finish(ctx)
	return res, errors.Join(startErr, err)
}

// isEngines reports whether the engine caused an error, not the host, the request or the
// caller.
func isEngines(err error) bool {
	var path *PathError
	var field *policy.FieldError
	return !errors.As(err, &path) && !errors.As(err, &field) && !errors.Is(err, errCanceledBefore) && !errors.Is(err, ErrUnobserved) &&
		!errors.Is(err, errNotShared) && !errors.Is(err, ErrUnenforceable) && !errors.Is(err, record.ErrNoSpace)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
