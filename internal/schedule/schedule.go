// Package schedule does many things of one kind, a number of them at once.
package schedule

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Schedule steers [Schedule.Run], of things whose ends are of type T. The zero value does
// one thing after the other.
type Schedule[T any] struct {
	// Parallel is how many go on at once; 0 is 1.
	Parallel int
	// Begin, if set, is called as each of them begins, possibly several calls at
	// the same time.
	Begin func(index int)
	// Enough, if set, is called as each of them ends, before another one begins in
	// its place, one call at a time. An error means that nothing more begins; what has
	// begun goes on to its end.
	Enough func(index int, end T) error
	// Ended, if set, is called after Enough for everything that began, one call at a
	// time, while others may begin already.
	Ended func(index int, end T)
	// Done, if set, is called after Ended, in the same way. An error ends the contexts of
	// what has begun, and nothing more begins; what ends later is told to Ended only.
	Done func(index int, end T) error
}

// Run does the indices below n in their order and returns when all that began have ended
// and were reported. do is called concurrently if Parallel says so.
// The error is nil when all n began and ended; else why not: that of Enough or of
// Done, or the cause of ctx. A ctx that ends as the last one ends is told, too.
//
// Nothing is kept of what was reported: memory does not grow with n.
func (s Schedule[T]) Run(ctx context.Context, n int, do func(ctx context.Context, index int) T) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type ended struct {
		index int
		end   T
	}
	var (
		next    atomic.Int64
		mu      sync.Mutex // of enough
		enough  error
		order   turns
		ends    = make(chan ended)
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
				end := do(context.WithValue(ctx, turnKey{}, turn{&order, i}), i)
				order.pass(i)
				if s.Enough != nil {
					mu.Lock()
					if err := s.Enough(i, end); err != nil && enough == nil {
						enough = err
					}
					mu.Unlock()
				}
				ends <- ended{i, end}
			}
		})
	}
	go func() {
		workers.Wait()
		close(ends)
	}()
	var failed error
	for e := range ends {
		if s.Ended != nil {
			s.Ended(e.index, e.end)
		}
		if s.Done == nil || failed != nil {
			continue
		}
		if failed = s.Done(e.index, e.end); failed != nil {
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
