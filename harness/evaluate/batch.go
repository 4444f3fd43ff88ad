package evaluate

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// Reasons of the early end of a batch, besides a [*FailuresError] and the cause of ctx.
var (
	ErrBudget = errors.New("the time budget is used up")
	ErrEngine = errors.New("the engine cannot be reached: nothing more is started")
)

// A FailuresError says that a batch ended because too many scripts failed.
type FailuresError struct{ Count int }

func (e *FailuresError) Error() string {
	if e.Count == 1 {
		return "a script failed: nothing more was started"
	}
	return strconv.Itoa(e.Count) + " scripts failed: nothing more was started"
}

// An Entry is one evaluation of a batch. It has the hash of the script only: thousands of scripts
// need not be in memory at once.
type Entry struct {
	Name string
	Seed *uint32
	// Path is the file of the script, which is read again right before it is evaluated and must
	// still have the hash SHA256. Text, if not nil, is the script itself.
	Path   string
	Text   *string
	SHA256 string
	// Workspace is that of [Job]. Entries that run at the same time need different ones.
	Workspace string
}

// Entries reads every script of a list once, and returns the evaluations to do: each script with each
// seed, in directories below workspace that are named like the scripts. Without seeds each script has
// its own. All problems are reported, joined, such as a missing script or a name that is used twice.
func Entries(listed []ListedScript, seeds []uint32, workspace string) ([]Entry, error) {
	var entries []Entry
	var errs []error
	named, folders := map[string]string{}, map[string]string{}
	for _, l := range listed {
		text, err := ReadScript(l.Script)
		switch first, twice := named[l.Name]; {
		case twice:
			err = listError(l.Source, 0, fmt.Sprintf("the name %q is that of %s, too: names must differ", l.Name, first), nil)
		case err != nil && l.Source == l.Script: // the error names the script
		case err != nil:
			err = listError(l.Source, 0, err.Error(), err)
		case l.Seed != nil && len(seeds) > 0:
			err = listError(l.Source, 0, "has a seed of its own: leave that or --seeds out", nil)
		}
		named[l.Name] = cmp.Or(named[l.Name], l.Source)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		with := []*uint32{l.Seed}
		if len(seeds) > 0 {
			with = nil
			for _, seed := range seeds {
				with = append(with, &seed)
			}
		}
		for _, seed := range with {
			folder := l.Name
			if len(with) > 1 {
				folder = fmt.Sprintf("%s-seed-%d", l.Name, *seed)
			}
			if other, twice := folders[folder]; twice {
				errs = append(errs, listError(l.Source, 0, fmt.Sprintf("its working directory %s is that of %s, too", folder, other), nil))
				continue
			}
			folders[folder] = l.Source
			entries = append(entries, Entry{Path: l.Script, Name: l.Name, Seed: seed, SHA256: hashText(text), Workspace: filepath.Join(workspace, folder)})
		}
	}
	return entries, errors.Join(errs...)
}

// ReadScript reads a script, which may be untrusted. Everything but a regular file is refused.
func ReadScript(path string) (string, error) {
	text, err := fsx.Read(path, maxProgram)
	if err != nil {
		return "", &FileError{What: "script", Path: path, Rule: fsx.Cause(err).Error(), Err: err, hint: "give the path of a Python script"}
	}
	return string(text), nil
}

// script returns the text of an entry.
func (e Entry) script() (string, error) {
	if e.Text != nil {
		return *e.Text, nil
	}
	text, err := ReadScript(e.Path)
	if err == nil && hashText(text) != e.SHA256 {
		err = &FileError{What: "script", Path: e.Path, Rule: "has changed since the batch began", hint: "run the batch again"}
	}
	return text, err
}

// asked is the result of an entry that did not begin.
func (e Entry) asked(o BatchOptions, setup string, limits *Limits) Result {
	r := newResult(Job{Name: e.Name, Task: o.Task, Setup: setup, limits: limits, Seed: e.Seed, Resource: o.Resource})
	r.ScriptSHA256, r.OriginalSHA256 = e.SHA256, e.SHA256
	return r
}

