// Package enginetest defines the behavior of an engine. [Run] is the conformance suite that
// every adapter passes. [Fake] is an in-memory engine that passes it as well, for tests of
// the layers above the engines.
package enginetest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/policy"
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

	// Program is what every job runs. Its result is the exit code; see [Died]. A nil Program
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
	// KnownNetworks are the networks that FindNetwork finds; nil means all.
	KnownNetworks []string
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
	// exist only in depots.
	Unseen bool
	// Ready changes the ready frame.
	Ready func(class spec.Class, meta engine.Meta, ready *wire.Ready)
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
	// Usage is what every program uses. NoUsage means that the engine does not know it.
	Usage   engine.Usage
	NoUsage bool
	// LogBytes bounds the engine's own copy of each job's output, by dropping its beginning.
	// 0 means 16 MiB.
	LogBytes int

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

// Failures has the errors of calls, or nil. Wait returns its error after WaitErrs.
type Failures struct {
	Info, Resolve, Network, Prepare, Open, List, Start, Wait, Signal, Remove, Close error
}

var (
	_ engine.Engine     = (*Fake)(nil)
	_ engine.Copier     = (*Fake)(nil)
	_ engine.Networks   = (*Fake)(nil)
	_ engine.Identified = (*Fake)(nil)
)

// NewFake returns an engine on which every job runs program.
func NewFake(program func(p *Program) int) *Fake {
	return &Fake{
		Program: program,
		Facts: engine.Info{
			Name: "Fake", Version: "1", APIVersion: "1.41", ID: "fake", OS: "linux", Kernel: "6.1", Architecture: "amd64",
			Address: "unix:///fake.sock", Local: true, Seccomp: true, MemoryLimit: true, SwapLimit: true, CPUQuota: true, PIDsLimit: true,
			Host: spec.Host{CPUs: 8, MemoryBytes: 64 << 30, CgroupVersion: 2, NoFile: 20000,
				DefaultRuntime: "runc", Runtimes: []string{"runc"}},
		},
		Warn:  []string{"a warning of the engine"},
		Own:   "fake-1",
		Usage: engine.Usage{CPU: 1500 * time.Millisecond, PeakMemory: 42 << 20, Source: "fake"},
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

// Left lists the containers and depots that still exist, without those in Listed.
func (f *Fake) Left() []string {
	f.mu.Lock()
	var left []string
	for name := range f.containers {
		left = append(left, "container "+name)
	}
	f.mu.Unlock()
	left = append(left, f.LeftDepots()...)
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

// Mend makes the engine reachable again.
func (f *Fake) Mend() {
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

// enter begins a call. It returns with the lock held unless it returns an error.
func (f *Fake) enter(ctx context.Context, call, name string, fail error) error {
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
	switch {
	case f.closed:
		f.misused("%s after Close", call)
		f.mu.Unlock()
		return errClosed
	case f.away:
		f.mu.Unlock()
		return fmt.Errorf("%w: connection refused", engine.ErrUnavailable)
	case fail != nil:
		f.mu.Unlock()
		return fail
	}
	return nil
}

// fail returns an injected error, read under the lock.
func (f *Fake) fail(of func(*Failures) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return of(&f.Fail)
}

// downChan returns a channel that Break closes. The lock is held.
func (f *Fake) downChan() chan struct{} {
	if f.down == nil {
		f.down = make(chan struct{})
	}
	return f.down
}

func (f *Fake) Info(ctx context.Context) (engine.Info, error) {
	if err := f.enter(ctx, "Info", "", f.fail(func(e *Failures) error { return e.Info })); err != nil {
		return engine.Info{}, err
	}
	defer f.mu.Unlock()
	return f.Facts, nil
}

func (f *Fake) Resolve(ctx context.Context, ref string) (images.Resolved, error) {
	if err := f.enter(ctx, "Resolve", ref, f.fail(func(e *Failures) error { return e.Resolve })); err != nil {
		return images.Resolved{}, err
	}
	defer f.mu.Unlock()
	if ref == "" {
		ref = "debian"
	}
	if ref == UnknownImage {
		return images.Resolved{}, fmt.Errorf("%w: %s", images.ErrNotFound, ref)
	}
	image := images.Resolved{Name: ref, Reference: ref, ID: "sha256:0123", Platform: "linux/amd64"}
	if f.Image != nil {
		f.Image(ref, &image)
	}
	return image, nil
}

func (f *Fake) FindNetwork(ctx context.Context, name string) error {
	if err := f.enter(ctx, "FindNetwork", name, f.fail(func(e *Failures) error { return e.Network })); err != nil {
		return err
	}
	defer f.mu.Unlock()
	if f.KnownNetworks != nil && !slices.Contains(f.KnownNetworks, name) {
		return &policy.FieldError{Field: "network", Value: name, Rule: "the engine has no such network"}
	}
	return nil
}

func (f *Fake) Identity(context.Context) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Own
}

// Recall implements [engine.Identified].
func (f *Fake) Recall(engine.Info) {}

func (f *Fake) Prepare(ctx context.Context, class spec.Class, meta engine.Meta) (engine.Container, error) {
	f.mu.Lock()
	fail, now := f.Fail.Prepare, f.Fail.Prepare
	if f.PrepareAnyway {
		now = nil
	}
	f.mu.Unlock()
	if err := f.enter(ctx, "Prepare", meta.Name, now); err != nil {
		return nil, err
	}
	f.Created = append(f.Created, Created{class, meta})
	err := f.check(class, meta)
	took := f.PrepareTakes
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := f.findSources(class, meta); err != nil {
		return nil, err
	}
	if err := pause(ctx, took); err != nil {
		return nil, err
	}
	ready := f.lookAround(class, meta)

	f.mu.Lock()
	defer f.mu.Unlock()
	if f.containers[meta.Name] != nil {
		return nil, fmt.Errorf("%w: %s", engine.ErrNameTaken, meta.Name)
	}
	if f.away {
		return nil, fmt.Errorf("%w: EOF", engine.ErrUnavailable)
	}
	f.made++
	c := &container{
		fake: f, id: fmt.Sprintf("%012x", 0xfa4e00000000+f.made), class: class, meta: meta, ready: ready, created: time.Now(),
		signals: make(chan engine.Signal), over: make(chan struct{}), killed: make(chan struct{}), tape: newTape(f.LogBytes),
	}
	if f.containers == nil {
		f.containers = map[string]*container{}
	}
	f.containers[meta.Name] = c
	if fail != nil {
		return nil, fail
	}
	return &handle{c: c, cut: make(chan struct{})}, nil
}

// check refuses names that are taken, and records violations of the contract. The lock is
// held.
func (f *Fake) check(class spec.Class, meta engine.Meta) error {
	switch {
	case meta.Name == "":
		f.misused("Prepare without a name")
	case class.Image.ID == "":
		f.misused("Prepare of %s: the image is not resolved", meta.Name)
	}
	for _, bind := range class.Binds {
		if source := meta.Sources[bind.Role]; !filepath.IsAbs(source) {
			f.misused("Prepare of %s: the bind %s has the source %q", meta.Name, bind.Role, source)
		}
	}
	for _, listed := range f.Listed {
		if listed.Name == meta.Name {
			return fmt.Errorf("%w: %s", engine.ErrNameTaken, meta.Name)
		}
	}
	if f.containers[meta.Name] != nil {
		return fmt.Errorf("%w: %s", engine.ErrNameTaken, meta.Name)
	}
	return nil
}

func (f *Fake) Open(ctx context.Context, ref engine.Ref, streams engine.Streams) (engine.Container, error) {
	if err := f.enter(ctx, "Open", ref.ID, f.fail(func(e *Failures) error { return e.Open })); err != nil {
		return nil, err
	}
	defer f.mu.Unlock()
	c := f.find(ref.ID)
	if c == nil {
		return nil, fmt.Errorf("%w: %s", engine.ErrNoContainer, ref.ID)
	}
	if c.job == nil {
		return nil, fmt.Errorf("container %s has no job", c.meta.Name)
	}
	h := &handle{c: c, opened: true, streams: streams, cut: make(chan struct{}), strange: ref.Nonce != c.nonce}
	h.join(f.Stuck || f.StuckAgain)
	return h, nil
}

// find looks a container up by its ID or name. The lock is held.
func (f *Fake) find(name string) *container {
	if c := f.containers[name]; c != nil {
		return c
	}
	for _, c := range f.containers {
		if c.id == name {
			return c
		}
	}
	return nil
}

func (f *Fake) List(ctx context.Context) ([]engine.Found, error) {
	if err := f.enter(ctx, "List", "", f.fail(func(e *Failures) error { return e.List })); err != nil {
		return nil, err
	}
	all := slices.Clone(f.Listed)
	for _, name := range slices.Sorted(maps.Keys(f.containers)) {
		c := f.containers[name]
		found := engine.Found{ID: c.id, Name: name, Image: c.class.Image.ID, Labels: maps.Clone(c.meta.Labels),
			Running: !c.gone, Ended: c.gone, Status: "Up", CreatedAt: c.created}
		if c.gone {
			found.Status = "Exited"
		}
		all = append(all, found)
	}
	f.mu.Unlock()
	return append(all, f.helpers()...), nil
}

func (f *Fake) Remove(ctx context.Context, name string) error {
	f.mu.Lock()
	f.RemoveCtxErr = ctx.Err()
	if name == "" {
		f.misused("Remove without a name")
	}
	f.mu.Unlock()
	if err := f.enter(ctx, "Remove", name, f.fail(func(e *Failures) error { return e.Remove })); err != nil {
		return err
	}
	defer f.mu.Unlock()
	f.remove(name)
	f.forgetHelper(name)
	return nil
}

// remove removes a container. The lock is held.
func (f *Fake) remove(name string) {
	listed := slices.IndexFunc(f.Listed, func(found engine.Found) bool { return found.ID == name || found.Name == name })
	switch c := f.find(name); {
	case c != nil:
		delete(f.containers, c.meta.Name)
		f.Removed = append(f.Removed, c.meta.Name)
		c.abort()
	case listed >= 0:
		if found := f.Listed[listed]; found.Name != "" {
			name = found.Name
		}
		f.Removed = append(f.Removed, name)
		f.Listed = slices.Delete(slices.Clone(f.Listed), listed, listed+1)
	default:
		f.Removed = append(f.Removed, name)
	}
}

func (f *Fake) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, c := range f.containers {
		c.orphan()
	}
	return f.Fail.Close
}

// pause waits for a duration or until the context ends.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func newNonce() string {
	nonce := make([]byte, 32)
	_, _ = rand.Read(nonce[1:]) // never fails
	return hex.EncodeToString(nonce)
}

// UnknownImage is a reference that no engine has.
const UnknownImage = "evalbox.invalid/no-such-image:none"
