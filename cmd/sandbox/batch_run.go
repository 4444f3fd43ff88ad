package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// Why a batch ended before all was done.
var (
	errBudget = errors.New("the time budget is used up")
	errEngine = errors.New("the engine cannot be reached: nothing more is started")
)

// failuresError means that too many scripts failed.
type failuresError struct{ count int }

func (e *failuresError) Error() string {
	if e.count == 1 {
		return "a script failed: nothing more was started"
	}
	return strconv.Itoa(e.count) + " scripts failed: nothing more was started"
}

// batchRun is a batch on its way.
type batchRun struct {
	app       *app
	flags     batchFlags
	settings  settings.Settings
	task      evaluate.TaskDescription
	evaluator *evaluate.Evaluator
	setup     string
	entries   []batchEntry
	results   *evaluate.ResultsFile
	// all has the known result of each entry, in their order; nil for none.
	all []*evaluate.Evaluation
	// todo are the indices of those that are to run.
	todo []int
	// earlier has the earlier inconclusive result of each entry; nil for none.
	earlier  []*evaluate.Evaluation
	failures int
	progress progress
	// debugged counts the debug commands that failed.
	debugged atomic.Int64
	// failed has the first errors that are not a script's.
	failed []error
}

func (a *app) batch(ctx context.Context, f batchFlags, args []string) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	task, taskErr := evaluate.LoadTask(f.task)
	listed, listErr := f.listScripts(ctx, args)
	entries, err := f.entries(listed)
	if err := errors.Join(taskErr, listErr, err); err != nil {
		return err
	}
	runner, err := a.runner(s)
	if err != nil {
		return err
	}
	defer runner.Close()
	opts, err := a.evaluateOptions(ctx, runner, s, f.evaluateFlags, "sandbox batch")
	if err != nil {
		return err
	}
	opts.Request.GPUWait, f.gpus = gpuWait(s, f.parallel, s.Timeout()), s.GPUs != ""
	b := &batchRun{app: a, flags: f, settings: s, task: task, entries: entries}
	if f.parallel > 1 { // one at a time waits as a single run does
		opts.Hooks.Waiting = func(why string) { b.progress.once("runs wait for each other's GPUs: " + why) }
	}
	admit := sandbox.Slots(f.parallel)
	if f.parallel == 1 {
		admit = evaluate.InOrder(admit) // also when the next container is ready first
	}
	opts.Hooks.Admit = func(ctx context.Context) (func(), error) { return b.progress.admitted(admit(ctx)) }
	if b.evaluator, err = evaluate.New(a.watched(runner), opts); err != nil {
		return err
	}
	// A refusal that every run would get is reported once, before anything runs.
	more := map[string]string{"debug command": f.debugCommand, "max retries": strconv.Itoa(f.maxRetries)}
	if b.setup, err = b.evaluator.Setup(ctx, task, s.Timeout(), more); err != nil {
		return err
	}
	unlock, err := evaluate.LockWorkspace(f.workspace)
	if err != nil {
		return err
	}
	defer func() { _ = unlock() }() // it ends with this process at the latest
	results, report, err := evaluate.OpenResults(f.results, evaluate.ReadOptions{Brief: !s.JSON})
	if err != nil {
		return err
	}
	defer func() { _ = results.Close() }() // each line is on the disk already
	b.results = results
	b.resume(report)
	ended := b.run(ctx)
	a.ended()
	return b.report(ended)
}

// inFlight is the number of scripts in progress at once. While N programs run, the
// containers of the next programs are made and those of the last ones are removed. There
// are exceptions: a count of failures must not begin more scripts, a container already
// holds its GPUs, and a repair must not overlap with another script unless N allows it.
func (f batchFlags) inFlight() int {
	if f.maxFailures > 0 || f.gpus || f.debugCommand != "" {
		return f.parallel
	}
	return f.parallel + min(f.parallel, maxPrepared)
}

// maxPrepared bounds the containers that are made before their programs may start.
const maxPrepared = 4

// gpuWait is how long a run waits for GPUs. Concurrent runs with the same time limit wait
// for each other: at most until all earlier ones have had their time.
func gpuWait(s settings.Settings, parallel int, timeout time.Duration) time.Duration {
	if s.GPUs == "" || parallel == 1 {
		return s.GPUWait
	}
	const slack = 10 * time.Minute // of each run, for its image, outputs and grading
	each := timeout + slack
	if each > time.Duration(1<<62)/time.Duration(parallel) {
		return max(s.GPUWait, 1<<62)
	}
	return max(s.GPUWait, time.Duration(parallel)*each)
}

// resume takes over the results of an earlier batch, and says so.
func (b *batchRun) resume(report evaluate.ReadReport) {
	wanted := make([]evaluate.Evaluation, len(b.entries))
	for i, e := range b.entries {
		wanted[i] = e.asked(b.task.CompetitionID, b.setup)
	}
	known := evaluate.Resume(wanted, report.Evaluations)
	b.all, b.earlier = known.Known, known.Earlier
	for i, e := range b.all {
		if e == nil {
			b.todo = append(b.todo, i)
			continue
		}
		b.all[i] = b.kept(*e)
	}
	if report.Torn > 0 {
		b.app.warn(fmt.Sprintf("%s:%d: the line was cut and is dropped; its script runs again", b.flags.results, report.Torn))
	}
	if text := render.Resumption(known, len(b.entries), b.flags.results); text != "" && !b.settings.Quiet {
		b.app.say(text)
	}
}

