package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

const (
	// acceptPatience is how long init may take to accept a job.
	acceptPatience = 30 * time.Second
	// oomScore makes the kernel prefer a program over the machine's own processes as an
	// OOM victim.
	oomScore = 500
)

// Start implements [engine.Container].
func (c *instance) Start(ctx context.Context, job spec.Job, streams engine.Streams) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	order := engine.WireJob(job, c.workDir, c.nonce, oomScore, c.Ready())
	order.ToWaiter = c.preloads
	frame, err := order.Encode()
	if err != nil {
		return fmt.Errorf("handing the job to container %.12s: %w", c.id, err)
	}
	c.mu.Lock()
	if c.begun {
		c.mu.Unlock()
		return fmt.Errorf("container %.12s has had its job", c.id)
	}
	c.begun, c.began, c.waited = true, time.Now(), time.Since(c.up)
	c.stdout, c.stderr = newSink(streams.Stdout), newSink(streams.Stderr)
	line := c.line
	c.mu.Unlock()
	line.receiver.Begin(c.nonce, c.stdout, c.stderr)
	err = c.handOver(ctx, line, frame)
	if job.Stdin && (err == nil || errors.Is(err, errSilent)) {
		go engine.PumpInput(line.stdin, streams.Stdin, line.receiver.Over())
	}
	if err != nil {
		return fmt.Errorf("handing the job to container %.12s: %w", c.id, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.accepted = true
	return nil
}

// handOver sends the job and waits until init has it. Canceling ctx does not take it
// back.
func (c *instance) handOver(ctx context.Context, line *line, frame []byte) error {
	ctx, cancel := changeContext(ctx, acceptPatience)
	defer cancel()
	go func() {
		// A failed write shows as the end of the line.
		_, _ = line.stdin.Write(frame)
	}()
	err := line.receiver.Accepted(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errSilent):
		c.doubt(ctx)
		return engineError(ctx, err) // init may still accept the job
	case !errors.Is(err, wire.ErrCut):
		return fmt.Errorf("%w: %w", engine.ErrProtocol, err)
	}
	<-line.over
	// The answer may have been lost with the connection, and the program may have ended since.
	// The engine's log has the answer: Wait reads it.
	now, err := c.ended(ctx)
	if err != nil || now.running || line.err != nil {
		c.lose()
	}
	if err == nil {
		err = c.errLost()
	}
	return err
}

// doubt gives up a connection on which init did not accept its job although it runs: the job or
// the answer was lost on the way. Without that connection, an init that has no job ends, and the
// output of a program is in the engine's log. The init of a paused container, and that of an
// engine that does not answer, may still be heard.
func (c *instance) doubt(ctx context.Context) {
	if now, err := c.engine.inspect(context.WithoutCancel(ctx), c.id); err == nil && now.running && !now.paused {
		c.lose()
	}
}

// Wait implements [engine.Container].
func (c *instance) Wait(ctx context.Context) (engine.End, error) {
	select {
	case c.waiting <- struct{}{}:
		defer func() { <-c.waiting }()
	case <-ctx.Done():
		return engine.End{}, ctx.Err()
	}
	if c.end != nil {
		return *c.end, nil
	}
	end, err := c.await(ctx)
	if err == nil {
		c.end = &end
	}
	return end, err
}

// await looks for the end of the job in every place that may have it.
func (c *instance) await(ctx context.Context) (engine.End, error) {
	cut := false // the attached streams ended too early
	for {
		line, err := c.listening(ctx)
		if err != nil {
			return c.gone(err)
		}
		report, err := c.hear(ctx, line)
		switch {
		case err == nil:
			return c.reported(ctx, report, cut), nil
		case ctx.Err() != nil:
			return engine.End{}, ctx.Err()
		case !errors.Is(err, wire.ErrCut):
			return engine.End{}, fmt.Errorf("%w: %w", engine.ErrProtocol, err)
		}
		<-line.over
		now, err := c.ended(ctx)
		switch {
		case err != nil:
			c.lose()
			return c.gone(err)
		case now.running, line.kind == logSoFar && line.err != nil:
			c.lose()
			return engine.End{}, c.errLost()
		case line.kind == logSoFar, c.isRestarted():
			return c.silent(ctx, now, line), nil
		}
		cut = cut || line.kind == attached
		// A broken connection may look like the end of the streams; the rest of the
		// output is then in the log. A followed log may lack the last bytes: when the
		// container ends, Docker does not pass on output after the last newline.
		if err := c.reread(ctx, logSoFar); err != nil {
			return c.gone(err)
		}
	}
}

