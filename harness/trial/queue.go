package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalbox/evalbox/internal/atend"
	"github.com/evalbox/evalbox/internal/text"
)

// A Queue runs jobs. The zero value runs one after the other, without a log.
type Queue struct {
	// Parallel is how many jobs run at the same time; 0 is 1.
	Parallel int
	Budget   Budget
	Retry    Retry
	// Log, if set, keeps every job, every event and every result.
	Log *Log
	// LogFailed, if set, gets the error of a log that cannot be written. The queue then goes
	// on without the log. Without LogFailed, such an error ends the queue.
	LogFailed func(error)
	// Known, if set, returns the earlier result of a job, which then does not run.
	// [Log.Known] is one. It is called in the order of the jobs, one call at a time.
	Known func(Job) (Result, bool)
	// Emit, if set, gets every event, one call at a time. EventEnded comes after the result is in the log.
	// An error cancels the running jobs, and no more start; nothing is emitted after it.
	Emit func(Event) error
	// Failed, if set, gets the error of each job that we failed to run, one call at a time,
	// before EventEnded. An error that it returns ends the queue: no more jobs start, and
	// running ones go on. Without Failed, every such error ends the queue.
	Failed func(Job, error) error
}

// Budget bounds all jobs of a queue together. Zero fields do not bound. Running jobs go on
// when a bound other than Wall is reached, so the sum can exceed it.
type Budget struct {
	Wall       time.Duration
	Runs       int // of the sandbox
	GPUSeconds float64
	// Failures ends the queue after this number of jobs that failed, FailuresInARow after this
	// number of them with none between that passed. Known and canceled jobs do not count.
	Failures, FailuresInARow int
	// IsFailure says which of the other jobs failed; nil is every one that did not pass.
	IsFailure func(Result) bool
}

// Retry says which results are tried again, and how often.
type Retry struct {
	// Max is how often a job is tried again.
	Max int
	// If decides; nil is every inconclusive result. A canceled job is never tried again.
	If func(Result) bool
	// Wait is the pause before the first retry. It doubles each time, up to a minute.
	Wait time.Duration
	// Jitter returns the pause that is made, from that of Wait; nil is the same.
	Jitter func(wait time.Duration) time.Duration
	// Alone tries jobs again when all others have ended, one after the other: a job that its
	// neighbours disturbed then has none. No other job waits for it.
	Alone bool
}

// maxWait bounds the pause before a retry.
const maxWait = time.Minute

// Summary counts the jobs of a queue by their verdicts, known ones included, and adds up the
// usage of the others. NotStarted is the number of jobs that were canceled before their first
// run, or -1 if the queue ended before it had read all jobs.
type Summary struct {
	Jobs, Known                           int
	Passed, Failed, Refused, Inconclusive int
	NotStarted                            int
	Usage                                 Usage
}

// A BudgetError says which budget ended a queue.
type BudgetError struct {
	Budget string // "wall time", "runs", "GPU seconds", "failures", "failures in a row"
	Limit  string
}

func (e *BudgetError) Error() string { return "the budget is used up: " + e.Budget + " " + e.Limit }

// Run starts jobs in their order and returns when all that started have ended. The error is
// nil if all ran; a [*BudgetError]; an error of Emit, of the log or of the harness; or the
// cause of ctx. Memory does not grow with the number of jobs. When the wall time is used up,
// running jobs are canceled; with every other budget they go on to their end.
//
// An inconclusive job is tried again as Retry says. Its result has the runs and the usage of
// all tries. A job that was canceled before its first run, and used nothing, has no result and no EventEnded.
// After a kill, the next call with Known and the same jobs runs those without a conclusive
// result.
//
// Run reads jobs while others run, and jobs must end when ctx ends. A panic of the harness or
// of jobs is not caught.
func (q Queue) Run(ctx context.Context, h Harness, jobs iter.Seq[Job]) (Summary, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if q.Budget.Wall > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeoutCause(ctx, q.Budget.Wall, &BudgetError{"wall time", q.Budget.Wall.String()})
		defer stop()
	}
	next, stop := iter.Pull(jobs)
	defer stop()
	r := &running{Queue: q, harness: h, cancel: cancel, pull: next, turn: turns()}
	r.log.Store(q.Log)
	var workers sync.WaitGroup
	for range max(q.Parallel, 1) {
		workers.Go(func() {
			for {
				job, turn := r.next(ctx)
				if turn == nil {
					return
				}
				r.one(context.WithValue(ctx, turnKey{}, turn), turn, job)
				turn.pass()
			}
		})
	}
	workers.Wait()
	for _, w := range r.waiting { // nobody else appends now
		r.continued(ctx, w)
	}
	if !r.exhausted {
		r.summary.NotStarted = -1
	}
	switch {
	case r.fatal != nil:
		return r.summary, r.fatal
	case ctx.Err() != nil:
		return r.summary, errors.Join(r.stopped, context.Cause(ctx))
	}
	return r.summary, r.stopped
}

