package enginetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// handle is one value of engine.Container. Its fields are guarded by the lock of the
// engine.
type handle struct {
	c       *container
	opened  bool
	strange bool // its nonce belongs to another job
	streams engine.Streams
	// connection, unless it is nil, was passed on with the container.
	connection *os.File

	conn        *connection
	started     bool
	lost        bool // a call has failed since the streams were connected
	interrupted bool
	// cut is closed by Disconnect.
	cut   chan struct{}
	isCut bool
}

var (
	_ engine.Container = (*handle)(nil)
	_ engine.Local     = (*handle)(nil)
)

func (h *handle) Ref() engine.Ref {
	return engine.Ref{ID: h.c.id, Nonce: h.c.nonce}
}

func (h *handle) Ready() wire.Ready { return h.c.ready }

func (h *handle) Look(ctx context.Context) (wire.Ready, error) {
	c, f := h.c, h.c.fake
	if err := f.enter(ctx, "Look", c.meta.Name); err != nil {
		return wire.Ready{}, err
	}
	sources := c.sources()
	had, ended, paused := h.started || h.opened || c.job != nil, c.gone || c.isOver, f.Paused
	f.mu.Unlock()
	switch {
	case had:
		return wire.Ready{}, errors.New("the container has had its job")
	case ended:
		return wire.Ready{}, fmt.Errorf("%w: %s has ended", engine.ErrNoContainer, c.meta.Name)
	case paused:
		<-ctx.Done()
		return wire.Ready{}, ctx.Err()
	}
	meta := c.meta
	meta.Sources = sources
	return f.lookAround(c.class, meta), nil
}

func (h *handle) Warnings() []string {
	h.c.fake.mu.Lock()
	defer h.c.fake.mu.Unlock()
	return slices.Clone(h.c.fake.Warn)
}

// join connects the streams, from where they were broken. The lock is held.
func (h *handle) join(stuck bool) {
	before := h.conn
	if before != nil {
		before.close()
	}
	h.conn = h.c.tape.connect(before, stuck)
	h.lost = false
	if !slices.Contains(h.c.joined, h) {
		h.c.joined = append(h.c.joined, h)
	}
	go h.conn.copy(before, h.streams.Stdout, h.streams.Stderr)
}

func (h *handle) Start(ctx context.Context, job spec.Job, streams engine.Streams) error {
	c, f := h.c, h.c.fake
	f.mu.Lock()
	if h.started || h.opened || c.job != nil {
		f.misused("Start of %s, which has its job", c.meta.Name)
		f.mu.Unlock()
		return errors.New("a container has one job")
	}
	h.started = true
	f.mu.Unlock()
	if err := f.enter(ctx, "Start", c.meta.Name); err != nil {
		if errors.Is(err, engine.ErrUnavailable) {
			f.mu.Lock()
			h.lost, h.interrupted = true, true
			c.orphan() // init's stdin is broken
			f.mu.Unlock()
		}
		return err
	}
	defer f.mu.Unlock()
	switch {
	case len(job.Command) == 0:
		f.misused("Start of %s without a command", c.meta.Name)
	case c.gone:
		return fmt.Errorf("%w: %s has ended", engine.ErrNoContainer, c.meta.Name)
	}
	f.Started = append(f.Started, job)
	c.job, c.startedAt = &job, time.Now()
	c.program = newProgram(c, job)
	h.streams = streams
	h.join(f.Stuck)
	var why *engine.LaunchError
	if f.Launch != nil {
		why = f.Launch(job)
	}
	if job.Stdin && streams.Stdin != nil {
		go c.program.stdin.feed(streams.Stdin)
	} else {
		_ = c.program.stdin.close()
	}
	if why != nil {
		go c.launchFailed(why)
	} else {
		go c.run(c.program)
	}
	if errors.Is(f.Fail.Start, engine.ErrUnavailable) {
		h.lost, h.interrupted = true, true
		h.conn.close()
	}
	return f.Fail.Start
}

