package contract

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/result"
)

// viaAdapter carries out a contract with an adapter: the call, its retries, and those of the
// fallback adapters (AR-07). The registry of adapters has no circle of fallbacks.
func (h *Harness) viaAdapter(ctx context.Context, job Job, run *execution) (Outcome, error) {
	key := run.cacheKey(ctx)
	if o, ok := h.known(key, run); ok {
		return o, nil
	}
	var before []Attempt
	var earlier *Outcome
	for {
		t := &attempts{harness: h, job: job, next: run, before: before}
		o, err := t.carryOut(ctx, run.Effective.Adapted)
		if earlier != nil && err == nil && o.Status == StatusRefused {
			return earlier.without(o)
		}
		a := run.Effective.Adapted
		if err != nil || o.Success || ctx.Err() != nil || a.Fallback == "" || len(run.Effective.Needs) > 0 ||
			o.Status == StatusRefused || !a.FallbackIf(o) {
			// The answer of a fallback is not that of the adapter, and files that changed meanwhile
			// may have another answer.
			if err == nil && o.Success && earlier == nil && key != "" && run.cacheKey(ctx) == key {
				h.remember(key, o)
			}
			return o, err
		}
		before, earlier = o.Call.Attempts, &o
		c := run.asked
		c.AdapterID, c.ExecutionID = a.Fallback, o.ExecutionID
		job.Text, job.Contract = nil, &c
		run = h.newExecution(job)
		if run.Effective.Adapted == nil || len(run.outcome.Violations) > 0 {
			return o.without(run.end(ctx, nil))
		}
	}
}

// without is an outcome whose fallback was refused: it could not carry out the contract. The record
// has the same.
func (o Outcome) without(fallback Outcome) (Outcome, error) {
	o.Warnings = append(slices.Clone(o.Warnings), fmt.Sprintf("The fallback adapter %s did not make the call: %s", fallback.AdapterID, fallback.Error))
	if o.Evidence.Path == "" {
		return o, nil
	}
	return o, write(o.Evidence.Path, OutcomeFile, o.ExecutionID, o.Encode)
}

// attempts are the attempts of one adapter, as a harness of a queue.
type attempts struct {
	harness *Harness
	job     Job
	next    *execution
	// before are the attempts so far.
	before []Attempt
	wait   time.Duration

	outcome Outcome
	err     error
}

// carryOut calls the adapter until it needs no other attempt.
func (t *attempts) carryOut(ctx context.Context, a *Adapted) (Outcome, error) {
	jitter := t.harness.Jitter
	if jitter == nil {
		jitter = halfToWhole
	}
	queue := trial.Queue{
		Emit: func(e trial.Event) error {
			if e.Kind == trial.EventRetry && t.job.emit != nil {
				t.job.emit(trial.Event{Kind: e.Kind, Text: e.Text})
			}
			return nil
		},
		Failed: func(trial.Job, error) error { return nil }, // t has it
		Retry: trial.Retry{Max: max(a.Retry.MaxAttempts, 1) - 1, Wait: a.Retry.Backoff, If: func(trial.Result) bool { return t.again(a) }, Jitter: func(wait time.Duration) time.Duration {
			t.wait = jitter(wait)
			return t.wait
		}},
	}
	_, err := queue.Run(ctx, t, slices.Values([]trial.Job{{}}))
	if t.err == nil && t.outcome.Status == "" { // canceled before the first attempt
		t.err = errors.Join(err, context.Cause(ctx))
		t.outcome = t.next.end(ctx, t.err)
	}
	if t.err == nil && ctx.Err() != nil && t.again(a) { // canceled in the pause before the next one
		t.outcome.Status, t.outcome.Error, t.outcome.Verdict = result.StatusCanceled.String(), context.Cause(ctx).Error(), trial.Inconclusive
	}
	return t.outcome, t.err
}

// again reports whether the last attempt is followed by another one: its code is listed, or its
// server could not be reached at all.
func (t *attempts) again(a *Adapted) bool {
	o := t.outcome
	if t.err != nil || o.Success || o.Status == StatusRefused || o.Approval != nil {
		return false
	}
	return o.Call != nil && (o.Call.Unsent || o.Call.Code != nil && slices.Contains(a.Retry.Codes, *o.Call.Code))
}

// halfToWhole spreads calls that failed at the same time.
func halfToWhole(wait time.Duration) time.Duration {
	if wait <= 0 {
		return 0
	}
	return wait/2 + time.Duration(rand.Int64N(int64(wait/2)+1)) //nolint:gosec // no secret
}

// Kind, Schema and Plan implement [trial.Harness].
func (t *attempts) Kind() string                                        { return Kind }
func (t *attempts) Schema() []byte                                      { return ContractSchemaJSON }
func (t *attempts) Plan(context.Context, trial.Job) (trial.Plan, error) { return trial.Plan{}, nil }

// Run makes one attempt.
func (t *attempts) Run(ctx context.Context, job trial.Job, _ func(trial.Event)) (trial.Result, error) {
	run := t.next
	if run == nil {
		run = t.harness.newExecution(t.job)
		run.outcome.ExecutionID = t.outcome.ExecutionID
	}
	t.next = nil
	run.before, run.wait = t.before, t.wait
	run.outcome.Call.Attempts = append([]Attempt{}, t.before...) // also if this one does not begin
	t.outcome, t.err = run.carryOut(ctx)
	if t.outcome.Call != nil {
		t.before = t.outcome.Call.Attempts
	}
	res, err := t.outcome.Trial(job)
	return res, errors.Join(t.err, err)
}

// attempt is the account of the attempt that has ended.
func (run *execution) attempt() Attempt {
	o := run.outcome
	return Attempt{AdapterID: run.Effective.Adapted.ID, Status: o.Status, Code: o.Call.Code, Error: o.Error, RunID: run.id,
		DurationMS: o.DurationMS, WaitMS: run.wait.Milliseconds()}
}
