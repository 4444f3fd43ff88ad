package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/egress"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/gpu"
	"github.com/evalbox/evalbox/sandbox/handover"
	"github.com/evalbox/evalbox/sandbox/observe"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stage"
	"github.com/evalbox/evalbox/sandbox/stream"
	"github.com/evalbox/evalbox/sandbox/uid"
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
// was observed. A path that cannot be used, such as a script that does not exist, is a
// [*PathError]; another field of the request is a [*policy.FieldError]; several are joined.
//
// When ctx ends, the program gets SIGTERM, the grace period, then SIGKILL, and the result
// has the status canceled. If ctx ends before the start, Run only returns the error of
// ctx. Closing [Hooks].Kill skips the grace period.
func (r *Runner) Run(ctx context.Context, req Request, opts ...RunOption) (*result.Result, error) {
	if err := r.isOpen(); err != nil {
		return nil, err
	}
	var o runOptions
	for _, opt := range opts {
		opt.apply(&o)
	}
	req.Stdin = o.io.Stdin != nil
	if o.named = req.ID != ""; !o.named {
		req.ID = record.NewID(time.Now())
	}
	file, err := r.workFile(o.work, req)
	if err != nil {
		return nil, err
	}
	r.endOthers(ctx, file)
	if res, ok, err := r.resumeWork(ctx, file, o); ok || err != nil {
		return res, err
	}
	o.workFile = file
	res, err := r.runOnce(ctx, req, o)
	if errors.Is(err, ErrBusy) && r.behind.Wait(ctx) {
		res, err = r.runOnce(ctx, req, o) // this runner itself had it, for the run of a dead controller
	}
	var elsewhere *stage.NotSharedError
	if errors.As(err, &elsewhere) && (req.Transfer == "" || req.Transfer == spec.TransferAuto) {
		// Nothing has run, and nothing is left behind.
		req.Transfer = spec.TransferCopy
		return r.runOnce(ctx, req, o)
	}
	return res, err
}

// runOnce is Run with the transfer that the plan chooses: the ten steps of a run.
func (r *Runner) runOnce(ctx context.Context, req Request, o runOptions) (_ *result.Result, err error) {
	began := time.Now()
	steps := &steps{tracer: tracerOf(ctx)}
	defer func() { steps.end(err) }()
	steps.begin(StepPlan)
	plan, err := r.plan(ctx, req) // 1 plan, 2 image
	if err == nil {
		err = checkPeers(req.StopWhen, o.hooks.Peers)
	}
	if err != nil {
		return nil, err
	}
	steps.begin(StepLease)
	plan.named, plan.more = o.named, o.hooks.More
	a := newRun(r, plan, o, began)
	a.steps = steps
	if a.secrets, err = readSecrets(req.Secrets); err != nil {
		return nil, err
	}
	if err := a.leaseGPUs(ctx); err != nil { // 3 lease
		return nil, err
	}
	defer a.releaseGPUs(ctx)
	a.takeWaiting(ctx)
	next := sync.OnceFunc(a.prepareNext)
	defer next()
	defer a.releaseUID()
	if err := a.leaseUID(ctx, a.deadline(deadlineSlack), a.yield); err != nil {
		return nil, err
	}
	steps.begin(StepStage)
	defer func() { a.endWork() }()
	if err := a.openStage(ctx); err != nil { // 4 stage
		return nil, errors.Join(err, a.dropWaiting(ctx))
	}
	ctx, done := a.heed(ctx)
	defer done()
	a.at("staged")
	steps.begin(StepPrepare)
	if err := a.prepare(ctx); err != nil { // 5 prepare
		return a.startFailed(ctx, err)
	}
	a.at("prepared")
	steps.end(nil)
	defer func() { a.release() }()
	if err := a.admit(ctx); err != nil {
		return a.startFailed(ctx, err)
	}
	steps.begin(StepStart)
	if err := a.start(ctx); err != nil { // 6 start
		return a.startFailed(ctx, err)
	}
	a.at("accepted")
	steps.begin(StepStream)
	r.lookBehind()
	if a.spare {
		defer time.AfterFunc(nextDelay, next).Stop()
	} else {
		next()
	}
	a.supervise(ctx) // 7 stream, 8 end
	a.at("ended")
	a.release()
	return a.finish(ctx) // 9 collect, decide, write the result; 10 remove
}