// BatchOptions configure [Harness.Batch].
type BatchOptions struct {
	Task TaskDescription
	// Timeout is the time limit of each run; required.
	Timeout time.Duration
	// Parallel is the number of programs that run at the same time; 0 is 1.
	Parallel int
	// Resource, unless 0, reaches each script as [ResourceVariable]. A result with another one is not of
	// this batch.
	Resource int
	// MaxFailures, unless 0, ends the batch after this number of scripts that did not end well in this
	// call. What runs goes on to its end.
	MaxFailures int
	// Budget, unless 0, bounds the wall time of the batch. What runs then is canceled.
	Budget time.Duration
	// Debug, if set, repairs scripts that fail, at most MaxRetries times each.
	Debug      DebugFunc
	MaxRetries int
	// Results, if not empty, is a results file: a line for each result, on the disk before Ended is
	// called. A script with a conclusive result there does not run, unless it was evaluated in another
	// way; see [Resume], and [Harness.Setup], to which More is added.
	Results string
	More    map[string]string
	// Again, if set, reports which conclusive results of the results file do not count: their scripts
	// run again.
	Again func(Result) bool
	// Workspace, if not empty, is locked; see [LockWorkspace].
	Workspace string
	// KeepTexts keeps [Result.Bounded] in the report. Otherwise the output of scripts is left out.
	KeepTexts bool
	// Log, if set, keeps every job. LogFailed is that of [trial.Queue].
	Log       *trial.Log
	LogFailed func(error)
	// Resumed, if set, gets what the results file has, and the number of its torn line, or 0. Running
	// counts programs that start (1) and have ended (-1). Ended gets each result, one call at a time.
	// Ending gets the cause when what runs is canceled. Round is called when a round of [Harness.Halve]
	// begins, before Resumed.
	Round   func(Round)
	Resumed func(left Resumption, torn int)
	Running func(change int)
	Ended   func(Result)
	Ending  func(cause error)
	// Events, if set, gets each event of the queue, one call at a time.
	Events func(trial.Event)
}

// BatchReport is how a batch ended.
type BatchReport struct {
	// Results has the result of each entry, in their order; nil for one that did not begin.
	Results []*Result
	// Errors are the first 5 errors that were not the fault of a script.
	Errors []error

	asked func(i int) Result
}

// Complete returns a result for each entry. Those that did not begin have a Failure with the reason
// why the batch ended.
func (r BatchReport) Complete(ended error) []Result {
	all := make([]Result, len(r.Results))
	for i, res := range r.Results {
		if res == nil {
			why := "the batch ended"
			if ended != nil && !errors.Is(ended, context.Canceled) {
				why = ended.Error()
			}
			asked := r.asked(i)
			asked.Failure, asked.Why = "not started: "+why, why
			res = &asked
		}
		all[i] = *res
	}
	return all
}

// batch is a call of [Harness.Batch]. As a [trial.Harness] it runs its entries.
type batch struct {
	trialHarness
	BatchOptions
	entries []Entry
	setup   string
	limits  *Limits
	file    *ResultsFile   // nil for none
	old     ReadReport     // what it had
	unlock  func() error   // releases Workspace; nil for none
	index   map[string]int // of the entries by the IDs of their jobs
	// Each entry has its own element: earlier are inconclusive results of a previous batch, ended
	// are those that emit has not written yet.
	earlier, ended []*Result
	report         BatchReport
	// left is the number of entries that did not begin, if they cannot begin before their turn.
	left atomic.Int64
}