// listening returns the line in use. A broken one is replaced: the engine's log has the
// output since then.
func (c *instance) listening(ctx context.Context) (*line, error) {
	c.mu.Lock()
	lost, line := c.lost, c.line
	c.mu.Unlock()
	if !lost {
		return line, nil
	}
	if err := c.reread(ctx, logFollowed); err != nil {
		return nil, err
	}
	c.mu.Lock()
	line, accepted := c.line, c.accepted
	c.mu.Unlock()
	if !accepted {
		c.endIdle(ctx)
	}
	return line, nil
}

// reread reads the output from the beginning, and passes on only the new part.
func (c *instance) reread(ctx context.Context, kind lineKind) error {
	c.mu.Lock()
	before := c.line
	c.mu.Unlock()
	if before != nil {
		before.cut()
		<-before.over
		c.stdout.repeat()
		c.stderr.repeat()
	}
	line, err := c.engine.readLog(ctx, c.id, kind, wire.Resume(c.nonce, c.stdout, c.stderr))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.line, c.lost = line, false
	return nil
}

func (c *instance) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost, c.interrupted = true, true
}

// gone returns the end of a container that no longer exists. Removing a running container
// kills it. Its times went with it; the end has those of this machine.
func (c *instance) gone(err error) (engine.End, error) {
	if !errors.Is(err, engine.ErrNoContainer) {
		return engine.End{}, err
	}
	end := engine.End{Interrupted: true, Foreign: []string{"SIGKILL"}}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.began.IsZero() {
		end.StartedAt, end.FinishedAt, end.Duration = c.began, time.Now(), time.Since(c.began)
	}
	return end, err
}

// initRefuses is the exit code of an init that has no job.
const initRefuses = 125

// silent returns the end of a container whose init did not report one. The engine's times
// are those of the container, which first waited for its job.
func (c *instance) silent(ctx context.Context, now state, line *line) engine.End {
	c.mu.Lock()
	end := engine.End{
		ExitCode: now.exitCode, OOMKilled: now.oomKilled, StartedAt: now.started.Add(c.waited), FinishedAt: now.finished,
		Interrupted: c.interrupted, Restarted: c.restarted, NoJob: c.idle || c.isUnanswered(now, line),
	}
	took := time.Duration(math.MaxInt64)
	if !c.began.IsZero() {
		took = time.Since(c.began)
	}
	c.mu.Unlock()
	if now.started.IsZero() {
		end.StartedAt = time.Time{}
	} else if end.Duration = end.FinishedAt.Sub(end.StartedAt); end.Duration < 0 || end.Duration > took {
		end.Duration = took // the engine's clock was stepped, or the end was not seen
	}
	seen, err := c.witness(ctx, now.finished)
	end.Foreign, end.ForeignErr = seen.signals, err
	end.Frozen, end.Paused = seen.frozen, seen.frozen > 0
	end.OOMKilled = end.OOMKilled || seen.oom // the event of the kernel may come after the end of init
	return end
}

// isUnanswered reports whether the output shows that init never had the job: it answers before the
// program starts, and the engine's log keeps the answer unless the engine dies. The lock is held.
func (c *instance) isUnanswered(now state, line *line) bool {
	return line.receiver.Unanswered() && (c.opened || now.exitCode == initRefuses || line.kind == logSoFar && !c.interrupted)
}