// nextDelay is how long a program has the machine to itself before the pool prepares the next
// container: most of the programs that run in a loop have ended by then. It has none if the next run
// would find no container.
const nextDelay = 250 * time.Millisecond

// prepareNext lets the pool, or the keeper's, prepare the next container.
func (a *run) prepareNext() {
	a.runner.pool.refill()
	a.leaveKeeper()
}

// run is one run on its way from its plan to its result. Its methods are called by one
// goroutine, in the order of runOnce; warn and stop are safe for concurrent use.
type run struct {
	planned
	runner *Runner
	io     IO
	hooks  Hooks
	log    *slog.Logger
	warn   warnings
	// steps are reported to the tracer of the caller.
	steps *steps

	// empty says that ./final is emptied before the program starts.
	empty bool

	// The rooms of the run, in the order in which they are opened.
	gpus     *gpu.Lease
	uid      *uid.Lease
	stage    *stage.Stage
	proxy    *egress.Session
	observer *observe.Observer
	output   *stream.Output
	meter    *meter

	// journal is what another process needs to finish the run.
	journal record.Journal
	// secrets are the values of the job's secrets, as NAME=value. They are written nowhere.
	secrets []string
	// container is nil until it is prepared. waited says that it was, and waited for this run;
	// cold, if it was not, why, if the runner has a pool.
	container engine.Container
	waited    bool
	cold      string
	// spare says that another container of the class was waiting.
	spare bool
	// warmUp is [engine.Meta].Warm.
	warmUp []string
	// keeper is the conversation with the keeper of the pool; nil if there is none.
	keeper *handover.Conn
	// nameTaken says that the container of this run's name belongs to another run.
	nameTaken bool
	// left says that the container could not be removed, and may contain processes.
	left bool
	// unmonitored says that the disk of the copied files cannot be monitored.
	unmonitored bool
	// leave ends when a run that is adopted is to be left to another process; nil for never.
	leave context.Context //nolint:containedctx // it is of the caller, who waits
	// release says that the program has ended; see [Hooks]. idle says that it uses no GPU any more.
	release func()
	idle    func()
	// workFile is the note of the job that the run is done for, and endWork removes it; see
	// [Work].
	workFile string
	endWork  func()

	// Times of evalbox's own monotonic clock.
	began, started, ended time.Time

	// stopWatch ends the monitoring of the program's disk.
	stopWatch context.CancelFunc
	// unreachable says that the engine could not be reached with the last request to end the run. It is
	// false if the engine did not answer.
	unreachable atomic.Bool
	// stops receives the first request to end the run.
	stops chan outcome.StopReason

	score     result.ScoreScanner
	traceback result.TracebackScanner
	evidence  outcome.Evidence
}

func newRun(r *Runner, plan planned, o runOptions, began time.Time) *run {
	a := &run{
		planned: plan, runner: r, io: o.io, hooks: o.hooks, workFile: o.workFile, empty: o.empty, began: began,
		log:     r.log.With(logRun, plan.spec.Job.RunID),
		steps:   &steps{},
		release: func() {}, idle: func() {}, stopWatch: func() {}, endWork: func() {}, stops: make(chan outcome.StopReason, 1),
	}
	a.evidence.SoftSignal = int(spec.SoftSignals[plan.spec.Job.SoftSignal])
	a.evidence.Limit = seconds(plan.spec.Job.TimeoutSeconds)
	if err := markUsed(plan.spec.Class.Image.ID); err != nil { // it only affects the order of pruning
		r.log.Debug("the use of the image was not remembered", logError, err)
	}
	for _, warning := range plan.warnings {
		a.warn.add("%s", warning)
	}
	return a
}

