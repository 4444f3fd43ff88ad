package evaluate

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Schedule steers [Schedule.Run]. The zero value does one thing after the other.
type Schedule struct {
	// Parallel is how many evaluations go on at once; 0 is 1.
	Parallel int
	// Begin, if set, is called as each evaluation begins, possibly several calls at
	// the same time.
	Begin func(index int)
	// Enough, if set, is called as each evaluation ends, before another one begins in
	// its place, one call at a time. An error means that nothing more begins; what has
	// begun goes on to its end.
	Enough func(index int, item BatchItem) error
	// Done, if set, is called after Enough, one call at a time, while others may begin
	// already. An error ends the contexts of what has begun, and nothing more begins.
	Done func(index int, item BatchItem) error
}

// Run evaluates the indices below n in their order and returns when all that began
// have ended and were reported. evaluate is called concurrently if Parallel says so.
// The error is nil when all n began and ended; else why not: that of Enough or of
// Done, or the cause of ctx. A ctx that ends as the last evaluation ends is told, too.
//
// Nothing is kept of what was reported: memory does not grow with n.
func (s Schedule) Run(ctx context.Context, n int, evaluate func(ctx context.Context, index int) BatchItem) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type end struct {
		index int
		item  BatchItem
	}
	var (
		next    atomic.Int64
		mu      sync.Mutex // of enough
		enough  error
		ended   = make(chan end)
		workers sync.WaitGroup
	)
	full := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return enough != nil || ctx.Err() != nil
	}
	for range min(max(s.Parallel, 1), n) {
		workers.Go(func() {
			for !full() {
				i := int(next.Add(1)) - 1
				if i >= n {
					return
				}
				if s.Begin != nil {
					s.Begin(i)
				}
				item := evaluate(ctx, i)
				if s.Enough != nil {
					mu.Lock()
					if err := s.Enough(i, item); err != nil && enough == nil {
						enough = err
					}
					mu.Unlock()
				}
				ended <- end{i, item}
			}
		})
	}
	go func() {
		workers.Wait()
		close(ended)
	}()
	var failed error
	for e := range ended {
		if s.Done == nil || failed != nil {
			continue
		}
		if failed = s.Done(e.index, e.item); failed != nil {
			cancel(failed)
		}
	}
	switch {
	case failed != nil:
		return failed
	case ctx.Err() != nil:
		return errors.Join(enough, context.Cause(ctx))
	}
	return enough
}
