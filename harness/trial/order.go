package trial

import (
	"context"
	"sync"
)

// InOrder returns an Admit of sandbox.Hooks that admits the programs of the jobs of a
// [Queue] in the order of the jobs: each one only when those of all earlier jobs were
// admitted once, or have ended. So programs start in their order although their
// containers are prepared at the same time. A further run of a job, such as its grader,
// does not wait for others, and neither does a run outside of a queue.
//
// It is not for runs that hold a resource while they wait for admission that another run
// needs first, such as GPUs.
func InOrder(admit func(ctx context.Context) (release func(), err error)) func(ctx context.Context) (release func(), err error) {
	return func(ctx context.Context) (func(), error) {
		t, ok := ctx.Value(turnKey{}).(turn)
		if !ok {
			return admit(ctx)
		}
		if err := t.turns.wait(ctx, t.index); err != nil {
			return nil, err
		}
		release, err := admit(ctx)
		if err == nil {
			t.turns.pass(t.index)
		}
		return release, err
	}
}

type turnKey struct{}

// turn is the place of one job among those that run.
type turn struct {
	turns *turns
	index int
}

// turns has the next job to be admitted.
type turns struct {
	mu     sync.Mutex
	next   int          // the lowest index that has not passed
	passed map[int]bool // higher ones that have
	moved  chan struct{}
}

// wait returns when all below index have passed.
func (t *turns) wait(ctx context.Context, index int) error {
	for {
		t.mu.Lock()
		ready, moved := index <= t.next, t.moved
		t.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pass notes that a job was admitted or has ended. It may be called again.
func (t *turns) pass(index int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if index < t.next {
		return
	}
	t.passed[index] = true
	if index > t.next {
		return
	}
	for t.passed[t.next] {
		delete(t.passed, t.next)
		t.next++
	}
	close(t.moved)
	t.moved = make(chan struct{})
}