// Batch evaluates entries on a queue, and goes on where an earlier batch with the same results file
// was interrupted. A script that is refused, or that we fail to run, does not end the batch. The
// error is nil if all entries have a result; otherwise it says why the batch could not begin, and
// the report is empty, or why it ended early: [ErrBudget], [ErrEngine], a [*FailuresError], an error
// of the results file, or the cause of ctx.
//
// A script whose run was disturbed, as by another script that filled the disk, runs once more
// when all others have ended; see [result.Result.Conclusive].
//
// While the programs run, the containers of at most 4 more are created, unless that would cost:
// with MaxFailures more scripts must not begin, with GPUs a container holds its own, and a repair
// must not overlap with another script. Without GPUs, a [sandbox.Pool] of the box then prepares
// containers, and no more than there are scripts left.
func (h *Harness) Batch(ctx context.Context, entries []Entry, opts BatchOptions) (BatchReport, error) {
	b, err := h.open(ctx, entries, opts)
	if err != nil {
		return BatchReport{}, err
	}
	defer b.close()
	ctx, done := b.bounded(ctx)
	defer done()
	err = b.round(ctx, h)
	return b.report, err
}

// open returns a batch that nothing has been done of. It holds the working directory and the results
// file until close.
func (h *Harness) open(ctx context.Context, entries []Entry, opts BatchOptions) (b *batch, err error) {
	b = &batch{BatchOptions: opts, entries: entries}
	b.Parallel = max(b.Parallel, 1)
	if b.Parallel > 1 && b.inFlight(h.opts.Request.GPUs != "") == 1 && len(entries) > 1 {
		return nil, &policy.FieldError{Field: "workspace", Rule: "scripts that run at once need one, so that each has its own ./final"}
	}
	if b.Results != "" { // a refusal that every run would get is reported once, before anything runs
		if b.setup, b.limits, err = h.setup(ctx, opts.Task, opts.Timeout, opts.More); err != nil {
			return nil, err
		}
	}
	if b.Workspace != "" {
		if b.unlock, err = LockWorkspace(b.Workspace); err != nil {
			return nil, err
		}
	}
	if b.Results != "" {
		if b.file, b.old, err = OpenResults(b.Results, ReadOptions{Brief: !b.KeepTexts}); err != nil {
			b.close()
			return nil, err
		}
	}
	return b, nil
}

func (b *batch) close() {
	if b.file != nil {
		_ = b.file.Close() // each line is on the disk already
	}
	if b.unlock != nil {
		_ = b.unlock() // it ends with this process at the latest
	}
}

// round runs the entries that have no result in the results file. The error is the reason of an early
// end.
func (b *batch) round(ctx context.Context, h *Harness) error {
	b.index = map[string]int{}
	b.report = BatchReport{
		Results: make([]*Result, len(b.entries)),
		asked:   func(i int) Result { return b.entries[i].asked(b.BatchOptions, b.setup, b.limits) },
	}
	b.earlier, b.ended = make([]*Result, len(b.entries)), make([]*Result, len(b.entries))
	if b.file != nil {
		b.resume()
	}
	admit := sandbox.Slots(b.Parallel)
	if b.Parallel == 1 {
		admit = trial.InOrder(admit) // also when the next container is ready first
	}
	peers := h.peersOf(b.report.Results)
	b.h = h.expecting(&b.left).with(func(o *Options) {
		o.Hooks.Peers = peers
		o.Hooks.Admit = func(ctx context.Context) (func(), error) {
			release, err := admit(ctx)
			if err != nil || b.Running == nil {
				return release, err
			}
			b.Running(1)
			return func() {
				b.Running(-1)
				release()
			}, nil
		}
	})
	return b.run(ctx, b.inFlight(h.opts.Request.GPUs != ""))
}

// Job returns the job of an entry, with its script.
func (o BatchOptions) Job(e Entry) (Job, error) {
	script, err := e.script()
	return Job{Script: script, File: e.Path, Task: o.Task, Timeout: o.Timeout, Name: e.Name, Seed: e.Seed, Resource: o.Resource, Workspace: e.Workspace}, err
}

