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

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

const (
	// acceptPatience is how long an init may take to accept a job.
	acceptPatience = 30 * time.Second
	// oomScore makes the kernel choose a program before anything of the machine's own.
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

// handOver sends the job, and waits until init has it: ctx cannot take it back.
func (c *instance) handOver(ctx context.Context, line *line, frame []byte) error {
	ctx, cancel := changeContext(ctx, acceptPatience)
	defer cancel()
	go func() {
		// That it cannot be written is told by the end of the line.
		_, _ = line.stdin.Write(frame)
	}()
	err := line.receiver.Accepted(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errSilent):
		return engineError(ctx, err) // it may take the job still
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

// wireJob is a job in the words of our init.
func wireJob(job spec.Job, dir string, nonce wire.Nonce) wire.Job {
	j := wire.Job{
		Nonce: nonce, Args: job.Command, Env: job.Env, Dir: dir,
		Timeout: seconds(job.TimeoutSeconds), Grace: seconds(job.GraceSeconds),
		OOMScoreAdj: oomScore, NoFork: job.NoFork, Stdin: job.Stdin,
	}
	if job.Egress != nil {
		j.Relay = &wire.Relay{Port: spec.EgressPort, Connections: uint16(min(job.Egress.Connections, math.MaxUint16)), Socket: spec.EgressDir + "/" + spec.EgressSocket}
	}
	return j
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// pump sends what the caller gives to the program's stdin. A reader that blocks holds it
// up for as long as it likes.
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
	_ = to.Close() // nobody is there to whom it would matter
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

// await looks for the end of the job wherever it can be found.
func (c *instance) await(ctx context.Context) (engine.End, error) {
	cut := false // the streams themselves ended too early
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
		// A connection may end as if the streams had, and what was said behind it is in the
		// log. A log that is followed may lack the last words: Docker does not pass on what
		// is behind the last end of a line when the container ends.
		if err := c.reread(ctx, logSoFar); err != nil {
			return c.gone(err)
		}
	}
}

// listening is the line that is read. One that broke is replaced: the engine's log has
// what was said meanwhile.
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

// reread reads the output from the beginning, and passes on what is new in it.
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

// gone is the end of a container that cannot be asked any more. Who removes one that
// runs kills it.
func (c *instance) gone(err error) (engine.End, error) {
	if !errors.Is(err, engine.ErrNoContainer) {
		return engine.End{}, err
	}
	return engine.End{Interrupted: true, Foreign: []string{"SIGKILL"}}, err
}

// silent is the end of a container whose init said nothing of it. The engine's times are
// those of the container, which had to wait for its job.
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

// reported is an end in init's own words.
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
		// The kernel's word for who sent a signal can be lost, and so be forged by the
		// program. The engine's cannot.
		end.Foreign, end.ForeignErr = c.foreign(ctx, r.Started, r.Finished)
		if len(end.Foreign) == 0 && end.ForeignErr == nil {
			end.Cause = engine.ByItself
		}
	}
	return end
}

const (
	// foreignTimeout bounds the question for the signals of others.
	foreignTimeout = 5 * time.Second
	// eventSlack is by how much an engine may note a signal after it took effect.
	eventSlack = 500 * time.Millisecond
)

// foreign lists signals that others sent through the engine between two times of its
// clock. A daemon that is stopped sends SIGTERM to every container, and so does
// `docker stop`: both leave an event, the program itself none.
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
			if err == io.EOF { //nolint:errorlint // any other kind of end is an answer that broke off
				return slices.Compact(signals), nil
			}
			return signals, fmt.Errorf("asking for events of container %.12s: %w", c.id, engineError(ctx, err))
		}
	}
}

// eventTime renders a time as the events call takes it.
func eventTime(t time.Time) string { return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond()) }

// signalName is the name of a signal in an event: older engines give the number, and none
// the beginning.
func signalName(text string) string {
	if n, err := strconv.Atoi(text); err == nil {
		if name, ok := signalNumbers[n]; ok {
			return name
		}
		return text
	}
	return "SIG" + strings.TrimPrefix(text, "SIG")
}

// signalNumbers are those that engines and people send, as Linux has them.
var signalNumbers = map[int]string{1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 9: "SIGKILL", 10: "SIGUSR1", 12: "SIGUSR2", 15: "SIGTERM"}
