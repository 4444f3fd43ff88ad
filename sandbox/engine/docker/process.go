package docker

import (
	"context"
	"errors"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
)

// look remembers the container's main process, and watches it if it is one of this machine. So the
// end of a container is noticed even if the engine never mentions it.
func (c *instance) look(ctx context.Context) {
	now, err := c.engine.inspect(ctx, c.id)
	if err != nil || !now.running {
		return // Wait finds out why
	}
	c.mu.Lock()
	c.pid = now.pid
	c.mu.Unlock()
	if awaitProcess(now.pid, now.id) {
		close(c.exited)
	}
}

func (c *instance) hasExited() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

// hear waits for the end of the job on a line.
func (c *instance) hear(ctx context.Context, l *line) (wire.Report, error) {
	hearing, stop := context.WithCancel(ctx)
	defer stop()
	go c.interrupt(hearing, l)
	return l.receiver.End(ctx)
}

// interrupt cuts the line to a container that has ended, if the engine answers and keeps the line
// open nevertheless.
func (c *instance) interrupt(ctx context.Context, l *line) {
	select {
	case <-c.exited:
	case <-ctx.Done():
		return
	}
	for pause(ctx, endPatience) == nil {
		if _, err := c.engine.inspect(ctx, c.id); err == nil || errors.Is(err, engine.ErrNoContainer) {
			l.cut()
			return
		}
	}
}

// ended returns the state of the container when its streams have ended. The engine calls it running
// if it did not notice the end, or if somebody else restarted it.
func (c *instance) ended(ctx context.Context) (state, error) {
	now, err := c.engine.ended(ctx, c.id)
	if err != nil || !now.running {
		return now, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.pid != 0 && now.pid != 0 && now.pid != c.pid:
		c.restarted = true
		return state{id: now.id, exitCode: -1}, nil
	case c.hasExited():
		c.interrupted = true
		return state{id: now.id, exitCode: -1, started: now.started}, nil
	}
	return now, nil
}

// isRestarted reports whether somebody else restarted the container, and the output so far is
// all that is to be had: the log goes on with the second init. After an outage the log has more.
func (c *instance) isRestarted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.restarted && !c.interrupted
}

// Restarted implements [engine.Restarts].
func (c *instance) Restarted(ctx context.Context) bool {
	now, err := c.engine.inspect(ctx, c.id)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.restarted = c.restarted || err == nil && c.pid != 0 && now.pid != 0 && now.pid != c.pid
	return c.restarted
}