// Resumption returns what [Harness.Batch] would go on with. It changes nothing; a results file that
// does not exist is an empty one.
func (h *Harness) Resumption(ctx context.Context, entries []Entry, opts BatchOptions) (Resumption, error) {
	setup, limits, err := h.setup(ctx, opts.Task, opts.Timeout, opts.More)
	if err != nil {
		return Resumption{}, err
	}
	old, err := ReadResults(opts.Results, ReadOptions{Brief: true})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Resumption{}, err
	}
	wanted := make([]Result, len(entries))
	for i, e := range entries {
		wanted[i] = e.asked(opts, setup, limits)
	}
	return Resume(wanted, old.Results, opts.Again), nil
}

// maxPrepared bounds the containers that are created before their programs may start.
const maxPrepared = 4

// inFlight is the number of jobs in progress at once.
func (b *batch) inFlight(gpus bool) int {
	if slices.ContainsFunc(b.entries, func(e Entry) bool { return e.Workspace == "" }) {
		return 1
	}
	if !b.ahead() || gpus {
		return b.Parallel
	}
	return b.Parallel + min(b.Parallel, maxPrepared)
}

// ahead reports whether scripts may begin while others run, up to their start.
func (o BatchOptions) ahead() bool { return o.MaxFailures == 0 && o.Debug == nil }

// resume takes over the results that the results file had.
func (b *batch) resume() {
	wanted := make([]Result, len(b.entries))
	for i := range wanted {
		wanted[i] = b.report.asked(i)
	}
	left := Resume(wanted, b.old.Results, b.Again)
	for i, known := range left.Known {
		if known != nil {
			b.report.Results[i] = b.kept(*known)
		}
	}
	b.earlier = left.Earlier
	if b.Resumed != nil {
		b.Resumed(left, b.old.Torn)
	}
}

// kept is the part of a result that the report has.
func (b *batch) kept(r Result) *Result {
	r = r.Bounded()
	if !b.KeepTexts {
		r = r.brief()
	}
	return &r
}

// bounded returns a context that ends with the budget, and reports its end. done is to be called when
// nothing runs any more.
func (b *batch) bounded(parent context.Context) (ctx context.Context, done func()) {
	ctx, cancel := parent, func() {}
	if b.BatchOptions.Budget > 0 {
		ctx, cancel = context.WithTimeoutCause(parent, b.BatchOptions.Budget, ErrBudget)
	}
	if b.Ending == nil {
		return ctx, cancel
	}
	called := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(called)
		b.Ending(context.Cause(ctx))
	})
	return ctx, func() {
		if !stop() {
			<-called
		}
		cancel()
	}
}

// run runs the entries without a result. The error is the reason of an early end.
func (b *batch) run(ctx context.Context, inFlight int) error {
	queue := trial.Queue{
		Parallel: inFlight, Budget: trial.Budget{Failures: b.MaxFailures, IsFailure: b.isFailure}, Log: b.Log, LogFailed: b.LogFailed, Emit: b.emit,
		Retry:  trial.Retry{Max: 1, If: b.isDisturbed, Alone: true},
		Failed: func(job trial.Job, err error) error { return b.failed(ctx, job, err) },
	}
	jobs, err := b.jobs()
	if err == nil {
		if !b.ahead() && !slices.ContainsFunc(b.entries, func(e Entry) bool { return !b.h.alike(e.Seed) }) {
			b.left.Store(int64(len(jobs)))
		}
		_, err = queue.Run(ctx, b, slices.Values(jobs))
	}
	b.left.Store(0)
	if budget := new(trial.BudgetError); errors.As(err, &budget) {
		err = errors.Join(&FailuresError{b.MaxFailures}, context.Cause(ctx))
	}
	return err
}

