package trial

import "context"

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
		t, ok := ctx.Value(turnKey{}).(*turn)
		if !ok {
			return admit(ctx)
		}
		select {
		case <-t.ready:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		release, err := admit(ctx)
		if err == nil {
			t.pass()
		}
		return release, err
	}
}

type turnKey struct{}

// turn is the place of one job among those that run.
type turn struct {
	// ready is closed once all earlier jobs have passed.
	ready <-chan struct{}
	// pass notes that the job was admitted or has ended. It may be called again.
	pass func()
}

// turns returns a function that returns the turn of each next job. It is not for concurrent
// use. A turn that has passed holds little memory until all earlier ones have as well.
func turns() func() *turn {
	last, pass := context.WithCancel(context.Background())
	pass()
	return func() *turn {
		before := last
		after, end := context.WithCancel(context.Background())
		last = after //nolint:fatcontext // neither is in the other
		return &turn{before.Done(), func() { context.AfterFunc(before, end) }}
	}
}
