package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/result"
)

// cleanupBudget bounds the removal of a container and all that goes with it.
const cleanupBudget = time.Minute

// Run runs one program and says what it did. It blocks until the program has
// ended, its outputs are collected and its container is gone.
//
// A program that crashes, hangs or is killed gives a result, not an error; so does
// a command that the image does not have (start_failed, 126 or 127). An error
// means that the sandbox failed or refused; when the container had been created by
// then, a result with the status start_failed or engine_lost comes with the error
// and holds what was seen.
//
// When ctx ends, the program gets SIGTERM, the grace period, then SIGKILL, and
// the result has the status canceled; before the start there is only the error
// of ctx. Closing req.Kill skips the grace period.
func (r *Runner) Run(ctx context.Context, req Request) (*result.Result, error) {
	began := time.Now()
	prepared, err := r.plan(ctx, req)
	if err != nil {
		return nil, err
	}
	r.markUsed(prepared.spec.Class.Image.ID)
	a := &attempt{
		runner: r, req: prepared.request, spec: prepared.spec, info: prepared.info, began: began,
		warnings: prepared.warnings, pinned: prepared.pinned,
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
	if err := a.create(ctx); err != nil {
		return nil, errors.Join(err, a.abandon(ctx))
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

// markUsed remembers that an image is in use, for whoever makes room for others.
func (r *Runner) markUsed(image string) {
	dir, err := images.DefaultUsageDir()
	if err == nil {
		err = images.MarkUsed(dir, image, time.Now())
	}
	if err != nil { // nothing depends on it but what is pruned first
		r.log.Debug("the use of the image was not remembered", logError, err)
	}
}

// create writes the journal, makes the container and connects to it.
func (a *attempt) create(ctx context.Context) error {
	deadline := a.deadline(deadlineSlack)
	if a.copies() {
		deadline = a.deadline(partSlack)
	}
	note := journal{
		Schema: journalSchema, ID: a.spec.Job.RunID, Owner: owner.This().String(),
		Container: a.spec.Job.ContainerName(), Created: time.Now().UTC(), Deadline: deadline.UTC(), Final: a.work.lent,
		Transfer: a.spec.Class.Transfer,
	}
	if err := errors.Join(
		writeJSON(filepath.Join(a.work.record, journalFile), note),
		writeJSON(filepath.Join(a.work.record, specFile), a.spec),
	); err != nil {
		return stateError(a.work.record, "cannot be written", err)
	}
	// A container of the run's name that is there now is another's.
	a.nameTaken = true
	if err := a.openTrees(ctx); err != nil {
		return err
	}
	a.nameTaken = false
	if !a.copies() {
		return a.createContainer(ctx, a.work.paths, a.labels(deadline))
	}
	mounts, err := a.openDepot(ctx, a.labels(deadline))
	if err != nil {
		return err
	}
	// The files may have taken long.
	labels := a.labels(a.deadline(deadlineSlack))
	watched := make(chan error, 1)
	go func() { watched <- a.startWatcher(context.WithoutCancel(ctx)) }()
	err = a.createContainer(ctx, mounts, labels)
	return errors.Join(err, <-watched)
}

// createContainer makes the container and connects to it.
func (a *attempt) createContainer(ctx context.Context, mounts HostPaths, labels map[string]string) error {
	// A call that is cut short goes on in the engine: a container would appear
	// after its removal. So the calls that change something are not canceled;
	// they are short, and bounded.
	ctx = context.WithoutCancel(ctx)
	var (
		err      error
		warnings []string
	)
	a.container, warnings, err = a.runner.engine.Create(ctx, a.spec, mounts, labels)
	a.warnings = append(a.warnings, warnings...)
	if err != nil {
		a.nameTaken = errors.Is(err, ErrNameTaken)
		return err
	}
	a.log = a.log.With(logContainer, a.container)
	a.log.Debug("container created")
	if a.streams, err = a.runner.engine.Attach(ctx, a.container, a.spec.Job.Stdin); err != nil {
		return err
	}
	return a.openOutput()
}

// deadlineSlack is how long after its time limit a container may still be there
// before a sweep takes its owner, which it cannot see, for dead.
const deadlineSlack = time.Hour

// partSlack is the same for the parts of a run whose files are copied. They are
// there before its container, from the first file that is sent, and after it.
const (
	partSlack = 24 * time.Hour
	// fillBudget bounds how long files may be sent.
	fillBudget = partSlack / 2
)

// deadline is when the run is over for certain.
func (a *attempt) deadline(slack time.Duration) time.Time {
	return time.Now().Add(a.limit() + slack)
}

// labels are the caller's and ours.
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
		LabelState:    a.runner.store.dir,
	})
	if a.spec.Job.Keep {
		labels[LabelKeep] = "true"
	}
	return labels
}