// at marks a step, for tests.
func (a *run) at(step string) {
	if a.runner.at != nil {
		a.runner.at(step, a)
	}
}

// markUsed records that an image is in use, for the pruning of other images.
func markUsed(image string) error {
	dir, err := images.DefaultUsageDir()
	if err != nil {
		return err
	}
	return images.MarkUsed(dir, image, time.Now())
}

// warnings collects the warnings of a result. It is safe for concurrent use.
type warnings struct {
	mu   sync.Mutex
	list []string
}

func (w *warnings) add(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, fmt.Sprintf(format, args...))
}

// sorted returns the warnings in their order in a result.
func (w *warnings) sorted() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.list)
	return slices.Clone(w.list)
}

// stop asks for the end of the run; only the first reason counts. It does not block.
func (a *run) stop(reason outcome.StopReason) {
	select {
	case a.stops <- reason:
	default:
	}
}

// openStage makes the record of the run and everything that its container mounts. After an
// error nothing is left behind.
func (a *run) openStage(ctx context.Context) (err error) {
	r := a.runner
	if err := r.recoverFinal(ctx, a.spec.Job.Final); err != nil {
		return err
	}
	if err := a.beginWork(ctx); err != nil {
		return err
	}
	a.stage, err = stage.Open(stage.Options{Store: r.store, Engine: r.engine, Plan: a.spec, Verified: a.verified,
		Waited: a.waited, Empty: a.empty, Warn: a.warn.add, Stop: a.stop, Log: a.log})
	if err != nil {
		return err
	}
	if a.proxy, err = egress.Open(a.spec.Job, a.stage.Dir, a.warn.add); err == nil {
		if dir := a.proxy.Dir(); dir != "" {
			a.stage.Sources[spec.RoleEgress] = dir
		}
		a.observer, err = observe.Open(ctx, a.spec, a.layout, a.stage.Dir, a.stage.Sources, r.observeWait, a.warn.add)
	}
	if err != nil {
		a.proxy.Close()
		return errors.Join(err, a.stage.Discard(context.WithoutCancel(ctx)))
	}
	return nil
}

// prepare writes the journal, sends the files if they are copied, and prepares a container
// in which only init is waiting. It compares the container with the plan.
func (a *run) prepare(ctx context.Context) error {
	deadline := a.deadline(a.slack())
	dir := a.stage.Dir
	// The plan comes first: a journal that names a container has a plan.
	if err := record.WriteJSON(filepath.Join(dir, record.SpecFile), a.spec); err != nil {
		return record.StateError(dir, "cannot be written", err)
	}
	a.journal = record.Journal{
		Schema: record.JournalSchema, ID: a.spec.Job.RunID, Owner: owner.This().String(), Engine: a.info.ID,
		Container: a.spec.Job.ContainerName(), Created: time.Now().UTC(), Deadline: deadline.UTC(),
		Transfer: a.spec.Class.Transfer,
	}
	if err := a.writeJournal(); err != nil {
		return err
	}
	a.at("journaled")
	if waits, ok := a.runner.engine.(engine.Waits); ok && a.hooks.Waiting != nil {
		defer waits.OnWait(a.spec.Job.ContainerName(), a.hooks.Waiting)()
	}
	// Until it is prepared, a container with this name belongs to another run.
	a.nameTaken = !a.waited
	sources, err := a.stage.Send(ctx, a.labels(deadline))
	if errors.Is(err, engine.ErrNotPlaced) { // the files go to the container of the run
		return errors.Join(err, a.openOutput())
	}
	if err != nil {
		return err
	}
	// The disk monitor takes as long to start as the container.
	ready := make(chan error, 1)
	go func() { ready <- a.stage.Ready(context.WithoutCancel(ctx)) }()
	err = a.prepareContainer(ctx, sources)
	monitorErr := <-ready
	a.unmonitored = monitorErr != nil && !errors.Is(monitorErr, engine.ErrNotPlaced)
	return errors.Join(err, monitorErr)
}