// running is one call of [Queue.Run].
type running struct {
	Queue
	harness Harness
	cancel  context.CancelCauseFunc
	log     atomic.Pointer[Log] // nil for none, and once it has failed

	pulling   sync.Mutex // of this group
	pull      func() (Job, bool)
	exhausted bool
	turn      func() *turn

	emitting   sync.Mutex // of this group, of Emit and Failed, and of the events in the log
	emitFailed bool

	mu               sync.Mutex // of this group
	summary          Summary
	failures, inARow int
	waiting          []waiting // in the order in which they ended
	stopped          error     // why no more jobs start
	fatal            error     // why running jobs were canceled
}

// full reports whether nothing more starts.
func (r *running) full(ctx context.Context) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped != nil || ctx.Err() != nil
}

// stop keeps more jobs from starting. The caller holds mu.
func (r *running) stop(err error) {
	if r.stopped == nil {
		r.stopped = err
	}
}

// fail cancels the running jobs.
func (r *running) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fatal == nil {
		r.fatal = err
		r.cancel(err)
	}
}

// next returns the next job that is not known, and its place among those that run; nil if
// nothing more starts.
func (r *running) next(ctx context.Context) (Job, *turn) {
	r.pulling.Lock()
	defer r.pulling.Unlock()
	for !r.exhausted && !r.full(ctx) {
		job, ok := r.pull()
		if !ok {
			r.exhausted = true
			break
		}
		if r.Known != nil {
			if known, ok := r.Known(job); ok {
				r.mu.Lock()
				r.summary.Known++
				r.summary.count(known.Verdict)
				r.mu.Unlock()
				r.event(Job{ID: cmp.Or(job.ID, known.Job.ID)}, Event{Kind: EventKnown, Text: known.Reason, Result: &known})
				continue
			}
		}
		job.Schema, job.Attempt = JobSchemaV1, max(job.Attempt, 1)
		job.ID, job.Kind = cmp.Or(job.ID, NewID()), cmp.Or(job.Kind, r.harness.Kind())
		return job, r.turn()
	}
	return Job{}, nil
}

// waiting is a job that is tried again when all others have ended.
type waiting struct {
	job  Job
	lock io.Closer // of its log
	was  tried
	// ctx is that of the job, and done does what its runs left for its end.
	ctx  context.Context //nolint:containedctx // a job that waits has one
	done func()
}

// one runs a job to its end, and records it.
func (r *running) one(ctx context.Context, t *turn, job Job) {
	w := waiting{job: job, lock: io.NopCloser(nil)}
	w.ctx, w.done = atend.With(ctx)
	if log := r.log.Load(); log != nil {
		switch lock, err := log.begin(job); {
		case err == nil:
			w.lock = lock
		case !r.withoutLog(err):
			r.mu.Lock()
			r.stop(err)
			r.mu.Unlock()
			return
		}
	}
	r.event(job, Event{Kind: EventStarted})
	w.was = r.try(w.ctx, job, tried{})
	if r.Retry.Alone && r.Retry.Max > 0 && r.again(w.was.res) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.waiting = append(r.waiting, w)
		return
	}
	defer w.lock.Close()
	defer w.done()
	r.ended(ctx, job, r.tries(w.ctx, t, job, w.was))
}

// continued tries a job again that has waited for its neighbours.
func (r *running) continued(ctx context.Context, w waiting) {
	defer w.lock.Close()
	defer w.done()
	// Its turn among the others is over.
	r.ended(ctx, w.job, r.tries(context.WithValue(w.ctx, turnKey{}, nil), r.turn(), w.job, w.was))
}

// ended records the end of a job.
func (r *running) ended(ctx context.Context, job Job, end tried) {
	res, err := end.res, end.err
	canceled := ctx.Err() != nil && !res.Verdict.Conclusive()
	if canceled && len(res.Runs) == 0 && res.Usage == (Usage{}) {
		r.mu.Lock()
		r.summary.NotStarted++
		r.mu.Unlock()
		return
	}
	if err != nil && !canceled { // before count: this says more than a number of failures
		r.failed(job, err)
	}
	r.count(res, canceled)
	if log := r.log.Load(); log != nil {
		if err := log.end(res); err != nil && !r.withoutLog(err) {
			r.fail(err)
			return
		}
	}
	r.event(job, Event{Kind: EventEnded, Text: res.Reason, Result: &res})
}

// withoutLog reports whether the queue goes on after an error of the log.
func (r *running) withoutLog(err error) bool {
	if r.LogFailed == nil {
		return false
	}
	if r.log.Swap(nil) != nil {
		r.LogFailed(err)
	}
	return true
}

