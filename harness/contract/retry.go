package contract

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evalbox/evalbox/policy"
)

// Retry says when a contract is executed once more (CI-07). The zero value is no
// policy: it has no attempt.
type Retry struct {
	// MaxAttempts is how many executions there are at most, the first one included: 1 to
	// [MaxAttempts].
	MaxAttempts int
	// Backoff is the wait before the second execution. Every later wait is twice the one
	// before, up to [MaxBackoff] (resolution 16), unless Constant keeps them all alike.
	Backoff  time.Duration
	Constant bool
	// Codes are the exit codes, as outcomes have them, after which there is another
	// execution: 143 is the time limit.
	Codes []int
}

// Bounds of a [Retry].
const (
	MaxAttempts = 10
	MaxBackoff  = time.Minute
)

// Check reports everything that is out of bounds.
func (r Retry) Check() error {
	var errs []error
	if r.MaxAttempts < 1 || r.MaxAttempts > MaxAttempts {
		errs = append(errs, &policy.FieldError{Field: "max_attempts", Value: fmt.Sprint(r.MaxAttempts),
			Rule: fmt.Sprintf("must be between 1 and %d", MaxAttempts)})
	}
	if r.Backoff < 0 {
		errs = append(errs, &policy.FieldError{Field: "backoff_ms", Value: fmt.Sprint(r.Backoff.Milliseconds()), Rule: "must not be negative"})
	}
	for _, code := range r.Codes {
		if code < 0 || code > 255 {
			errs = append(errs, &policy.FieldError{Field: "retryable_codes", Value: fmt.Sprint(code), Rule: "must be between 0 and 255"})
		}
	}
	return errors.Join(errs...)
}

// Wait is the time between an execution, the first of which is 1, and the next one.
func (r Retry) Wait(attempt int) time.Duration {
	wait := min(r.Backoff, MaxBackoff)
	if r.Constant {
		return wait
	}
	for range attempt - 1 {
		wait = min(2*wait, MaxBackoff)
	}
	return wait
}

// Again says whether an outcome is followed by another execution. A contract that was
// refused is not: nothing would change. One that needed an approval is not either,
// because an approval is for one execution.
func (r Retry) Again(attempt int, o *Outcome) bool {
	return attempt < r.MaxAttempts && !o.Success && o.Approval == nil && o.ExitCode != nil && slices.Contains(r.Codes, *o.ExitCode)
}

// ExecuteWithRetry is [Executor.Execute], again as long as the policy says so. It
// returns the outcomes of all executions, in their order; each has a record of its own.
// Sleep waits between them, and ends early with an error when its context does; nil is
// a real clock.
func (x *Executor) ExecuteWithRetry(ctx context.Context, c Contract, r Retry, sleep func(context.Context, time.Duration) error) ([]*Outcome, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	if sleep == nil {
		sleep = sleepFor
	}
	var all []*Outcome
	for attempt := 1; ; attempt++ {
		o, err := x.Execute(ctx, c)
		if o != nil {
			all = append(all, o)
		}
		if err != nil || !r.Again(attempt, o) {
			return all, err
		}
		if err := sleep(ctx, r.Wait(attempt)); err != nil {
			return all, err
		}
	}
}

func sleepFor(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