// writeJournal replaces the journal.
func (a *run) writeJournal() error {
	if err := record.WriteJSON(filepath.Join(a.stage.Dir, record.JournalFile), a.journal); err != nil {
		return record.StateError(a.stage.Dir, "cannot be written", err)
	}
	return nil
}

// prepareContainer prepares the container and checks that it matches the plan. One that has waited is
// prepared, and was checked.
func (a *run) prepareContainer(ctx context.Context, sources engine.Sources) (err error) {
	if ctx.Err() != nil {
		return outcome.Canceled(ctx)
	}
	if err := a.verified.Check(); err != nil {
		return err
	}
	if err := a.openOutput(); err != nil {
		return err
	}
	if a.waited {
		a.noteWarnings()
		return a.checkIsolation()
	}
	return a.create(ctx, sources, a.deadline(deadlineSlack))
}

func (a *run) noteWarnings() {
	for _, warning := range a.container.Warnings() {
		a.warn.add("%s", warning)
	}
}

// create creates the container and compares it with the plan. until is when its run is certainly
// over.
func (a *run) create(ctx context.Context, sources engine.Sources, until time.Time) (err error) {
	meta := engine.Meta{
		Name: a.spec.Job.ContainerName(), Labels: a.labels(until), Sources: sources,
		Witness: a.observer.Witness(),
	}
	if !a.stage.Copied() {
		for _, bind := range a.spec.Class.Binds {
			meta.Stat = append(meta.Stat, bind.Target)
		}
	}
	meta.Warm = a.warmUp
	a.container, err = a.runner.engine.Prepare(ctx, a.spec.Class, meta)
	a.nameTaken = errors.Is(err, engine.ErrNameTaken)
	switch {
	case errors.Is(err, engine.ErrNoSource) && !a.stage.Copied():
		if err := a.verified.Check(); err != nil {
			return err // it is not here either, any more
		}
		return a.notShared(ctx, &stage.NotSharedError{Err: err})
	case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return outcome.Canceled(ctx)
	case err != nil:
		return err
	}
	a.noteWarnings()
	a.log = a.log.With(logContainer, a.container.Ref().ID)
	a.log.Debug("container prepared")
	// Both: the container of an engine that does not share the files is not used anyway.
	ready := a.container.Ready()
	return errors.Join(engine.CheckReady(a.spec.Class, ready), a.checkIsolation(), a.notShared(ctx, a.stage.CheckMounted(ready)))
}

// openOutput makes the files of the record that the streams are recorded in.
func (a *run) openOutput() (err error) {
	job := a.spec.Job
	if a.meter, err = a.newMeter(); err != nil {
		return err
	}
	watch := []io.Writer{&a.score, a.meter}
	if a.io.WatchStdout != nil {
		watch = append(watch, a.io.WatchStdout)
	}
	a.output, err = stream.OpenOutput(a.stage.Dir, stream.Options{
		FileBytes: job.StreamFileBytes, CaptureStdout: int(job.CaptureStdoutBytes), CaptureStderr: int(job.CaptureStderrBytes),
		LimitBytes: job.OutputLimitBytes, Over: func() { a.stop(outcome.StopOutputLimit) },
		LiveStdout: a.io.Stdout, LiveStderr: a.io.Stderr,
		WatchStdout: watch, WatchStderr: []io.Writer{&a.traceback},
		Resume: a.evidence.Recovered,
	})
	return err
}

// deadlineSlack is how long after its time limit a container may still exist before a
// garbage collection that cannot see its owner considers the owner dead.
const deadlineSlack = time.Hour

// slack is [deadlineSlack] of the whole run.
func (p planned) slack() time.Duration {
	if p.spec.Class.Transfer == spec.TransferCopy {
		return stage.PartSlack
	}
	return deadlineSlack
}