// kept is the part of an evaluation that the end of the batch needs.
func (b *batchRun) kept(e evaluate.Evaluation) *evaluate.Evaluation {
	e = e.Bounded()
	if !b.settings.JSON {
		e.Stdout, e.Stderr, e.ErrorTraceback, e.ErrorSummary = "", "", nil, ""
	}
	return &e
}

// run evaluates the remaining scripts. The error is the reason of an early end.
func (b *batchRun) run(ctx context.Context) error {
	if b.flags.budget > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, b.flags.budget, errBudget)
		defer cancel()
	}
	b.progress.start(b.app, b.settings.Quiet, b.task.MetricDirection, len(b.entries), len(b.todo))
	defer b.progress.stop()
	for _, e := range b.all {
		if e != nil {
			b.progress.known(*e)
		}
	}
	defer context.AfterFunc(ctx, func() {
		b.progress.say(fmt.Sprintf("%v: ending what runs; Ctrl-C ends it at once", context.Cause(ctx)))
	})()
	schedule := evaluate.Schedule{
		Parallel: b.flags.inFlight(),
		Ended:    func(i int, item evaluate.BatchItem) { b.ended(ctx, b.todo[i], item) },
		Enough:   func(_ int, item evaluate.BatchItem) error { return b.enough(item) },
		Done:     func(_ int, item evaluate.BatchItem) error { return b.done(ctx, item) },
	}
	return schedule.Run(ctx, len(b.todo), func(ctx context.Context, i int) evaluate.BatchItem {
		return b.one(ctx, b.entries[b.todo[i]], b.earlier[b.todo[i]])
	})
}

// one evaluates one script, of which an earlier evaluation may be known.
func (b *batchRun) one(ctx context.Context, entry batchEntry, earlier *evaluate.Evaluation) evaluate.BatchItem {
	item := evaluate.BatchItem{Name: entry.name}
	solution, err := entry.solution()
	if err != nil {
		item.Evaluation = entry.asked(b.task.CompetitionID, b.setup)
		item.Evaluation.Failure, item.Err = err.Error(), err
		return item
	}
	timeout := b.settings.Timeout()
	if b.flags.debugCommand != "" {
		_, item.Evaluation, item.Err = b.evaluator.EvaluateWithRetry(ctx, solution, b.task, evaluate.DefaultPipelineConfig(),
			b.debug, evaluate.RetryOptions{
				MaxRetries: &b.flags.maxRetries, Timeout: timeout, Name: entry.name, Seed: entry.seed, Setup: b.setup, Workspace: entry.folder, Earlier: earlier,
			})
		return item
	}
	item.Evaluation, item.Err = b.evaluator.Evaluate(ctx, evaluate.Job{
		Solution: solution, Task: b.task, Timeout: timeout, Name: entry.name, Seed: entry.seed, Setup: b.setup, Workspace: entry.folder, Earlier: earlier,
	})
	if refused := new(evaluate.ScriptError); errors.As(item.Err, &refused) {
		item.Err = nil
	}
	return item
}

// debug repairs a script, and counts the repairs that fail.
func (b *batchRun) debug(ctx context.Context, solution evaluate.SolutionScript, failure evaluate.Failure) (evaluate.SolutionScript, error) {
	b.progress.repair(1)
	defer b.progress.repair(-1)
	repaired, err := debugCommand(b.flags.debugCommand)(ctx, solution, failure)
	if err != nil && ctx.Err() == nil {
		b.debugged.Add(1)
	}
	return repaired, err
}

// enough says why nothing more is to be started after this one.
func (b *batchRun) enough(item evaluate.BatchItem) error {
	if errors.Is(item.Err, sandbox.ErrEngineUnavailable) {
		return errEngine
	}
	if e := item.Evaluation; !endedWell(e) && !canceled(e) {
		b.failures++
	}
	if b.flags.maxFailures > 0 && b.failures >= b.flags.maxFailures {
		return &failuresError{b.failures}
	}
	return nil
}

// endedWell says that a script ran to its end without an error, and that its grading, if
// there was one, gave a score.
func endedWell(e evaluate.Evaluation) bool { return e.Valid() && !e.GradingFailed() }

// canceled says that the caller ended a run, which is not a failure of the script.
func canceled(e evaluate.Evaluation) bool {
	return e.Run != nil && e.Run.Status == result.StatusCanceled
}

// began says that an item has a result: a script that had not begun when the batch was
// ended has none.
func began(ctx context.Context, e evaluate.Evaluation) bool {
	return e.Run != nil || ctx.Err() == nil || e.Conclusive()
}

// ended keeps a result for the end, also when it cannot be written down.
func (b *batchRun) ended(ctx context.Context, i int, item evaluate.BatchItem) {
	if began(ctx, item.Evaluation) {
		b.all[i] = b.kept(item.Evaluation)
	}
}

// done writes a result down.
func (b *batchRun) done(ctx context.Context, item evaluate.BatchItem) error {
	e := item.Evaluation
	if !began(ctx, e) {
		return nil
	}
	if item.Err != nil && len(b.failed) < maxToldFailures && !errors.Is(item.Err, context.Cause(ctx)) {
		b.failed = append(b.failed, fmt.Errorf("%s: %w", item.Name, item.Err))
	}
	if err := b.results.Append(e); err != nil {
		return err
	}
	b.progress.end(e) // after the result is on the disk
	return nil
}

// maxToldFailures bounds batchRun.failed.
const maxToldFailures = 5
