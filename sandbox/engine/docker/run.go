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
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"

	"github.com/evalbox/evalbox/policy"
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
	nonce := wire.NewNonce()
	frame, err := wireJob(job, c.workDir, nonce).Encode()
	if err != nil {
		return fmt.Errorf("handing the job to container %.12s: %w", c.id, err)
	}
	c.mu.Lock()
	if c.begun {
		c.mu.Unlock()
		return fmt.Errorf("container %.12s has had its job", c.id)
	}
	c.begun, c.nonce, c.waited = true, nonce, time.Since(c.up)
	c.stdout, c.stderr = newSink(streams.Stdout), newSink(streams.Stderr)
	line := c.line
	c.mu.Unlock()
	line.receiver.Begin(nonce, c.stdout, c.stderr)
	err = c.handOver(ctx, line, frame)
	if job.Stdin && (err == nil || errors.Is(err, errSilent)) {
		go pump(line, streams.Stdin)
	}
	if err != nil {
		return fmt.Errorf("handing the job to container %.12s: %w", c.id, err)
	}
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
		return engineError(ctx, err) // init may still accept the job
	case !errors.Is(err, wire.ErrCut):
		return fmt.Errorf("%w: %w", engine.ErrProtocol, err)
	}
	<-line.over
	now, err := c.engine.ended(ctx, c.id)
	switch {
	case err != nil:
		c.lose()
		return err
	case now.running || line.err != nil:
		c.lose()
		return c.errLost()
	}
	return fmt.Errorf("%w: the container ended before, with exit code %d", engine.ErrProtocol, now.exitCode)
}

// wireJob translates a job for evalbox's init.
func wireJob(job spec.Job, dir string, nonce wire.Nonce) wire.Job {
	j := wire.Job{
		Nonce: nonce, Args: job.Command, Env: job.Env, Dir: dir,
		Timeout: policy.Seconds(job.TimeoutSeconds), Grace: policy.Seconds(job.GraceSeconds),
		OOMScoreAdj: oomScore, NoFork: job.NoFork, Stdin: job.Stdin,
	}
	if job.Egress != nil {
		j.Relay = &wire.Relay{Port: spec.EgressPort, Connections: uint16(min(job.Egress.Connections, math.MaxUint16)), Socket: spec.EgressDir + "/" + spec.EgressSocket}
	}
	return j
}