// reported translates the report of init.
func (c *instance) reported(ctx context.Context, r wire.Report, cut bool) engine.End {
	c.mu.Lock()
	interrupted, stopped, opened := c.interrupted || cut, c.sent["SIGTERM"] > 0, c.opened
	whole := c.line.whole() && c.stdout.whole() && c.stderr.whole()
	restarted := c.restarted
	c.mu.Unlock()
	end := engine.EndOf(r)
	events := sync.OnceValues(func() (witnessed, error) { return c.witness(ctx, r.Finished) })
	end.Complete, end.Interrupted, end.Restarted = whole, interrupted, restarted
	if c.preloads || opened { // an opened container does not know its class
		end.NotPreloaded = r.Waiter.WhyNot()
	}
	if end.Cause == engine.BySignal && !stopped {
		// The kernel can lose the sender of a signal, so a program can make its own
		// signal look foreign to init. The engine's events cannot be forged, but they can be
		// incomplete: then init decides.
		seen, err := events()
		end.Foreign, end.ForeignErr = seen.signals, err
		if end.ForeignErr == nil && isStepped(r.Finished.Sub(r.Started), r.Wall) {
			end.ForeignErr = errForgotten
		}
		// Nobody was connected while the engine may have stopped the container with itself.
		end.Interrupted = interrupted || opened && errors.Is(end.ForeignErr, errForgotten)
		obeyed := slices.Contains(end.Foreign, "SIGTERM") || slices.Contains(end.Foreign, "SIGUSR1")
		if !obeyed && !c.hasSent() && end.ForeignErr == nil {
			end.Cause = engine.ByItself
		}
	}
	if r.Share.Gap > 0 {
		seen, err := events()
		end.Paused = seen.frozen > 0 || err != nil && r.Share.Known
		if !r.Share.Known { // without an event, init may have waited for a processor
			end.Frozen = min(seen.frozen, r.Share.Gap)
		}
	}
	return end
}

// hasSent reports whether evalbox has sent a signal.
func (c *instance) hasSent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.sent) > 0
}

// errForgotten means that the engine may not know a signal that it has delivered.
var errForgotten = errors.New("the engine was away, its clock was stepped, or it has seen much since: it may not remember every signal")

const (
	// foreignTimeout bounds the query for foreign signals.
	foreignTimeout = 5 * time.Second
	// eventSlack is how much later than its effect the engine may record a signal.
	eventSlack = 500 * time.Millisecond
)

// isStepped reports whether a wall clock was stepped while a monotonic one went on.
func isStepped(wall, monotonic time.Duration) bool { return (wall - monotonic).Abs() > eventSlack }

// witnessed has the facts in the engine's events about a container.
type witnessed struct {
	signals []string      // that others sent to it
	frozen  time.Duration // for how long it was paused
	oom     bool          // whether the kernel killed one of its processes for want of memory
}

