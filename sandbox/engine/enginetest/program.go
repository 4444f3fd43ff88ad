package enginetest

import (
	"io"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Program is what the function of a [Fake] sees of its container.
type Program struct {
	Job   spec.Job
	Class spec.Class
	Meta  engine.Meta

	c     *container
	stdin *input
	// term is closed by SIGTERM, and dead when the program is killed or has ended.
	term, dead         chan struct{}
	termOnce, deadOnce sync.Once
	initKilled         chan struct{}
	initOnce           sync.Once
	attached           *connection

	changes []func(end *engine.End)
}

func newProgram(c *container, job spec.Job) *Program {
	return &Program{Job: job, Class: c.class, Meta: c.meta, c: c, stdin: newInput(),
		term: make(chan struct{}), dead: make(chan struct{}), initKilled: make(chan struct{})}
}

func (p *Program) terminate() { p.termOnce.Do(func() { close(p.term) }) }

func (p *Program) die() {
	p.deadOnce.Do(func() {
		close(p.dead)
		_ = p.stdin.r.CloseWithError(io.ErrClosedPipe) // never fails
	})
}

// Print writes to stdout, and returns once it was passed on.
func (p *Program) Print(text string) { _, _ = p.Stdout().Write([]byte(text)) }

// PrintErr writes to stderr.
func (p *Program) PrintErr(text string) { _, _ = p.Stderr().Write([]byte(text)) }

func (p *Program) Stdout() io.Writer { return output{p, false} }
func (p *Program) Stderr() io.Writer { return output{p, true} }

// Stdin is what the caller gives if the job asks for it; otherwise it is empty.
func (p *Program) Stdin() io.Reader { return p.stdin.r }

// CloseStdin makes the rest of the input go nowhere.
func (p *Program) CloseStdin() { go func() { _, _ = io.Copy(io.Discard, p.stdin.r) }() }

// Sleep waits, as long as the program lives. In a bubble of testing/synctest a function that
// sleeps otherwise, and outlives its program, keeps the bubble from ending.
func (p *Program) Sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.dead:
		runtime.Goexit()
	}
}

// Term is closed by SIGTERM.
func (p *Program) Term() <-chan struct{} { return p.term }

// Kill is closed when the program is killed.
func (p *Program) Kill() <-chan struct{} { return p.dead }

// KillInit kills init, and with it the container and the program.
func (p *Program) KillInit() {
	p.initOnce.Do(func() { close(p.initKilled) })
	<-p.dead
	runtime.Goexit()
}

// End changes what init reports. It is called by the program, before it ends.
func (p *Program) End(change func(end *engine.End)) {
	p.c.fake.mu.Lock()
	defer p.c.fake.mu.Unlock()
	p.changes = append(p.changes, change)
}

// Disconnected is closed when nobody reads the streams any more that Start was given.
func (p *Program) Disconnected() <-chan struct{} {
	return p.attached.cut
}

// Env is the environment of the program: the class's, with the job's on top.
func (p *Program) Env() map[string]string {
	env := map[string]string{}
	for _, pair := range slices.Concat(p.Class.Env, p.Job.Env) {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	return env
}

// Path is where a path of the container lies on this machine; empty if it lies in none of
// its binds.
func (p *Program) Path(inside string) string { return hostPath(p.Class, p.Meta, inside) }

// Final is a path in the output folder, on this machine.
func (p *Program) Final(name string) string { return path.Join(p.Meta.Sources[spec.RoleFinal], name) }

// hostPath maps a path of a container, by the deepest bind that it lies in.
func hostPath(class spec.Class, meta engine.Meta, inside string) string {
	best, found := "", ""
	for _, bind := range class.Binds {
		rest, below := strings.CutPrefix(inside, bind.Target)
		if below && (rest == "" || strings.HasPrefix(rest, "/")) && len(bind.Target) >= len(best) && meta.Sources[bind.Role] != "" {
			best, found = bind.Target, path.Join(meta.Sources[bind.Role], rest)
		}
	}
	return found
}
