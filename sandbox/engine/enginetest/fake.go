// Package enginetest defines the behavior of an engine. [Run] is the conformance suite that
// every adapter passes. [Fake] is an in-memory engine that passes it as well, for tests of
// the layers above the engines.
package enginetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Fake is a scripted in-memory engine. Its containers behave like those of a real engine
// with sandbox-init: they wait for a job, enforce its deadline and grace period, pass its
// output on and report the end. It uses only the clock of the time package, so it works
// inside a bubble of testing/synctest.
//
// The fields are the script. Set them before the engine is used, or with [Fake.Do].
type Fake struct {
	Copying

	// Program is the program of every job. Its result is the exit code; see [Died]. A nil Program
	// exits with 0 at once. A killed program ends at once, and its function at its next use
	// of the [Program]. A function that does not use Term ignores SIGTERM.
	Program func(p *Program) int
	// Facts is the answer of Info.
	Facts engine.Info
	// Image changes the answer of Resolve.
	Image func(ref string, image *images.Resolved)
	// Warn are the warnings of every container.
	Warn []string
	// Own is the answer of Identity.
	Own string
	// Listed are containers that other clients created. Remove removes them.
	Listed []engine.Found
	// Process returns the PID of a container's init. If it is nil, the PID is unknown.
	Process func(name string) (int, error)

	// Fail has the errors of calls.
	Fail Failures
	// Hook is called at the beginning of every call, with the name of the call and of the
	// container, if any. Its error is the answer.
	Hook func(call, name string) error
	// PrepareAnyway and StartAnyway carry a call out although Fail.Prepare or Fail.Start is
	// returned: only the answer is lost.
	PrepareAnyway, StartAnyway bool
	// PrepareTakes is how long Prepare takes.
	PrepareTakes time.Duration
	// Unseen means that the engine does not share this machine's files: sources of binds
	// exist only in staging volumes.
	Unseen bool
	// Ready changes the ready frame, and the answer to [engine.Container] Look.
	Ready func(class spec.Class, meta engine.Meta, ready *wire.Ready)
	// Paused means that no init answers to [engine.Container] Look.
	Paused bool
	// BootID is the boot ID of the engine's machine; empty means this machine's.
	BootID string

	// WaitErrs are returned by Wait, in order, instead of an end. The program continues. An
	// ErrUnavailable breaks the streams; the next Wait connects them again.
	WaitErrs []error
	// WaitGate, if not nil, delays WaitErrs until it is closed.
	WaitGate chan struct{}
	// LateBy delays the answer of Wait.
	LateBy time.Duration
	// Stuck means that the streams do not end when the program does, StuckAgain that
	// reconnected streams do not. Only Disconnect unblocks Wait.
	Stuck, StuckAgain bool
	// IgnoreKill makes kills have no effect, as on a process in uninterruptible sleep.
	IgnoreKill bool
	// NoReport loses the report and the end marks of every job.
	NoReport bool
	// Launch returns why a job cannot be started, or nil. A nil Launch starts every job.
	Launch func(job spec.Job) *engine.LaunchError
	// OOMKilled, Foreign and ForeignErr are part of every end.
	OOMKilled  bool
	Foreign    []string
	ForeignErr error
	// Preload says why a program does not run in the waiting interpreter of its class; empty
	// if it does. If Preload is nil, all do.
	Preload func(class spec.Class) string
	// Usage is the usage of every program. NoUsage means that the engine does not know it.
	Usage   engine.Usage
	NoUsage bool

	// Created, Started, Signals and Removed record the calls, in order. Removed has the
	// names of containers.
	Created []Created
	Started []spec.Job
	Signals []engine.Signal
	Removed []string
	// RemoveCtxErr is the state of the context at the last removal.
	RemoveCtxErr error
	// Misuse are violations of the contract by the caller.
	Misuse []string

	mu         sync.Mutex
	made       int
	containers map[string]*container
	away       bool
	down       chan struct{}
	closed     bool
}

// Created is one call of Prepare.
type Created struct {
	Class spec.Class
	Meta  engine.Meta
}

// Failures has the errors of calls, or nil.
type Failures struct {
	Info, Resolve, Prepare, Start, Remove, Close, Pass error
}

