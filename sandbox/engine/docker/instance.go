package docker

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
)

// instance is one container, prepared or found again.
type instance struct {
	engine   *adapter
	id       string
	warnings []string
	// workDir is the working directory of the job.
	workDir string
	ready   wire.Ready
	// preloads says that an interpreter waits for the job, or has failed; before is the processor
	// time that it has used.
	preloads bool
	before   time.Duration
	// stdout and stderr receive the job's output, across any number of connections.
	stdout, stderr *sink

	mu   sync.Mutex
	line *line
	// nonce is the job's end mark; begun says that there was a call to start the job, or
	// that the container was opened again.
	nonce wire.Nonce
	begun bool
	// accepted says that init has accepted the job.
	accepted bool
	// opened says that the container was opened again; idle, that its init was then seen to
	// have no job, and was ended.
	opened, idle bool
	// up is when the container had started; waited is how long it then had no job.
	up     time.Time
	waited time.Duration
	// began is when the job was handed over, by our monotonic clock.
	began time.Time
	// pid is the number of the container's main process, by the engine; 0 if unknown. restarted
	// says that another one has taken its place.
	pid       int
	restarted bool
	// sent counts the signals that evalbox sent, by name, without those that the engine refused.
	sent map[string]int
	// lost says that the current connection broke; interrupted says that any connection
	// ever did.
	lost, interrupted bool
	// peak is the highest memory usage of all samples.
	peak int64

	// exited is closed when the main process is seen to have ended, on this machine.
	exited chan struct{}

	// waiting is held by the goroutine that waits for the end. Until the end is known,
	// that goroutine replaces broken connections.
	waiting chan struct{}
	end     *engine.End
}

func newInstance(e *adapter, id string, nonce wire.Nonce) *instance {
	return &instance{engine: e, id: id, nonce: nonce, waiting: make(chan struct{}, 1), exited: make(chan struct{})}
}

var (
	_ engine.Container = (*instance)(nil)
	_ engine.Local     = (*instance)(nil)
	_ engine.Restarts  = (*instance)(nil)
)

// Ref implements [engine.Container].
func (c *instance) Ref() engine.Ref { return engine.Ref{ID: c.id, Nonce: c.nonce.String()} }

// Ready implements [engine.Container].
func (c *instance) Ready() wire.Ready {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.opened && c.ready.Build == "" {
		// It may only arrive with the first line of the program.
		now, cancel := context.WithCancel(context.Background())
		cancel()
		c.ready, _ = c.line.receiver.Ready(now) // without it in the log, it stays unknown
	}
	return c.ready
}

// Look implements [engine.Container].
func (c *instance) Look(ctx context.Context) (wire.Ready, error) {
	c.mu.Lock()
	line, begun := c.line, c.begun
	c.mu.Unlock()
	if begun {
		return wire.Ready{}, fmt.Errorf("container %.12s has had its job", c.id)
	}
	ready, err := line.receiver.Look(ctx, line.stdin)
	if err != nil {
		return ready, fmt.Errorf("looking at container %.12s: %w", c.id, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ready = ready
	return ready, nil
}

// Warnings implements [engine.Container].
func (c *instance) Warnings() []string { return c.warnings }

// signalNames maps requests to the signals that evalbox's init understands.
var signalNames = map[engine.Signal]string{engine.Stop: "SIGTERM", engine.Kill: "SIGUSR1", engine.Abort: "SIGKILL"}

// Signal implements [engine.Container].
func (c *instance) Signal(ctx context.Context, how engine.Signal) error {
	name := signalNames[how]
	count := func(n int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.sent == nil {
			c.sent = map[string]int{}
		}
		if c.sent[name] += n; c.sent[name] == 0 {
			delete(c.sent, name)
		}
	}
	count(1)
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	err := c.engine.api.ContainerKill(ctx, c.id, name)
	gone := errdefs.IsConflict(err) || errdefs.IsNotFound(err) // the container is not running (any more)
	if gone || client.IsErrConnectionFailed(err) {
		count(-1) // it was not sent
	}
	if err == nil || gone {
		return nil
	}
	return fmt.Errorf("sending %s to container %.12s: %w", name, c.id, engineError(ctx, err))
}

// Disconnect implements [engine.Container].
func (c *instance) Disconnect() {
	c.mu.Lock()
	line := c.line
	c.mu.Unlock()
	line.cut()
	<-line.over
}

// Release implements [engine.Container]. Init exits when its stdin closes, even if nobody
// reads its output.
func (c *instance) Release() { c.Disconnect() }

// sampleTimeout bounds one sample; the next one follows soon.
const sampleTimeout = 5 * time.Second

// Sample implements [engine.Container]. The control group of a container of this machine is read
// directly: the engine and its parts take 12 ms of a processor for the same figures.
func (c *instance) Sample(ctx context.Context) (engine.Usage, bool) {
	c.mu.Lock()
	pid := c.pid
	c.mu.Unlock()
	if used, ok := cgroupUsage(pid, c.id); ok {
		return c.sampled(used), true
	}
	ctx, cancel := callContext(ctx, sampleTimeout)
	defer cancel()
	reader, err := c.engine.api.ContainerStatsOneShot(ctx, c.id)
	if err != nil {
		return engine.Usage{}, false
	}
	defer reader.Body.Close()
	var stats container.StatsResponse
	if err := json.NewDecoder(io.LimitReader(reader.Body, statsLimit)).Decode(&stats); err != nil || stats.CPUStats.CPUUsage.TotalUsage == 0 {
		return engine.Usage{}, false
	}
	memory := stats.MemoryStats
	return c.sampled(engine.Usage{
		CPU: time.Duration(stats.CPUStats.CPUUsage.TotalUsage), PeakMemory: int64(max(memory.MaxUsage, memory.Usage)),
		Memory:    int64(memory.Usage - min(cmp.Or(memory.Stats["total_inactive_file"], memory.Stats["inactive_file"]), memory.Usage)),
		Processes: int64(stats.PidsStats.Current), Source: "engine samples",
	}), true
}

// sampled completes a sample: with the highest memory of all, and without the processor time of an
// interpreter that had waited.
func (c *instance) sampled(u engine.Usage) engine.Usage {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.peak = max(c.peak, u.PeakMemory)
	u.CPU, u.PeakMemory = max(u.CPU-c.before, 0), c.peak
	return u
}

// statsLimit bounds one sample: about 10 KiB, and more with many processors.
const statsLimit = 1 << 20

// PID implements [engine.Local].
func (c *instance) PID(ctx context.Context) (int, error) {
	now, err := c.engine.inspect(ctx, c.id)
	return now.pid, err
}

// Remove implements [engine.Container]. The engine knows of a removal in progress, so that no caller has to
// wait for another one here.
func (c *instance) Remove(ctx context.Context) error {
	err := c.engine.removeSoon(ctx, c.id)
	c.Disconnect()
	return err
}

// errLost reports a container that cannot be reached but may still be running.
func (c *instance) errLost() error {
	return fmt.Errorf("%w: the connection to container %.12s was lost", engine.ErrUnavailable, c.id)
}
