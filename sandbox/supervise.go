package sandbox

import (
	"context"
	"errors"
	"time"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/outcome"
)

const (
	// signalTimeout bounds one signal call; a call that hangs is repeated.
	signalTimeout = 5 * time.Second
	// signalSlack is how long the container's init may take to report an end after the
	// request, or after its own timer.
	signalSlack = 2 * time.Second
	// killRepeat is the interval at which a requested end is requested again until it is
	// reported: a busy engine may lose a request.
	killRepeat = 2 * time.Second
	// killAttempts is the number of requests before the engine counts as lost: an engine that comes
	// back within its time is heard.
	killAttempts = int(engine.ReconnectBudget / killRepeat)
)

// supervise waits for the end of the program. The container's init enforces the time
// limit itself (EX-009, EX-037). Evalbox's monitors and the caller may request an earlier
// end; an init that does not respond in time is killed. When supervise returns, the
// evidence describes the end of the run.
func (a *run) supervise(ctx context.Context) {
	defer func() {
		a.ended = time.Now()
		a.steps.begin(StepEnd) // if nobody asked for it
	}()
	waiting, stopWaiting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWaiting()
	ends := a.wait(waiting)

	grace := seconds(a.spec.Job.GraceSeconds)
	// escalate fires when the end is due but has not been reported.
	escalate := time.NewTimer(seconds(a.spec.Job.TimeoutSeconds) + grace + signalSlack)
	defer escalate.Stop()
	canceled, killed := ctx.Done(), a.hooks.Kill
	ask := func(how engine.Signal, patience time.Duration) {
		a.signal(ctx, how)
		escalate.Reset(patience)
	}
	stop := func(reason outcome.StopReason) {
		if a.evidence.Stop == outcome.StopNone {
			a.evidence.Stop = reason
			a.noteStop()
			ask(engine.Stop, grace+signalSlack)
		}
	}
	for tries := 0; ; {
		select {
		case end := <-ends:
			a.evidence.End, a.evidence.Lost = end.End, a.classifyLoss(ctx, end.err)
			return
		case reason := <-a.stops:
			if reason == outcome.StopByRule {
				a.evidence.StoppedBy = a.meter.stoppedBy()
			}
			stop(reason)
		case <-canceled:
			canceled = nil
			stop(cancelReason(ctx))
		case <-killed:
			killed = nil
			if a.evidence.Stop == outcome.StopNone {
				a.evidence.Stop = cancelReason(ctx)
				a.noteStop()
			}
			ask(engine.Kill, signalSlack)
		case <-escalate.C:
			if a.evidence.Stop == outcome.StopNone {
				a.evidence.Stop = outcome.StopTimeout
				a.noteStop()
			}
			if tries++; tries > killAttempts {
				a.evidence.Lost = outcome.ErrNoExit
				stopWaiting()
				<-ends // otherwise it might reconnect to the streams
				return
			}
			if tries == 1 {
				ask(engine.Kill, killRepeat)
				continue
			}
			if tries > 2 && !a.unreachable.Load() {
				// A stuck stream can block the kill itself.
				a.container.Disconnect()
			}
			ask(engine.Abort, killRepeat)
		}
	}
}

// classifyLoss distinguishes a container that was removed from a container that another engine, which
// answers now, never had.
func (a *run) classifyLoss(ctx context.Context, err error) error {
	if !errors.Is(err, engine.ErrNoContainer) {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), signalTimeout)
	defer cancel()
	if info, infoErr := a.runner.engine.Info(ctx); infoErr == nil && info.ID != a.info.ID {
		return outcome.ErrOtherEngine
	}
	return err
}

// cancelReason says who ended ctx.
func cancelReason(ctx context.Context) outcome.StopReason {
	if errors.Is(context.Cause(ctx), outcome.ErrStopped) {
		return outcome.StopRequested
	}
	return outcome.StopCanceled
}

// requestInterval is how often a run looks for a request of another process to end it.
const requestInterval = 200 * time.Millisecond

// heed ends the context of the run when another process asks to stop it, and closes the run's
// [Hooks].Kill when that asks for the end at once; see [record.Store.RequestStop]. It looks for
// the request until done is called.
func (a *run) heed(ctx context.Context) (_ context.Context, done func()) {
	ctx, stop := context.WithCancelCause(ctx)
	kill, asked, over := make(chan struct{}), a.hooks.Kill, make(chan struct{})
	a.hooks.Kill = kill
	go func() {
		tick := time.NewTicker(requestInterval)
		defer tick.Stop()
		for {
			stopped, killed := a.runner.store.StopRequested(a.spec.Job.RunID)
			if stopped {
				stop(outcome.ErrStopped)
			}
			if killed {
				close(kill)
				return
			}
			select {
			case <-asked:
				close(kill)
				return
			case <-over:
				return
			case <-tick.C:
			}
		}
	}()
	return ctx, func() {
		close(over)
		stop(context.Canceled)
	}
}

// noteStop records that the end is requested by us, for a process that finishes the run if this
// one dies now.
func (a *run) noteStop() {
	a.steps.begin(StepEnd)
	a.journal.Stop, a.journal.StoppedBy = int(a.evidence.Stop), a.evidence.StoppedBy
	if err := a.writeJournal(); err != nil {
		a.log.Debug("the request to end is not on record", logError, err)
	}
}

// signal requests the end without waiting for the answer, because the loop must not
// block. A lost request is followed by another.
func (a *run) signal(ctx context.Context, how engine.Signal) {
	a.evidence.Requested = append(a.evidence.Requested, how)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), signalTimeout)
	container, log := a.container, a.log // the run may be over before the answer comes
	go func() {
		defer cancel()
		err := container.Signal(ctx, how)
		a.unreachable.Store(errors.Is(err, engine.ErrUnavailable) && ctx.Err() == nil)
		if err != nil {
			log.Debug("the request to end was not delivered", logError, err)
		}
	}()
}

// known is the end of a container, or the reason why it is unknown.
type known struct {
	engine.End
	err error
}

// wait waits for the end of the container. If the engine becomes unreachable, wait
// retries for a while: a container outlives an engine that is killed. It does not outlive
// an engine that is stopped, unless the engine is configured to keep its containers.
func (a *run) wait(ctx context.Context) <-chan known {
	ends := make(chan known, 1)
	go func() {
		var giveUp time.Time
		pause := 50 * time.Millisecond
		for {
			from := time.Now()
			end, err := a.container.Wait(ctx)
			if err == nil || !errors.Is(err, engine.ErrUnavailable) || ctx.Err() != nil {
				ends <- known{end, err}
				return
			}
			a.log.Debug("waiting for the program failed", logError, err)
			switch now := time.Now(); {
			case giveUp.IsZero() || now.Sub(from) > engine.ReconnectBudget/2:
				// It was reachable in between.
				giveUp, pause = now.Add(engine.ReconnectBudget), 50*time.Millisecond
			case now.After(giveUp):
				ends <- known{end, err}
				return
			}
			select {
			case <-ctx.Done():
				ends <- known{end, errors.Join(err, ctx.Err())}
				return
			case <-time.After(pause):
				pause = min(2*pause, 2*time.Second)
			}
		}
	}()
	return ends
}
