package sandbox

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Slots returns an Admit of [Hooks] that all runs share of which at most n programs may
// run at once. Who came first is admitted first.
func Slots(n int) func(ctx context.Context) (release func(), err error) {
	slots := make(chan struct{}, n)
	return func(ctx context.Context) (func(), error) {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		select {
		case slots <- struct{}{}:
			return func() { <-slots }, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// admit waits until the program may start. What it waits for is no time of ours.
func (a *attempt) admit(ctx context.Context) error {
	a.release = func() {}
	if a.hooks.Admit == nil {
		return nil
	}
	asked := time.Now()
	release, err := a.hooks.Admit(ctx)
	if err != nil {
		return fmt.Errorf("%w: %w", errCanceledBefore, err)
	}
	if release != nil {
		a.release = sync.OnceFunc(release)
	}
	a.began = a.began.Add(time.Since(asked))
	return nil
}

// limit is how long the program may take, and wait for others to end before.
func (a *attempt) limit() time.Duration {
	limit := seconds(a.spec.Job.TimeoutSeconds + a.spec.Job.GraceSeconds)
	if a.hooks.Admit != nil {
		limit *= 2
	}
	return limit
}
