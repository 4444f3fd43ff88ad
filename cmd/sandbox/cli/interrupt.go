package cli

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A SignalError is the cause of a context that a signal ended.
type SignalError struct{ Signal os.Signal }

func (i SignalError) Error() string {
	known := map[os.Signal]string{os.Interrupt: "Ctrl-C", syscall.SIGTERM: "SIGTERM", syscall.SIGHUP: "SIGHUP"}
	return "interrupted (" + cmp.Or(known[i.Signal], i.Signal.String()) + ")"
}

// Interrupted replaces the errors of an interruption by its cause, and keeps all others.
func Interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	kept := []error{context.Cause(ctx)}
	for _, e := range Joined(err) {
		if !errors.Is(e, context.Canceled) && !errors.Is(e, context.Cause(ctx)) {
			kept = append(kept, e)
		}
	}
	return errors.Join(kept...)
}

// Joined takes apart the errors of errors.Join, and no others.
func Joined(err error) []error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok || !isJoin(err) {
		return []error{err}
	}
	var all []error
	for _, e := range several.Unwrap() {
		all = append(all, Joined(e)...)
	}
	return all
}

// heeded are the signals to listen for. One that was ignored when this process
// began stays ignored: nohup, and a shell that starts us in the background, mean it.
func heeded(ignored func(os.Signal) bool) []os.Signal {
	all := []os.Signal{syscall.SIGTERM}
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGHUP} {
		if !ignored(s) {
			all = append(all, s)
		}
	}
	return all
}

// together is how long after a signal further signals count as the same request. Supervisors, and
// timeout of GNU, signal a process and then its group.
const together = time.Second

// Interrupts listens for the signals that ask this process to end. The first one
// cancels the context, with a [SignalError] as its cause: the program is asked
// to end and its result is kept. The second closes kill: the program is ended at
// once. The third does what it does to any process; a later `sandbox gc` then
// cleans up. Signals within a second of one of these are the same request.
//
// While no program runs there is nothing that kill would end: the second signal then
// ends this process by way of exit, whatever it does and waits for.
//
// release stops listening: from then on each signal ends this process. Within a second of a request,
// listening stops only at the end of that second.
func Interrupts(parent context.Context, runs *Runs, exit func(code int)) (ctx context.Context, kill <-chan struct{}, release func()) {
	// A reader of our output that went away must not take the container's
	// owner with it.
	signal.Ignore(syscall.SIGPIPE)

	ctx, cancel := context.WithCancelCause(parent)
	hard, released := make(chan struct{}), make(chan struct{})
	asked := make(chan os.Signal, 2)
	signal.Notify(asked, heeded(signal.Ignored)...)
	go heed(asked, released, func(first os.Signal) { cancel(SignalError{first}) }, func() {
		close(hard)
		if runs.none() {
			exit(ExitInterrupted)
		}
	}, func() { signal.Stop(asked) })
	return ctx, hard, sync.OnceFunc(func() { close(released) })
}

// heed calls first at the first request and second at the second one. It calls over once it needs
// no more signals: after the second request, or after released is closed.
func heed(asked <-chan os.Signal, released <-chan struct{}, first func(os.Signal), second, over func()) {
	defer over()
	select {
	case signal := <-asked:
		first(signal)
		dropTheRest(asked)
	case <-released:
		return
	}
	select {
	case <-asked:
		second()
		dropTheRest(asked)
	case <-released:
	}
}

// dropTheRest takes the signals that belong to the last request.
func dropTheRest(asked <-chan os.Signal) {
	for end := time.After(together); ; {
		select {
		case <-asked:
		case <-end:
			return
		}
	}
}

// Runs counts the runs that heed Kill.
type Runs struct{ count atomic.Int64 }

// Begin counts a run until its end is called. A nil receiver counts nothing.
func (r *Runs) Begin() (end func()) {
	if r == nil {
		return func() {}
	}
	r.count.Add(1)
	return func() { r.count.Add(-1) }
}

func (r *Runs) none() bool { return r.count.Load() == 0 }

// Interruptibly calls read, and gives up when ctx ends. Opening a pipe without a writer
// does not notice that; a read that goes on is then ignored.
func Interruptibly[T any](ctx context.Context, read func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		value, err := read()
		done <- answer{value, err}
	}()
	select {
	case got := <-done:
		return got.value, got.err
	case <-ctx.Done():
		var nothing T
		return nothing, context.Cause(ctx)
	}
}
