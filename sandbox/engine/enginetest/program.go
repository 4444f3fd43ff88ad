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

// Program is the view that the function of a [Fake] has of its container.
type Program struct {
	Job   spec.Job
	Class spec.Class
	Meta  engine.Meta

	c     *container
	stdin *input
	// term is closed by SIGTERM, dead when the program is killed or has ended.
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

// Print writes to stdout, and returns once the text was passed on.
func (p *Program) Print(text string) { _, _ = p.Stdout().Write([]byte(text)) }

// PrintErr writes to stderr.
func (p *Program) PrintErr(text string) { _, _ = p.Stderr().Write([]byte(text)) }

func (p *Program) Stdout() io.Writer { return output{p, false} }
func (p *Program) Stderr() io.Writer { return output{p, true} }

// Stdin is the caller's stdin if the job asks for it; otherwise it is empty.
func (p *Program) Stdin() io.Reader { return p.stdin.r }

// CloseStdin discards the rest of the input.
func (p *Program) CloseStdin() { go func() { _, _ = io.Copy(io.Discard, p.stdin.r) }() }

// Sleep waits, at most until the program is dead. In a bubble of testing/synctest, a function
// that sleeps in another way and outlives its program keeps the bubble from ending.
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

// End changes what init reports. The program calls it before it ends.
func (p *Program) End(change func(end *engine.End)) {
	p.c.fake.mu.Lock()
	defer p.c.fake.mu.Unlock()
	p.changes = append(p.changes, change)
}

// Disconnected is closed when the streams that Start was given are disconnected.
func (p *Program) Disconnected() <-chan struct{} {
	return p.attached.cut
}

// Env returns the environment of the program: the class's, overridden by the job's.
func (p *Program) Env() map[string]string {
	env := map[string]string{}
	for _, pair := range slices.Concat(p.Class.Env, p.Job.Env) {
		name, value, _ := strings.Cut(pair, "=")
		env[name] = value
	}
	return env
}

// Path returns the host path of a path in the container, or "" if it is not in a bind.
func (p *Program) Path(inside string) string { return hostPath(p.Class, p.Meta, inside) }

// Final returns the host path of a file in the output directory.
func (p *Program) Final(name string) string { return path.Join(p.Meta.Sources[spec.RoleFinal], name) }

// hostPath maps a path in a container to the host, by the deepest bind that contains it.
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