// failed returns the next error of WaitErrs.
func (h *handle) failed(ctx context.Context) error {
	f := h.c.fake
	f.mu.Lock()
	var err error
	gate := f.WaitGate
	if len(f.WaitErrs) > 0 {
		err, f.WaitErrs = f.WaitErrs[0], f.WaitErrs[1:]
	}
	f.mu.Unlock()
	if err == nil {
		return nil
	}
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func (h *handle) Wait(ctx context.Context) (engine.End, error) {
	c, f := h.c, h.c.fake
	f.mu.Lock()
	early := !h.started && !h.opened
	if early {
		f.misused("Wait for %s before Start", c.meta.Name)
	}
	f.mu.Unlock()
	if early {
		return engine.End{}, errors.New("there is no job to wait for")
	}
	err := h.failed(ctx)
	if err == nil {
		if err = f.enter(ctx, "Wait", c.meta.Name); err == nil {
			if h.lost && !h.isCut && c.job != nil {
				h.join(f.StuckAgain)
			}
			down, late, cut := f.downChan(), f.LateBy, h.cut
			if h.isCut {
				cut = nil // the streams are already broken
			}
			f.mu.Unlock()
			return h.await(ctx, down, cut, late)
		}
	}
	if errors.Is(err, engine.ErrUnavailable) {
		f.mu.Lock()
		h.lost, h.interrupted = true, true
		if h.conn != nil {
			h.conn.close()
		}
		f.mu.Unlock()
	}
	return engine.End{}, err
}

func (h *handle) await(ctx context.Context, down, cut <-chan struct{}, late time.Duration) (engine.End, error) {
	c, f := h.c, h.c.fake
	away := func() (engine.End, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		h.lost, h.interrupted = true, true
		return engine.End{}, fmt.Errorf("%w: EOF", engine.ErrUnavailable)
	}
	select {
	case <-c.over:
	case <-down:
		return away()
	case <-cut:
		select {
		case <-c.over:
		default:
			return away()
		}
	case <-ctx.Done():
		return engine.End{}, ctx.Err()
	}
	if err := pause(ctx, late); err != nil {
		return engine.End{}, err
	}
	f.mu.Lock()
	conn := h.conn
	f.mu.Unlock()
	if conn != nil {
		select {
		case <-conn.done:
		case <-h.cut:
		case <-down:
			return away()
		case <-ctx.Done():
			return engine.End{}, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	end := c.end
	for _, signal := range c.sent {
		if signal.by != h {
			end.Foreign = append(slices.Clone(end.Foreign), signalNames[signal.how])
		}
	}
	end.NoJob = c.job == nil
	end.Interrupted = h.interrupted
	end.Complete = end.Reported && conn.ended()
	if h.strange {
		end = engine.End{ExitCode: end.ExitCode, StartedAt: end.StartedAt, FinishedAt: end.FinishedAt,
			OOMKilled: end.OOMKilled, Foreign: end.Foreign, ForeignErr: end.ForeignErr}
	}
	return end, nil
}

func (h *handle) Signal(ctx context.Context, how engine.Signal) error {
	c, f := h.c, h.c.fake
	f.mu.Lock()
	f.Signals = append(f.Signals, how)
	f.mu.Unlock()
	if err := f.enter(ctx, "Signal", c.meta.Name); err != nil {
		return err
	}
	defer f.mu.Unlock()
	if !c.isOver {
		c.sent = append(c.sent, sentSignal{h, how})
	}
	switch {
	case c.gone || c.isOver:
		if how != engine.Stop {
			c.gone = true
		}
		return nil
	case c.job == nil:
		c.finish(engine.End{ExitCode: map[engine.Signal]int{engine.Stop: 128 + int(syscall.SIGTERM)}[how]})
		c.gone = true
		return nil
	case how == engine.Abort:
		if !f.IgnoreKill {
			c.abort()
		}
		return nil
	}
	f.mu.Unlock()
	defer f.mu.Lock()
	select {
	case c.signals <- how:
	case <-c.over:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (h *handle) Disconnect() {
	if conn := h.disconnect(); conn != nil {
		<-conn.done
	}
}

// disconnect breaks the connection and returns it.
func (h *handle) disconnect() *connection {
	h.c.fake.mu.Lock()
	defer h.c.fake.mu.Unlock()
	if !h.isCut {
		h.isCut = true
		close(h.cut)
		_ = h.connection.Close() // nil is an error, too
	}
	if h.conn != nil {
		h.conn.close()
	}
	if h.c.program != nil && !h.opened {
		_ = h.c.program.stdin.close()
		h.c.abandon()
	}
	return h.conn
}

func (h *handle) Sample(context.Context) (engine.Usage, bool) {
	f := h.c.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.NoUsage || f.away || h.c.isOver {
		return engine.Usage{}, false
	}
	return f.Usage, true
}

func (h *handle) PID(ctx context.Context) (int, error) {
	f := h.c.fake
	f.mu.Lock()
	process := f.Process
	f.mu.Unlock()
	if process == nil {
		return 0, ctx.Err()
	}
	return process(h.c.meta.Name)
}

func (h *handle) Release() {
	f := h.c.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	if h.c.isOver {
		h.c.gone = true
	}
}

func (h *handle) Remove(ctx context.Context) error {
	c, f := h.c, h.c.fake
	f.mu.Lock()
	f.RemoveCtxErr = ctx.Err()
	f.mu.Unlock()
	if err := f.enter(ctx, "Remove", c.meta.Name); err != nil {
		return err
	}
	defer f.mu.Unlock()
	if f.containers[c.meta.Name] == c {
		f.remove(c.meta.Name)
	}
	return nil
}
