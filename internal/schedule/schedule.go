// Package schedule runs many jobs of one kind, several at a time.
package schedule

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// Schedule runs jobs whose results are of type T. The zero value runs one after the other.
type Schedule[T any] struct {
	// Parallel is how many jobs run at the same time; 0 is 1.
	Parallel int
	// Enough, if set, is called as each job ends, before another one begins in its place,
	// one call at a time. After an error no more jobs begin; those that have begun run to
	// their end.
	Enough func(index int, end T) error
	// Ended, if set, is called after Enough for every job that began, one call at a time,
	// while others may begin already.
	Ended func(index int, end T)
	// Done, if set, is called after Ended, in the same way. An error cancels the jobs that
	// have begun, and no more begin; Done is not called for those that end later.
	Done func(index int, end T) error
}

// Run runs the jobs 0 to n-1 in their order, concurrently if Parallel is above 1, and
// returns when all that began have ended and were reported. The error is nil if all n
// began and ended; otherwise it is that of Enough or of Done, or the cause of ctx, also
// of a ctx that ends together with the last job. Memory does not grow with n.
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

// InOrder returns an Admit of sandbox.Hooks that admits the programs of a
// [Schedule.Run] in the order of its indices: each one only when all before it were
// admitted once, or have ended. So programs start in their order although their
// containers are made at the same time. A job that is admitted again, such as a grader,
// does not wait for others, and neither does a run outside of a schedule.
//
// It is not for runs that hold a resource while they wait for admission that another run
// needs first, such as GPUs.
func InOrder(admit func(ctx context.Context) (release func(), err error)) func(ctx context.Context) (release func(), err error) {
	return func(ctx context.Context) (func(), error) {
		t, ok := ctx.Value(turnKey{}).(turn)
		if !ok {
			return admit(ctx)
		}
		select {
		case <-t.turns.ready(t.index):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		release, err := admit(ctx)
		if err == nil {
			t.turns.pass(t.index)
		}
		return release, err
	}
}

type turnKey struct{}

// turn is the place of one index among those of a schedule.
type turn struct {
	turns *turns
	index int
}

// turns knows whose turn it is.
type turns struct {
	mu     sync.Mutex
	next   int // the lowest index that has not passed
	passed map[int]bool
	wait   map[int]chan struct{}
}

// ready returns a channel that is closed when all below index have passed.
func (t *turns) ready(index int) <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	ready := t.wait[index]
	if ready == nil {
		ready = make(chan struct{})
		if index <= t.next {
			close(ready)
			return ready
		}
		if t.wait == nil {
			t.wait = map[int]chan struct{}{}
		}
		t.wait[index] = ready
	}
	return ready
}

// pass notes that an index was admitted or has ended. It may be called again.
func (t *turns) pass(index int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if index < t.next {
		return
	}
	if t.passed == nil {
		t.passed = map[int]bool{}
	}
	t.passed[index] = true
	for t.passed[t.next] {
		delete(t.passed, t.next)
		t.next++
		if ready := t.wait[t.next]; ready != nil {
			close(ready)
			delete(t.wait, t.next)
		}
	}
}