// failed reports that we failed to run a job.
func (r *running) failed(job Job, err error) {
	if r.Failed != nil {
		r.emitting.Lock()
		err = r.Failed(job, err)
		r.emitting.Unlock()
	} else {
		err = fmt.Errorf("job %s: %w", cmp.Or(job.Name, job.ID), err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stop(err)
}

// tried is what the tries of a job gave so far: the last result, with the runs and the usage
// of all of them, and the error of the last one.
type tried struct {
	n   int
	res Result
	err error
}

// tries runs a job again until its result needs no other try.
func (r *running) tries(ctx context.Context, t *turn, job Job, was tried) tried {
	for {
		if was.n > r.Retry.Max || !r.again(was.res) || r.full(ctx) {
			return was
		}
		why := was.res.Reason
		if was.err != nil {
			why = was.err.Error()
		}
		r.event(job, Event{Kind: EventRetry, Text: why})
		t.pass() // others need not wait for the pause
		select {
		case <-time.After(r.Retry.wait(was.n)):
		case <-ctx.Done():
			return was
		}
		was = r.try(ctx, job, was)
	}
}

func (r *running) again(res Result) bool {
	if r.Retry.If != nil {
		return r.Retry.If(res)
	}
	return res.Verdict == Inconclusive
}

// wait returns the pause after a try.
func (r Retry) wait(try int) time.Duration {
	wait := min(min(r.Wait, maxWait)<<min(try-1, 20), maxWait)
	if r.Jitter != nil {
		wait = r.Jitter(wait)
	}
	return wait
}

// try runs a job once more, and completes its result.
func (r *running) try(ctx context.Context, job Job, was tried) tried {
	job.Attempt += was.n
	began := time.Now().UTC()
	res, err := r.harness.Run(ctx, job, func(e Event) { r.event(job, e) })
	if err == nil && !res.Verdict.Conclusive() && res.Verdict != Inconclusive {
		err = fmt.Errorf("the harness %s returned the verdict %s, which does not exist", r.harness.Kind(), text.Quote(string(res.Verdict), 40))
		res.Verdict = Inconclusive
	}
	if err != nil {
		res.Verdict = cmp.Or(res.Verdict, Inconclusive)
		if len(res.Problems) == 0 {
			res.Problems = []Problem{{Rule: err.Error()}}
		}
		if len(res.Runs) == 0 {
			res.ExitCode = -1
		}
	}
	res.Job = job
	if res.Started.IsZero() {
		res.Started = began
	}
	res.Usage.Runs = max(res.Usage.Runs, len(res.Runs))
	r.use(res.Usage)
	res.Runs, res.Usage = slices.Concat(was.res.Runs, res.Runs), was.res.Usage.Plus(res.Usage)
	return tried{was.n + 1, res.complete(), err}
}

// use adds the usage of a try, and compares the sum with the budget.
func (r *running) use(u Usage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.summary.Usage = r.summary.Usage.Plus(u)
	switch used, b := r.summary.Usage, r.Budget; {
	case b.Runs > 0 && used.Runs >= b.Runs:
		r.stop(&BudgetError{"runs", strconv.Itoa(b.Runs)})
	case b.GPUSeconds > 0 && used.GPUSeconds >= b.GPUSeconds:
		r.stop(&BudgetError{"GPU seconds", text.Number(b.GPUSeconds)})
	}
}

// count adds a result to the summary, and compares the failures with the budget.
func (r *running) count(res Result, canceled bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.summary.count(res.Verdict)
	b := r.Budget
	switch {
	case res.Verdict == Passed:
		r.inARow = 0
	case !canceled && (b.IsFailure == nil || b.IsFailure(res)):
		r.failures++
		r.inARow++
	}
	switch {
	case b.Failures > 0 && r.failures >= b.Failures:
		r.stop(&BudgetError{"failures", strconv.Itoa(b.Failures)})
	case b.FailuresInARow > 0 && r.inARow >= b.FailuresInARow:
		r.stop(&BudgetError{"failures in a row", strconv.Itoa(b.FailuresInARow)})
	}
}

func (s *Summary) count(v Verdict) {
	s.Jobs++
	switch v {
	case Passed:
		s.Passed++
	case Failed:
		s.Failed++
	case Refused:
		s.Refused++
	case Inconclusive:
		s.Inconclusive++
	}
}

// Plus adds two usages.
func (u Usage) Plus(v Usage) Usage {
	return Usage{
		WallSeconds: u.WallSeconds + v.WallSeconds, CPUSeconds: u.CPUSeconds + v.CPUSeconds,
		GPUSeconds: u.GPUSeconds + v.GPUSeconds, Runs: u.Runs + v.Runs,
	}
}

// event emits an event, and records it if its job runs.
func (r *running) event(job Job, e Event) {
	e.Schema, e.Job = EventSchemaV1, job.ID
	if e.Time.IsZero() {
		e.Time = time.Now().UTC()
	}
	r.emitting.Lock()
	defer r.emitting.Unlock()
	if log := r.log.Load(); log != nil && e.Kind != EventKnown {
		if err := log.event(e); err != nil && !r.withoutLog(err) {
			r.fail(err)
		}
	}
	if r.Emit == nil || r.emitFailed {
		return
	}
	if err := r.Emit(e); err != nil {
		r.emitFailed = true
		r.fail(err)
	}
}