// deadline is the time at which the run is certainly over, before it has started.
func (a *run) deadline(slack time.Duration) time.Time { return time.Now().Add(a.limit() + slack) }

// limit is how long the program may take, and wait for others to end before.
func (a *run) limit() time.Duration {
	if a.hooks.Admit != nil {
		return 2 * a.programLimit()
	}
	return a.programLimit()
}

// programLimit is how long the program may take once its container's init has the job.
func (a *run) programLimit() time.Duration { return programLimit(a.spec.Job) }

func programLimit(job spec.Job) time.Duration { return seconds(job.TimeoutSeconds + job.GraceSeconds) }

// labels returns the labels of the caller and of evalbox.
func (a *run) labels(deadline time.Time) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, a.spec.Job.Labels)
	maps.Copy(labels, map[string]string{
		spec.LabelManaged:  "true",
		spec.LabelRun:      a.spec.Job.RunID,
		spec.LabelName:     a.spec.Job.Name,
		spec.LabelOwner:    owner.This().String(),
		spec.LabelDeadline: deadline.UTC().Format(time.RFC3339),
		spec.LabelSpec:     engine.ClassHash(a.spec.Class),
		spec.LabelState:    a.runner.store.Dir(),
	})
	if a.spec.Job.Keep {
		labels[spec.LabelKeep] = "true"
	}
	return labels
}

// admit waits until the program may start. The wait does not count as setup time.
func (a *run) admit(ctx context.Context) error {
	if a.hooks.Admit != nil {
		asked := time.Now()
		release, err := a.hooks.Admit(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", outcome.ErrCanceled, err)
		}
		if release != nil {
			a.release = sync.OnceFunc(release)
		}
		a.began = a.began.Add(time.Since(asked))
	}
	if a.hooks.Begin == nil {
		return nil
	}
	if err := a.hooks.Begin(a.spec.Job.RunID); err != nil {
		return fmt.Errorf("%w: %w", outcome.ErrCanceled, err)
	}
	return nil
}

// start starts the program.
func (a *run) start(ctx context.Context) error {
	if ctx.Err() != nil {
		return outcome.Canceled(ctx)
	}
	if err := a.verified.Check(); err != nil {
		return err
	}
	if err := a.observer.Begin(ctx, a.container); err != nil {
		return err
	}
	if err := a.stage.Begin(ctx); err != nil {
		return err
	}
	a.at("begun")
	// From here on the program may run, and another process can finish the run.
	a.journal.Started = time.Now().UTC()
	a.journal.Deadline = time.Now().Add(a.programLimit() + a.slack()).UTC() // the wait is over
	a.journal.Ref, a.journal.Warnings = record.Ref(a.container.Ref()), a.warn.sorted()
	if err := a.writeJournal(); err != nil {
		return err
	}
	a.at("noted")
	if a.hooks.Started != nil {
		a.hooks.Started()
	}
	a.meter.begin(time.Now())
	streams := engine.Streams{Stdin: a.io.Stdin, Stdout: a.output.Stdout, Stderr: a.output.Stderr}
	switch err := a.container.Start(context.WithoutCancel(ctx), a.spec.Job.WithSecrets(a.secrets), streams); {
	case err == nil:
		a.evidence.Accepted = true
	case errors.Is(err, engine.ErrUnavailable):
		// The answer was lost, so the program may or may not be running. Its end will
		// show.
		a.log.Debug("the answer to the start was lost", logError, err)
	default:
		return err
	}
	a.started = time.Now()
	a.observer.Started()
	a.log.Debug("program started")
	if a.hooks.Running != nil {
		a.hooks.Running()
	}
	a.watch(ctx)
	return nil
}

// watch monitors the disk of the program, and measures it, until [run.finish].
func (a *run) watch(ctx context.Context) {
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	a.stopWatch = stop
	a.stage.Watch(watching)
	a.meter.watch(watching, a)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