// jobs returns a job for each entry without a result.
func (b *batch) jobs() ([]trial.Job, error) {
	var jobs []trial.Job
	var err error
	parent := trial.NewID()
	for i, e := range b.entries {
		if b.report.Results[i] != nil {
			continue
		}
		job := trial.Job{ID: trial.NewID(), Name: e.Name, Parent: parent, Seed: b.report.asked(i).seed64()}
		if b.Log != nil {
			document := Document{Schema: JobSchemaV1, Task: &b.Task, TimeoutSeconds: b.Timeout.Seconds(), Resource: b.Resource}
			if e.Text != nil {
				document.Script = *e.Text
			} else {
				document.ScriptFile, _ = filepath.Abs(e.Path) // empty if the current directory is gone
			}
			if e.Workspace != "" {
				document.Workspace, _ = filepath.Abs(e.Workspace)
			}
			if job.Spec, err = json.Marshal(document); err != nil {
				return nil, fmt.Errorf("evaluate: the job %s cannot be encoded: %w", e.Name, err)
			}
		}
		b.index[job.ID] = i
		jobs = append(jobs, job)
	}
	return jobs, nil
}

// Run runs the entry of a job.
func (b *batch) Run(ctx context.Context, job trial.Job, emit func(trial.Event)) (trial.Result, error) {
	i := b.index[job.ID]
	if !b.ahead() {
		b.left.Add(-1)
	}
	h := b.h.forJob(job, emit)
	res, err := b.one(ctx, h, b.entries[i], b.earlier[i])
	b.ended[i] = &res
	if res.Run != nil || ctx.Err() == nil || res.Conclusive() { // otherwise it did not begin
		b.report.Results[i] = b.kept(res) // also if it cannot be written
	}
	ended, encodeErr := h.trial(job, res.Bounded())
	return ended, errors.Join(err, encodeErr)
}

// isFailure says what MaxFailures counts: not a wrong submission or our failure to check it, and
// not a run that somebody stopped.
func (b *batch) isFailure(r trial.Result) bool {
	return b.ended[b.index[r.Job.ID]].countsAsFailure()
}

func (r Result) countsAsFailure() bool { return !r.EndedWell() && (r.Run == nil || !r.Run.stopped()) }

// isDisturbed says which scripts run once more when all others have ended: those whose run was
// disturbed, perhaps by another one that filled the disk.
func (b *batch) isDisturbed(r trial.Result) bool {
	res := b.ended[b.index[r.Job.ID]]
	if res.Run == nil || res.Run.Conclusive() || res.Failure != "" && res.Run.Status != result.StatusEngineLost {
		return false
	}
	return res.Run.Status != result.StatusCanceled && res.Run.Status != result.StatusStartFailed
}

// one evaluates one script, of which an earlier result may be known.
func (b *batch) one(ctx context.Context, h *Harness, e Entry, earlier *Result) (Result, error) {
	job, err := b.Job(e)
	if err != nil {
		res := e.asked(b.BatchOptions, b.setup, b.limits)
		res.Failure = err.Error()
		return res, err
	}
	job.Setup, job.limits, job.Earlier = b.setup, b.limits, earlier
	if b.Debug == nil {
		return h.Run(ctx, job)
	}
	_, res, err := h.repair(ctx, mlestar.NewSolution(job.Script, mlestar.PhaseInit), job, b.Debug, b.MaxRetries)
	return res, err
}

// maxErrors bounds the errors of a report.
const maxErrors = 5

// failed notes that we failed to run a job. Only a lost engine ends the batch.
func (b *batch) failed(ctx context.Context, job trial.Job, err error) error {
	if len(b.report.Errors) < maxErrors && !errors.Is(err, context.Cause(ctx)) {
		b.report.Errors = append(b.report.Errors, fmt.Errorf("%s: %w", job.Name, err))
	}
	if errors.Is(err, sandbox.ErrEngineUnavailable) {
		return ErrEngine
	}
	return nil
}

// emit passes an event on. The result of a job that has ended is written, and then reported.
func (b *batch) emit(e trial.Event) error {
	if b.Events != nil {
		b.Events(e)
	}
	if e.Kind != trial.EventEnded {
		return nil
	}
	i := b.index[e.Job]
	res := b.ended[i]
	b.ended[i] = nil // it may be long
	if b.file != nil {
		if err := b.file.Append(*res); err != nil {
			return err
		}
	}
	if b.Ended != nil {
		b.Ended(*res)
	}
	return nil
}
