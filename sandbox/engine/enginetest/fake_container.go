package enginetest

import (
	"fmt"
	"maps"
	"os"
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
	// mounted are the sources of the binds: a mount follows a directory that is renamed.
	mounted map[string]*os.File
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
	// abandoned is closed when the stdin of init ends.
	abandoned   chan struct{}
	isAbandoned bool
	// joined are the handles that are connected to its streams.
	joined []*handle
	// sent are all signals, with their senders.
	sent []sentSignal
}

// mount opens the sources of the binds.
func (c *container) mount() {
	c.mounted = map[string]*os.File{}
	for role, source := range c.meta.Sources {
		if file, err := os.Open(source); err == nil { // one that only root may read is found by its name
			c.mounted[role] = file
		}
	}
}

// sources returns where the mounted files are now.
func (c *container) sources() engine.Sources {
	now := maps.Clone(c.meta.Sources)
	for role, file := range c.mounted {
		if path, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", file.Fd())); err == nil {
			now[role] = path
		}
	}
	return now
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
		c.finish(engine.End{ExitCode: 125, NoJob: true})
		c.gone = true
	case c.isOver:
		c.gone = true // its init was waiting for BYE
	default:
		_ = c.program.stdin.close()
	}
}

// abandon ends the stdin of init. The lock is held.
func (c *container) abandon() {
	if !c.isAbandoned {
		c.isAbandoned = true
		close(c.abandoned)
	}
}

// lose breaks all connections. The lock is held.
func (c *container) lose() {
	c.abandon()
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
	if end.Reported && c.class.Preload.Fits() && c.fake.Preload != nil {
		end.NotPreloaded = c.fake.Preload(c.class)
	}
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
		c.fake.mu.Lock()
		run := c.fake.Program
		c.fake.mu.Unlock()
		if run != nil {
			result = run(p)
		} else {
			result = 0
		}
	}()

	end := engine.End{Reported: true}
	var limit, soft, grace <-chan time.Time
	deadline, byLimit := began.Add(seconds(p.Job.TimeoutSeconds)), engine.ByDeadline
	arm := func(at *<-chan time.Time, when time.Time) { *at = time.NewTimer(time.Until(when)).C }
	armLimits := func() {
		arm(&limit, deadline)
		if p.Job.SoftTimeoutSeconds > 0 && end.SoftAfter == 0 {
			arm(&soft, deadline.Add(-seconds(p.Job.TimeoutSeconds-p.Job.SoftTimeoutSeconds)))
		}
	}
	if p.Job.TimeoutSeconds > 0 {
		armLimits()
	}
	asked, abandoned := false, c.abandoned
	stop := func(cause engine.Cause) {
		if asked {
			return
		}
		asked, end.Cause = true, cause
		limit, soft = nil, nil
		p.terminate()
		arm(&grace, time.Now().Add(seconds(p.Job.GraceSeconds)))
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
			stop(byLimit)
		case <-soft:
			soft, end.SoftAfter = nil, time.Since(began)
			p.warn()
		case <-abandoned:
			abandoned = nil
			orphaned := time.Now().Add(seconds(p.Job.OrphanLimitSeconds))
			if p.Job.OrphanLimitSeconds > 0 && !asked && (limit == nil || orphaned.Before(deadline)) {
				deadline, byLimit = orphaned, engine.ByOrphanLimit
				armLimits()
			}
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
			limit, soft = nil, nil
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
	p.own()
	c.report(p, end, began)
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func (c *container) report(p *Program, end engine.End, began time.Time) {
	f := c.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	end.Duration = time.Since(began)
	end.StartedAt, end.FinishedAt = c.startedAt, time.Now()
	end.Abandoned = c.isAbandoned
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