// pump copies the caller's input to the program's stdin. A reader that blocks also blocks
// pump, without a time limit.
func pump(line *line, from io.Reader) {
	to := wire.InputWriter(line.stdin)
	buffer := make([]byte, 32<<10)
	for from != nil {
		n, err := from.Read(buffer)
		if _, failed := to.Write(buffer[:n]); failed != nil {
			return
		}
		if err != nil {
			break
		}
		select {
		case <-line.receiver.Over():
			return
		default:
		}
	}
	_ = to.Close() // the program may have ended
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
		report, err := line.receiver.End(ctx)
		switch {
		case err == nil:
			return c.reported(ctx, report, cut), nil
		case ctx.Err() != nil:
			return engine.End{}, ctx.Err()
		case !errors.Is(err, wire.ErrCut):
			return engine.End{}, fmt.Errorf("%w: %w", engine.ErrProtocol, err)
		}
		<-line.over
		now, err := c.engine.ended(ctx, c.id)
		switch {
		case err != nil:
			c.lose()
			return c.gone(err)
		case now.running, line.kind == logSoFar && line.err != nil:
			c.lose()
			return engine.End{}, c.errLost()
		case line.kind == logSoFar:
			return c.silent(ctx, now), nil
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
	defer c.mu.Unlock()
	return c.line, nil
}

// reread reads the output from the beginning, and passes on only the new part.
func (c *instance) reread(ctx context.Context, kind lineKind) error {
	c.mu.Lock()
	before := c.line
	c.mu.Unlock()
	if before != nil {
		before.cut()
		<-before.over
		c.stdout.again()
		c.stderr.again()
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
// kills it.
func (c *instance) gone(err error) (engine.End, error) {
	if !errors.Is(err, engine.ErrNoContainer) {
		return engine.End{}, err
	}
	return engine.End{Interrupted: true, Foreign: []string{"SIGKILL"}}, err
}

// silent returns the end of a container whose init did not report one. The engine's times
// are those of the container, which first waited for its job.
func (c *instance) silent(ctx context.Context, now state) engine.End {
	c.mu.Lock()
	interrupted, started := c.interrupted, now.started.Add(c.waited)
	c.mu.Unlock()
	end := engine.End{ExitCode: now.exitCode, OOMKilled: now.oomKilled, StartedAt: started, FinishedAt: now.finished, Interrupted: interrupted}
	if now.started.IsZero() {
		end.StartedAt = time.Time{}
	} else {
		end.Duration = max(now.finished.Sub(started), 0)
	}
	end.Foreign, end.ForeignErr = c.foreign(ctx, now.started, now.finished)
	return end
}

// reported translates the report of init.
func (c *instance) reported(ctx context.Context, r wire.Report, cut bool) engine.End {
	c.mu.Lock()
	interrupted, sent, whole := c.interrupted || cut, len(c.sent) > 0, c.line.whole()
	c.mu.Unlock()
	end := engine.End{
		Reported: true, Complete: whole, Interrupted: interrupted,
		Escalated: r.Escalated, ProcessesLeft: r.ProcessesLeft,
		StartedAt: r.Started, FinishedAt: r.Finished, Duration: r.Wall,
		Usage: engine.Usage{CPU: r.Usage.CPU, PeakMemory: r.Usage.PeakMemory, OOMKills: r.Usage.OOMKills, Source: r.Usage.Source},
	}
	end.OOMKilled = end.Usage.OOMKills > 0
	switch r.Kind {
	case wire.Exited:
		end.ExitCode = r.Value
	case wire.Signaled:
		end.Signal = r.Value
	case wire.NotStarted:
		end.Launch = &engine.LaunchError{Stage: r.Stage.String(), Errno: r.Errno()}
	}
	switch r.Stop {
	case wire.StopNone:
	case wire.StopDeadline:
		end.Cause = engine.ByDeadline
	case wire.StopTerm, wire.StopKill:
		end.Cause = engine.BySignal
		if sent {
			break
		}
		// The kernel can lose the sender of a signal, so a program can make its own
		// signal look foreign to init. The engine's events cannot be forged.
		end.Foreign, end.ForeignErr = c.foreign(ctx, r.Started, r.Finished)
		if len(end.Foreign) == 0 && end.ForeignErr == nil {
			end.Cause = engine.ByItself
		}
	}
	return end
}

const (
	// foreignTimeout bounds the query for foreign signals.
	foreignTimeout = 5 * time.Second
	// eventSlack is how much later than its effect the engine may record a signal.
	eventSlack = 500 * time.Millisecond
)

// foreign lists signals that others sent through the engine between two times of its
// clock. A daemon that is stopped sends SIGTERM to every container, and so does `docker
// stop`: both leave an event. A signal from the program itself leaves none.
func (c *instance) foreign(ctx context.Context, since, until time.Time) ([]string, error) {
	if since.IsZero() || until.IsZero() {
		return nil, nil
	}
	ctx, cancel := callContext(context.WithoutCancel(ctx), foreignTimeout)
	defer cancel()
	messages, errs := c.engine.api.Events(ctx, events.ListOptions{
		Since:   eventTime(since),
		Until:   eventTime(until.Add(eventSlack)),
		Filters: filters.NewArgs(filters.Arg("container", c.id), filters.Arg("event", "kill")),
	})
	c.mu.Lock()
	sent := maps.Clone(c.sent)
	c.mu.Unlock()
	var signals []string
	for {
		select {
		case message := <-messages:
			if name := signalName(message.Actor.Attributes["signal"]); !sent[name] {
				signals = append(signals, name)
			}
		case err := <-errs:
			if err == io.EOF { //nolint:errorlint // a wrapped EOF is not a complete answer
				return slices.Compact(signals), nil
			}
			return signals, fmt.Errorf("asking for events of container %.12s: %w", c.id, engineError(ctx, err))
		}
	}
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
