package enginetest

import (
	"slices"
	"time"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// container is the engine's side of a container. The lock of the engine guards the fields
// that change.
type container struct {
	fake    *Fake
	id      string
	class   spec.Class
	meta    engine.Meta
	ready   wire.Ready
	created time.Time
	tape    *tape
	signals chan engine.Signal

	job       *spec.Job
	nonce     string
	program   *Program
	startedAt time.Time
	end       engine.End
	// over is closed when the job has ended, or can never start. gone means that the
	// container itself has ended.
	over   chan struct{}
	isOver bool
	gone   bool
	// killed is closed when the container is killed while its program runs.
	killed   chan struct{}
	isKilled bool
	// joined are the handles that are connected to its streams.
	joined []*handle
	// sent are all signals, with their senders.
	sent []sentSignal
}

type sentSignal struct {
	by  *handle
	how engine.Signal
}

// signalNames are the signals that arrive at init.
var signalNames = map[engine.Signal]string{engine.Stop: "SIGTERM", engine.Kill: "SIGUSR1", engine.Abort: "SIGKILL"}

// orphan simulates the end of the process that prepared the container. The lock is held.
func (c *container) orphan() {
	c.lose()
	switch {
	case c.job == nil:
		c.finish(engine.End{ExitCode: 125})
		c.gone = true
	case c.isOver:
		c.gone = true // its init was waiting for BYE
	default:
		_ = c.program.stdin.close()
	}
}

// lose breaks all connections. The lock is held.
func (c *container) lose() {
	for _, h := range c.joined {
		h.conn.close()
	}
	c.joined = nil
}

// abort kills the container, including init. The lock is held.
func (c *container) abort() {
	if !c.isKilled && !c.gone {
		c.isKilled = true
		close(c.killed)
	}
	now := time.Now()
	c.finish(engine.End{ExitCode: 128 + 9, StartedAt: c.startedAt, FinishedAt: now, Duration: now.Sub(c.startedAt)})
	c.gone = true
}

// finish ends the job. The lock is held.
func (c *container) finish(end engine.End) {
	if c.isOver {
		return
	}
	c.isOver = true
	end.OOMKilled = end.OOMKilled || c.fake.OOMKilled
	end.Foreign, end.ForeignErr = slices.Clone(c.fake.Foreign), c.fake.ForeignErr
	c.end = end
	if c.program != nil {
		c.program.die()
	}
	c.tape.close(end.Reported)
	close(c.over)
}

// run is init, from the job to the report.
func (c *container) run(p *Program) {
	began := time.Now()
	code := make(chan int, 1)
	go func() {
		result := 1 // if the program ends its goroutine
		defer func() { code <- result }()
		if run := c.fake.Program; run != nil {
			result = run(p)
		} else {
			result = 0
		}
	}()

	end := engine.End{Reported: true}
	var limit, grace <-chan time.Time
	arm := func(at *<-chan time.Time, seconds float64) {
		timer := time.NewTimer(time.Duration(seconds * float64(time.Second)))
		*at = timer.C
	}
	if p.Job.TimeoutSeconds > 0 {
		arm(&limit, p.Job.TimeoutSeconds)
	}
	asked := false
	stop := func(cause engine.Cause) {
		if asked {
			return
		}
		asked, end.Cause = true, cause
		p.terminate()
		arm(&grace, p.Job.GraceSeconds)
	}
	kill := func() bool {
		c.fake.mu.Lock()
		defer c.fake.mu.Unlock()
		return !c.fake.IgnoreKill
	}
	for ended := false; !ended; {
		select {
		case result := <-code:
			end.ExitCode = max(result, 0)
			end.Signal = max(-result, 0)
			ended = true
		case <-limit:
			limit = nil
			stop(engine.ByDeadline)
		case <-grace:
			grace = nil
			end.Escalated = true
			if ended = kill(); ended {
				end.Signal = 9
			}
		case how := <-c.signals:
			if how == engine.Stop {
				stop(engine.BySignal)
				continue
			}
			asked, end.Cause = true, engine.BySignal
			if ended = kill(); ended {
				end.Signal = 9
			}
		case <-c.killed:
			return
		case <-p.initKilled:
			c.fake.mu.Lock()
			c.abort()
			c.fake.mu.Unlock()
			return
		}
	}
	c.report(p, end, began)
}

func (c *container) report(p *Program, end engine.End, began time.Time) {
	f := c.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	end.Duration = time.Since(began)
	end.StartedAt, end.FinishedAt = c.startedAt, time.Now()
	if !f.NoUsage {
		end.Usage = f.Usage
	}
	for _, change := range p.changes {
		change(&end)
	}
	if f.NoReport {
		c.abort()
		return
	}
	c.finish(end)
}

// launchFailed ends a job that was never executed.
func (c *container) launchFailed(why *engine.LaunchError) {
	c.fake.mu.Lock()
	defer c.fake.mu.Unlock()
	c.finish(engine.End{Reported: true, Launch: why, StartedAt: c.startedAt, FinishedAt: c.startedAt})
}
