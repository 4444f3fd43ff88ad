package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// An interruption is the cause of a context that a signal ended.
type interruption struct{ signal os.Signal }

func (i interruption) Error() string {
	switch i.signal {
	case os.Interrupt:
		return "interrupted (Ctrl-C)"
	case syscall.SIGTERM:
		return "interrupted (SIGTERM)"
	case syscall.SIGHUP:
		return "interrupted (SIGHUP)"
	}
	return "interrupted (" + i.signal.String() + ")"
}

// interrupted replaces the errors of an interruption by its cause, and keeps all others.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	told := []error{context.Cause(ctx)}
	for _, e := range joined(err) {
		if !errors.Is(e, context.Canceled) && !errors.Is(e, context.Cause(ctx)) {
			told = append(told, e)
		}
	}
	return errors.Join(told...)
}

// joined takes apart the errors of errors.Join, and no others.
func joined(err error) []error {
	several, ok := err.(interface{ Unwrap() []error })
	if !ok || !isJoin(err) {
		return []error{err}
	}
	var all []error
	for _, e := range several.Unwrap() {
		all = append(all, joined(e)...)
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

// interrupts listens for the signals that ask this process to end. The first one
// cancels the context, with an [interruption] as its cause: the program is asked
// to end and its result is kept. The second closes kill: the program is ended at
// once. The third does what it does to any process; a later `sandbox gc` then
// cleans up.
//
// While no program runs there is nothing that kill would end: the second signal then
// ends this process by way of exit, whatever it does and waits for.
//
// release stops listening: from then on each signal ends this process. stop does so too,
// and ends the context.
func interrupts(parent context.Context, runs *runsInFlight, exit func(code int)) (ctx context.Context, kill <-chan struct{}, release, stop func()) {
	// A reader of our output that went away must not take the container's
	// owner with it.
	signal.Ignore(syscall.SIGPIPE)

	ctx, cancel := context.WithCancelCause(parent)
	hard := make(chan struct{})
	asked := make(chan os.Signal, 2)
	signal.Notify(asked, heeded(signal.Ignored)...)
	go heed(asked, func(first os.Signal) { cancel(interruption{first}) }, func() {
		close(hard)
		signal.Stop(asked)
		if runs.none() {
			exit(exitInterrupted)
		}
	})
	release = func() { signal.Stop(asked) }
	return ctx, hard, release, func() {
		release()
		close(asked)
		cancel(context.Canceled)
	}
}

// heed calls first at the first signal and second at the second one.
func heed(asked <-chan os.Signal, first func(os.Signal), second func()) {
	signal, ok := <-asked
	if !ok {
		return
	}
	first(signal)
	if _, ok := <-asked; ok {
		second()
	}
}

// runsInFlight counts the runs that heed Kill.
type runsInFlight struct{ count atomic.Int64 }

// begin counts a run until its end is called. A nil receiver counts nothing.
func (r *runsInFlight) begin() (end func()) {
	if r == nil {
		return func() {}
	}
	r.count.Add(1)
	return func() { r.count.Add(-1) }
}

func (r *runsInFlight) none() bool { return r.count.Load() == 0 }

// interruptibly calls read, and gives up when ctx ends. Opening a pipe without a writer
// does not notice that; a read that goes on is then ignored.
func interruptibly[T any](ctx context.Context, read func() (T, error)) (T, error) {
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

// ended stops listening to signals: only output is left.
func (a *app) ended() {
	if a.streams.Ended != nil {
		a.streams.Ended()
	}
}