var (
	_ engine.Engine     = (*Fake)(nil)
	_ engine.Copier     = (*Fake)(nil)
	_ engine.Passer     = (*Fake)(nil)
	_ engine.Networks   = (*Fake)(nil)
	_ engine.Identified = (*Fake)(nil)
)

// NewFake returns an engine on which every job runs program.
func NewFake(program func(p *Program) int) *Fake {
	return &Fake{
		Program: program, containers: map[string]*container{},
		Facts: engine.Info{
			Name: "Fake", Version: "1", APIVersion: "1.41", ID: "fake", OS: "linux", Kernel: "6.1", Architecture: "amd64",
			Address: "unix:///fake.sock", Local: true, Seccomp: true, MemoryLimit: true, SwapLimit: true, CPUQuota: true, PIDsLimit: true,
			Host: spec.Host{CPUs: 8, MemoryBytes: 64 << 30, CgroupVersion: 2, NoFile: 20000,
				DefaultRuntime: "runc", Runtimes: []string{"runc"}},
		},
		Warn:  []string{"a warning of the engine"},
		Own:   "fake-1",
		Usage: engine.Usage{CPU: 1500 * time.Millisecond, PeakMemory: 42 << 20, Memory: 40 << 20, Processes: 3, Source: "fake"},
	}
}

// Died is the result of a program that a signal killed.
func Died(signal int) int { return -signal }

// NotFound is a function for [Fake.Launch]: the program is not in the image.
func NotFound(spec.Job) *engine.LaunchError {
	return &engine.LaunchError{Stage: "exec", Errno: syscall.ENOENT}
}

// Do changes the script while the engine is in use.
func (f *Fake) Do(change func(f *Fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// Left lists the containers and staging volumes that still exist, without those in Listed.
func (f *Fake) Left() []string {
	f.mu.Lock()
	var left []string
	for name := range f.containers {
		left = append(left, "container "+name)
	}
	f.mu.Unlock()
	left = append(left, f.leftVolumes()...)
	slices.Sort(left)
	return left
}

// Containers returns the names of the existing containers.
func (f *Fake) Containers() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.containers))
}

// Sources returns the sources of the last container.
func (f *Fake) Sources() engine.Sources { return f.last().Meta.Sources }

// Labels returns the labels of the last container.
func (f *Fake) Labels() map[string]string { return f.last().Meta.Labels }

func (f *Fake) last() Created {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.Created) == 0 {
		return Created{}
	}
	return f.Created[len(f.Created)-1]
}

// Break makes the engine unreachable and breaks all its connections. Containers continue.
func (f *Fake) Break() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = true
	for _, c := range f.containers {
		c.lose()
	}
	if f.down != nil {
		close(f.down)
		f.down = nil
	}
}

// Restore makes the engine reachable again.
func (f *Fake) Restore() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = false
}

// Die simulates the death of the process that uses the engine: containers that wait for a
// job end, and the streams of the others break. The engine can still be used, as by
// another process.
func (f *Fake) Die() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.containers {
		c.orphan()
	}
}

func (f *Fake) misused(format string, args ...any) {
	f.Misuse = append(f.Misuse, fmt.Sprintf(format, args...))
}

var errClosed = errors.New("the engine was closed")

// of returns the error of a call by its name.
func (e Failures) of(call string) error {
	return map[string]error{"Info": e.Info, "Resolve": e.Resolve, "Prepare": e.Prepare, "Start": e.Start, "Remove": e.Remove}[call]
}

// enter begins a call. It returns with the lock held unless it returns an error.
func (f *Fake) enter(ctx context.Context, call, name string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	f.mu.Lock()
	hook := f.Hook
	f.mu.Unlock()
	if hook != nil {
		if err := hook(call, name); err != nil {
			return err
		}
	}
	f.mu.Lock()
	fail := f.Fail.of(call)
	if call == "Prepare" && f.PrepareAnyway || call == "Start" && f.StartAnyway {
		fail = nil
	}
	switch {
	case f.closed:
		f.misused("%s after Close", call)
		fail = errClosed
	case f.away:
		fail = fmt.Errorf("%w: connection refused", engine.ErrUnavailable)
	case fail == nil:
		return nil
	}
	f.mu.Unlock()
	return fail
}

// downChan returns a channel that Break closes. The lock is held.
func (f *Fake) downChan() chan struct{} {
	if f.down == nil {
		f.down = make(chan struct{})
	}
	return f.down
}