// witness asks the engine for the events of the container: the signals that others sent to it, its pauses,
// and whether its memory was exhausted. `docker stop` leaves an event; a signal from the program itself leaves
// none. Events of all times are asked for, because a clock may be stepped; finished is when the
// container or its program ended, by the engine's clock.
//
// The engine only keeps its last few hundred events, and those of its own process. If it may be
// another process than the one that started the container, and the start is not among them, a
// signal may be missing, or may be the engine's own: an engine that is stopped, and one that finds a
// container of its predecessor, stop it, unless the engine is configured to keep its containers.
func (c *instance) witness(ctx context.Context, finished time.Time) (seen witnessed, err error) {
	now := time.Now()
	c.mu.Lock()
	began, forgotten := c.began, c.opened || c.interrupted
	c.mu.Unlock()
	if finished.IsZero() || dockerhost.IsLocal(c.engine.api.DaemonHost()) {
		finished = now // the same clock, and an answer can be wrong
	}
	var paused time.Time
	var all []string
	filter := filters.NewArgs(filters.Arg("container", c.id), filters.Arg("event", "start"), filters.Arg("event", "kill"),
		filters.Arg("event", "pause"), filters.Arg("event", "unpause"), filters.Arg("event", "oom"))
	err = c.events(ctx, finished, filter, func(message events.Message) error {
		at := time.Unix(0, message.TimeNano)
		switch {
		case message.Actor.ID != c.id:
			return errNonsense
		case message.Action == events.ActionStart:
			forgotten = false
		case message.Action == events.ActionPause:
			paused = at
		case message.Action == events.ActionUnPause && !paused.IsZero():
			seen.frozen, paused = seen.frozen+at.Sub(paused), time.Time{}
		case message.Action == events.ActionUnPause:
		case message.Action == events.ActionOOM:
			seen.oom = true
		case message.Action == events.ActionKill:
			all = append(all, signalName(message.Actor.Attributes["signal"]))
		default:
			return errNonsense
		}
		return nil
	})
	if !paused.IsZero() {
		seen.frozen += finished.Sub(paused)
	}
	seen.signals, seen.frozen = slices.Compact(c.ofOthers(all)), max(seen.frozen, 0)
	stepped := !began.IsZero() && isStepped(now.Round(0).Sub(began.Round(0)), now.Sub(began))
	switch {
	case err != nil:
		return seen, fmt.Errorf("asking for events of container %.12s: %w", c.id, err)
	case forgotten && c.isSuccessors(ctx, finished, len(seen.signals) > 0),
		len(seen.signals) == 0 && (forgotten || stepped):
		seen.signals = nil
		return seen, errForgotten
	}
	return seen, nil
}

// ofOthers leaves out as many signals of each name as evalbox has sent by now: one may have arrived
// while the engine was asked.
func (c *instance) ofOthers(all []string) (signals []string) {
	c.mu.Lock()
	sent := maps.Clone(c.sent)
	c.mu.Unlock()
	for _, name := range all {
		if sent[name] > 0 {
			sent[name]--
			continue
		}
		signals = append(signals, name)
	}
	return signals
}

// events passes the engine's events up to a time on to a function.
func (c *instance) events(ctx context.Context, until time.Time, filter filters.Args, each func(events.Message) error) error {
	ctx, cancel := callContext(context.WithoutCancel(ctx), foreignTimeout)
	defer cancel()
	messages, errs := c.engine.api.Events(ctx, events.ListOptions{Since: "1", Until: eventTime(until.Add(eventSlack)), Filters: filter})
	for {
		select {
		case message := <-messages:
			if err := each(message); err != nil {
				return err
			}
		case err := <-errs:
			if err == io.EOF { //nolint:errorlint // a wrapped EOF is not a complete answer
				return nil
			}
			return engineError(ctx, err)
		}
	}
}

// eventsKept is the number of events that an engine remembers.
const eventsKept = 256

// isSuccessors reports whether another process of the engine started the container than the present
// one, which does not remember the start, and whether a signal to the container is its own or may
// be. signaled says that the present process remembers a signal.
func (c *instance) isSuccessors(ctx context.Context, finished time.Time, signaled bool) bool {
	count := 0
	err := c.events(ctx, finished, filters.Args{}, func(events.Message) error {
		count++
		return nil
	})
	if err != nil || count >= eventsKept {
		return false
	}
	info, err := c.engine.api.Info(ctx)
	return err == nil && !(signaled && info.LiveRestoreEnabled)
}

// eventTime formats a time for the events call.
func eventTime(t time.Time) string { return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond()) }

// signalName returns the name of a signal in an event: older engines report the number,
// or the name without "SIG".
func signalName(text string) string {
	if n, err := strconv.Atoi(text); err == nil {
		if name, ok := signalNumbers[n]; ok {
			return name
		}
		return text
	}
	return "SIG" + strings.TrimPrefix(text, "SIG")
}

// signalNumbers maps the usual signals to their names on Linux.
var signalNumbers = map[int]string{1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 9: "SIGKILL", 10: "SIGUSR1", 12: "SIGUSR2", 15: "SIGTERM"}
