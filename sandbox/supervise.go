package sandbox

import (
	"context"
	"time"
)

const (
	// signalTimeout bounds one signal call; a call that hangs is repeated.
	signalTimeout = 5 * time.Second
	// killRepeat is how often SIGKILL is sent until the engine reports the
	// end: a busy daemon may lose a request.
	killRepeat = 2 * time.Second
	// killAttempts is how often before the engine is given up.
	killAttempts = 15
	// initSettled is when the container's init surely listens: a SIGTERM
	// before that is lost, so it is sent once more.
	initSettled = 500 * time.Millisecond
	// reconnectBudget is how long an engine may be away.
	reconnectBudget = time.Minute
)

// supervise waits for the end of the program and brings it about when a limit or
// the caller says so: SIGTERM, the grace period, SIGKILL to the whole container
// (EX-009, EX-037). When it returns, the facts say how the run ended.
func (a *attempt) supervise(ctx context.Context) {
	defer func() { a.ended = time.Now() }()
	limit := time.NewTimer(seconds(a.spec.Job.TimeoutSeconds))
	defer limit.Stop()

	var escalate, again <-chan time.Time
	kills := 0
	canceled, killed := ctx.Done(), a.req.Kill
	reconnected := false

	stop := func(reason stopReason, grace time.Duration) {
		if a.facts.stop == stopNone {
			a.facts.stop = reason
			a.signal(ctx, "SIGTERM")
			escalate = time.After(grace)
			if time.Since(a.started) < initSettled {
				again = time.After(initSettled)
			}
		}
	}
	grace := seconds(a.spec.Job.GraceSeconds)
	for {
		select {
		case exit := <-a.exits:
			if exit.Err == nil {
				a.facts.exited, a.facts.code = true, exit.Code
				return
			}
			a.log.Debug("waiting for the program failed", logError, exit.Err)
			a.facts.interrupted, a.facts.endedAway = true, true
			if reconnected {
				a.facts.lost = exit.Err
				return
			}
			reconnected = true
			a.exits = a.reconnect(ctx)
		case <-limit.C:
			stop(stopTimeout, grace)
		case reason := <-a.stops:
			stop(reason, grace)
		case <-canceled:
			canceled = nil
			stop(stopCanceled, grace)
		case <-killed:
			killed = nil
			stop(stopCanceled, 0)
			escalate = time.After(0)
		case <-again:
			a.signal(ctx, "SIGTERM")
		case <-escalate:
			if kills++; kills > killAttempts {
				a.facts.lost = errNoExit
				return
			}
			if kills > 1 {
				// A stuck stream can hold up the kill itself.
				a.cutStreams()
				a.facts.interrupted = true
			}
			a.signal(ctx, "SIGKILL")
			escalate = time.After(killRepeat)
		}
	}
}

// signal sends a signal without waiting for the answer: the loop must go on
// watching. A lost SIGTERM is followed by SIGKILL, and that is repeated.
func (a *attempt) signal(ctx context.Context, name string) {
	a.facts.signals = append(a.facts.signals, name)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), signalTimeout)
	go func() {
		defer cancel()
		if err := a.runner.engine.Signal(ctx, a.container, name); err != nil {
			a.log.Debug("signal failed", "signal", name, logError, err)
		}
	}()
}

// reconnect waits for an engine that went away and finds the container again. A
// container outlives a daemon that is killed; it does not outlive one that is
// stopped, unless live-restore is on.
func (a *attempt) reconnect(ctx context.Context) <-chan Exit {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	previous := a.cancelWait
	a.cancelWait = func() { previous(); cancel() }
	exits := make(chan Exit, 1)
	go func() {
		exits <- a.findAgain(ctx)
	}()
	return exits
}

func (a *attempt) findAgain(ctx context.Context) Exit {
	engine := a.runner.engine
	giveUp := time.Now().Add(reconnectBudget)
	pause := 50 * time.Millisecond
	for {
		// Waiting first: the program may end between the two calls.
		exits := engine.Wait(ctx, a.container)
		state, err := engine.Inspect(ctx, a.container)
		switch {
		case err == nil && state.StartedAt.IsZero():
			return Exit{Err: errNeverStarted}
		case err == nil && !state.Running:
			return Exit{Code: state.ExitCode}
		case err == nil:
			now := time.Now()
			a.backAt.Store(&now)
			if s, attachErr := engine.Attach(ctx, a.container, false); attachErr == nil {
				select {
				case a.attached <- s:
				default:
					_ = s.Close() // the reader still has one waiting
				}
			}
			exit := <-exits
			if exit.Err == nil {
				return exit
			}
			err = exit.Err
			giveUp = time.Now().Add(reconnectBudget)
		}
		if ctx.Err() != nil || time.Now().After(giveUp) {
			return Exit{Err: err}
		}
		select {
		case <-ctx.Done():
			return Exit{Err: ctx.Err()}
		case <-time.After(pause):
			pause = min(2*pause, 2*time.Second)
		}
	}
}
