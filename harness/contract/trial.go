package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// Trial returns the harness for queues. The document of a job is a contract, and the detail of
// a result its [Outcome]. Jobs have no key, because a contract may read every file of the root.
// A contract that needs an approval is refused: an approval is for one execution.
func (h *Harness) Trial() trial.Harness { return trialHarness{h} }

// Kind is the kind of the jobs of contracts.
const Kind = "contract"

// roleProgram is the role of the only run of a contract.
const roleProgram = "program"

type trialHarness struct{ h *Harness }

func (t trialHarness) Kind() string   { return Kind }
func (t trialHarness) Schema() []byte { return ContractSchemaJSON }

func (t trialHarness) Plan(ctx context.Context, job trial.Job) (trial.Plan, error) {
	o, err := t.h.Plan(ctx, Job{Text: job.Spec})
	detail, encodeErr := o.Encode()
	return trial.Plan{Problems: o.problems(), Detail: detail}, errors.Join(err, encodeErr)
}

func (t trialHarness) Run(ctx context.Context, job trial.Job, emit func(trial.Event)) (trial.Result, error) {
	started := time.Now()
	var used trial.Usage
	o, err := t.h.Run(ctx, Job{Text: job.Spec, labels: job.Labels(roleProgram), emit: emit, used: &used})
	res, encodeErr := o.Trial(job)
	res.Started, res.Usage = started, used
	return res, errors.Join(err, encodeErr)
}

// hooks are those of the job, and report to its queue.
func (run *execution) hooks() sandbox.Hooks {
	hooks := run.job.Hooks
	if run.job.emit == nil {
		return hooks
	}
	event := func(kind trial.EventKind, text string) {
		run.job.emit(trial.Event{Kind: kind, Run: run.id, Role: roleProgram, Text: text})
	}
	hooks.Waiting = func(why string) { event(trial.EventWaiting, why) }
	hooks.Started = func() { event(trial.EventStarted, "") }
	return hooks
}

// usage is that of the run.
func (run *execution) usage() trial.Usage {
	ran := run.result
	switch {
	case run.ended && run.outcome.Started: // a remote call takes time too
		return trial.Usage{WallSeconds: float64(max(run.outcome.DurationMS, 1)) / 1000}
	case ran == nil:
		return trial.Usage{}
	}
	return trial.Usage{WallSeconds: ran.DurationSeconds, CPUSeconds: ran.Resources.CPUSeconds,
		GPUSeconds: ran.DurationSeconds * float64(len(ran.Enforced.GPUs)), Runs: 1}
}

// Trial is the outcome in the shape that all harnesses share, without its usage.
func (o Outcome) Trial(job trial.Job) (trial.Result, error) {
	res := trial.Result{
		Schema: trial.ResultSchemaV1, Job: job, Verdict: o.Verdict, Reason: o.Status, ExitCode: -1,
		Runs: []trial.RunRef{}, Problems: o.problems(), Files: []trial.File{},
	}
	if len(o.Violations) > 0 {
		res.Reason = o.Violations[0].Code
	}
	if o.ExitCode != nil {
		res.ExitCode = *o.ExitCode
	}
	for _, file := range o.OutputFiles {
		res.Files = append(res.Files, file.File)
	}
	runs := []Attempt{{RunID: o.Evidence.RunID}}
	if o.Call != nil && len(o.Call.Attempts) > 0 {
		runs = o.Call.Attempts
	}
	for _, each := range runs {
		if each.RunID != "" {
			res.Runs = append(res.Runs, trial.RunRef{ID: each.RunID, Role: roleProgram})
		}
	}
	var err error
	res.Detail, err = o.Encode()
	return res, err
}

// problems are the violations and the differences that failed the execution.
func (o Outcome) problems() []trial.Problem {
	all := []trial.Problem{}
	for _, v := range o.Violations {
		all = append(all, trial.Problem{Code: v.Code, Line: v.Line, Field: v.Field, Rule: v.Rule, Hint: v.hintIn("")})
	}
	for _, d := range o.failures() {
		all = append(all, trial.Problem{Code: d.Problem, Field: d.What, Rule: d.String()})
	}
	return all
}

// Retry says when a contract is executed again (CI-07).
type Retry struct {
	// MaxAttempts bounds the executions, including the first one: 1 to [MaxAttempts].
	MaxAttempts int
	// Backoff is the wait before the second execution. It doubles each time, up to a minute
	// (resolution 16).
	Backoff time.Duration
	// Codes are the exit codes of outcomes that are retried; 143 is the time limit.
	Codes []int
}

// MaxAttempts bounds [Retry.MaxAttempts].
const MaxAttempts = 10

// Check returns a [*policy.FieldError] for each value that is out of bounds, joined.
func (r Retry) Check() (err error) {
	check := func(ok bool, field string, value any, rule string) {
		if !ok {
			err = errors.Join(err, &policy.FieldError{Field: field, Value: fmt.Sprint(value), Rule: rule})
		}
	}
	check(r.MaxAttempts >= 1 && r.MaxAttempts <= MaxAttempts, "max_attempts", r.MaxAttempts, fmt.Sprintf("must be between 1 and %d", MaxAttempts))
	check(r.Backoff >= 0, "backoff_ms", r.Backoff.Milliseconds(), "must not be negative")
	for _, code := range r.Codes {
		check(code >= 0 && code <= 255, "retryable_codes", code, "must be between 0 and 255")
	}
	return err
}

// Queue returns the retry policy for a queue of contracts. A refused contract is not executed
// again, because nothing would change.
func (r Retry) Queue() (trial.Retry, error) {
	if err := r.Check(); err != nil {
		return trial.Retry{}, err
	}
	return trial.Retry{Max: r.MaxAttempts - 1, Wait: r.Backoff, If: func(res trial.Result) bool {
		return res.Verdict == trial.Failed && slices.Contains(r.Codes, res.ExitCode)
	}}, nil
}