// start hands ./final over and starts the program. The reader of the streams
// runs before, so that not even the first byte can block the program.
func (a *attempt) start(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", errCanceledBefore, context.Cause(ctx))
	}
	if err := a.checkPinned(); err != nil {
		return err
	}
	if err := a.work.handOver(ctx); err != nil {
		return err
	}
	waitCtx, cancelWait := context.WithCancel(context.WithoutCancel(ctx))
	a.cancelWait = cancelWait
	a.exits = a.runner.engine.Wait(waitCtx, a.container)
	a.usage = a.newUsageWatch(waitCtx)
	a.readStreams()
	if a.req.Started != nil && !a.spec.Job.Observe.active() {
		a.req.Started()
	}
	switch err := a.runner.engine.Start(context.WithoutCancel(ctx), a.container); {
	case err == nil:
	case isLoss(err):
		// The answer was lost, which says nothing about the program: it may
		// run. Finding the container again will tell.
		a.log.Debug("the answer to the start was lost", logError, err)
		a.facts.interrupted = true
	default:
		// The wait for a next exit would never end.
		cancelWait()
		return err
	}
	if err := a.checkMounted(context.WithoutCancel(ctx)); err != nil {
		return err // the program is ended, and nothing of it is kept
	}
	if err := a.letGo(ctx); err != nil {
		return err // likewise, and it never began
	}
	a.started = time.Now()
	a.log.Debug("program started")
	a.feedStdin()
	a.watch(waitCtx)
	return nil
}

// errCanceledBefore means that the caller gave up before the program started.
var errCanceledBefore = errors.New("canceled before the program started")

// abandon removes what a run that never started has made. The program's user
// never saw ./final.
func (a *attempt) abandon(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupBudget)
	defer cancel()
	var errs []error
	if a.cancelWait != nil {
		a.cancelWait()
	}
	if a.streams != nil {
		_ = a.streams.Close() // nothing was printed
	}
	if a.reading {
		close(a.noMore)
		<-a.readerDone
	}
	// By name: a create whose answer was lost may have made it all the same. A
	// name that was taken is another run's.
	if !a.nameTaken {
		errs = append(errs, a.runner.engine.Remove(ctx, a.spec.Job.ContainerName()))
	}
	errs = append(errs, a.closeDepot(ctx))
	a.closeOutput()
	return errors.Join(append(errs, a.work.discard())...)
}

// startFailed ends a run whose program never ran. What is wrong with the host or
// the request leaves nothing behind; an engine that refused to start the
// container gives a result, for the record.
func (a *attempt) startFailed(ctx context.Context, startErr error) (*result.Result, error) {
	var path *PathError
	if errors.As(startErr, &path) || errors.Is(startErr, errCanceledBefore) || errors.Is(startErr, ErrUnobserved) {
		return nil, errors.Join(startErr, a.abandon(ctx))
	}
	a.facts.startError = startErr
	noCommand := a.findNoCommand(ctx, startErr)
	if err := a.work.putBack(); err != nil {
		a.warnings = append(a.warnings, err.Error())
	}
	_ = a.streams.Close() // they would never end by themselves
	res, err := a.finish(ctx)
	if noCommand {
		return res, err // a result like that of a container with an init
	}
	return res, errors.Join(startErr, err)
}

// findNoCommand tells a command that the image does not have from an engine that
// failed. Where there is no init, the engine runs the command itself, and refuses.
func (a *attempt) findNoCommand(ctx context.Context, startErr error) bool {
	if a.spec.Class.Init || !strings.Contains(startErr.Error(), fmt.Sprintf("exec: %q", a.spec.Job.Command[0])) {
		return false
	}
	state, err := a.runner.engine.Inspect(context.WithoutCancel(ctx), a.container)
	if err != nil || state.Running || state.ExitCode != 126 && state.ExitCode != 127 {
		return false
	}
	a.facts.noCommand = state.ExitCode
	return true
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
