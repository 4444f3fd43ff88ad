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

// turn is the place of one job among those that run.
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

// pass notes that a job was admitted or has ended. It may be called again.
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
