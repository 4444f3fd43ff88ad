package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/evalbox/evalbox/images"
)

// fakeEngine is a scripted engine. It checks that it is used as [Engine] demands
// and remembers what is left behind.
type fakeEngine struct {
	fakeDepots
	mu sync.Mutex

	info EngineInfo
	// program is what the container does once it is started: it prints, waits
	// for signals, and returns the exit code.
	program func(c *fakeContainer) int

	infoErr, imageErr, createErr, attachErr, startErr, inspectErr, removeErr error
	// startAnyway starts the program and loses only the answer.
	startAnyway bool
	// oomKilled completes what Inspect answers.
	oomKilled bool
	foreign   []string
	usage     Usage
	usageErr  bool
	list      []Container

	containers map[string]*fakeContainer
	signals    []string
	removed    []string
	// removeCtxErr is the state of the context at the last Remove.
	removeCtxErr error
	created      []Spec
	labels       map[string]string
	mounts       HostPaths
	waits        int
	// waitErrs are answered, in order, instead of an exit; the program goes
	// on.
	waitErrs []error
	// waitGate, if set, holds those errors back until it is closed.
	waitGate chan struct{}
	// lateBy delays the report of the end.
	lateBy time.Duration
	// stuckAgain makes every connection but the first stay open until it is
	// cut.
	stuckAgain bool
	attaches   int
	// ignoreKill makes SIGKILL have no effect, as a wedged container does.
	ignoreKill bool
	misuse     []string
}

type fakeContainer struct {
	engine         *fakeEngine
	spec           Spec
	started        bool
	startedAt      time.Time
	finishedAt     time.Time
	code           int
	ended          chan struct{}
	stdout, stderr *io.PipeWriter
	stdoutR        *io.PipeReader
	stderrR        *io.PipeReader
	stdinR         *io.PipeReader
	stdinW         *io.PipeWriter
	// term and kill are closed by the signals.
	term, kill         chan struct{}
	termOnce, killOnce sync.Once
	closed             chan struct{}
	closeOnce          sync.Once
}

var _ Engine = (*fakeEngine)(nil)

func newFakeEngine(program func(c *fakeContainer) int) *fakeEngine {
	return &fakeEngine{
		program: program, containers: map[string]*fakeContainer{},
		info: EngineInfo{
			Name: "Fake", Version: "1", APIVersion: "1.41", Local: true, Seccomp: true,
			MemoryLimit: true, SwapLimit: true, CPUQuota: true, PIDsLimit: true,
			Host: Host{CPUs: 8, MemoryBytes: 64 << 30, CgroupVersion: 2, NoFile: 20000,
				DefaultRuntime: "runc", Runtimes: []string{"runc"}},
		},
		usage: Usage{CPU: 1500 * time.Millisecond, PeakMemory: 42 << 20},
	}
}

func (e *fakeEngine) wrong(format string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.misuse = append(e.misuse, fmt.Sprintf(format, args...))
}

func (e *fakeEngine) Close() error { return nil }

func (e *fakeEngine) Info(context.Context) (EngineInfo, error) { return e.info, e.infoErr }

func (e *fakeEngine) ResolveImage(_ context.Context, _ images.Catalog, ref string) (images.Resolved, error) {
	return images.Resolved{Name: orDefault(ref, "debian"), ID: "sha256:0123", Platform: "linux/amd64"}, e.imageErr
}

func (e *fakeEngine) Create(_ context.Context, spec Spec, mounts HostPaths, labels map[string]string) (string, []string, error) {
	if e.createErr != nil {
		return "", nil, e.createErr
	}
	c := &fakeContainer{
		engine: e, spec: spec, ended: make(chan struct{}), term: make(chan struct{}), kill: make(chan struct{}),
		closed: make(chan struct{}),
	}
	c.stdoutR, c.stdout = io.Pipe()
	c.stderrR, c.stderr = io.Pipe()
	c.stdinR, c.stdinW = io.Pipe()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.created, e.labels, e.mounts = append(e.created, spec), labels, mounts
	e.containers[spec.Job.ContainerName()] = c
	return spec.Job.ContainerName(), []string{"a warning of the engine"}, nil
}

func (e *fakeEngine) get(id string) *fakeContainer {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.containers[id]
}

func (e *fakeEngine) Attach(_ context.Context, id string, _ bool) (Streams, error) {
	if e.attachErr != nil {
		return nil, e.attachErr
	}
	c := e.get(id)
	if c == nil {
		return nil, errors.New("no such container")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.attaches++
	return &fakeStreams{c: c, stuck: e.stuckAgain && e.attaches > 1, cut: make(chan struct{})}, nil
}

type fakeStreams struct {
	c     *fakeContainer
	stuck bool
	cut   chan struct{}
	once  sync.Once
}

func (s *fakeStreams) Copy(stdout, stderr io.Writer) error {
	if s.stuck {
		<-s.cut
		return errors.New("connection closed")
	}
	var wg sync.WaitGroup
	for to, from := range map[io.Writer]*io.PipeReader{stdout: s.c.stdoutR, stderr: s.c.stderrR} {
		wg.Go(func() { _, _ = io.Copy(to, from) })
	}
	wg.Wait()
	return nil
}

func (s *fakeStreams) Stdin() io.WriteCloser { return s.c.stdinW }

func (s *fakeStreams) Close() error {
	s.once.Do(func() { close(s.cut) })
	s.c.closeOnce.Do(func() {
		close(s.c.closed)
		_ = s.c.stdoutR.Close()
		_ = s.c.stderrR.Close()
	})
	return nil
}

func (e *fakeEngine) Wait(ctx context.Context, id string) <-chan Exit {
	exits := make(chan Exit, 1)
	c := e.get(id)
	e.mu.Lock()
	e.waits++
	var failure error
	if len(e.waitErrs) > 0 {
		failure, e.waitErrs = e.waitErrs[0], e.waitErrs[1:]
	}
	e.mu.Unlock()
	go func() {
		if failure != nil {
			if e.waitGate != nil {
				<-e.waitGate
			}
			exits <- Exit{Err: failure}
			return
		}
		select {
		case <-c.ended:
			time.Sleep(e.lateBy)
			exits <- Exit{Code: c.code}
		case <-ctx.Done():
			exits <- Exit{Err: ctx.Err()}
		}
	}()
	return exits
}

func (e *fakeEngine) Start(_ context.Context, id string) error {
	if e.startErr != nil && !e.startAnyway {
		return e.startErr
	}
	c := e.get(id)
	if c.started {
		e.wrong("container %s started twice", id)
	}
	if e.waits == 0 {
		e.wrong("container %s started before anybody waited for it", id)
	}
	c.started, c.startedAt = true, time.Now()
	go func() {
		code := e.program(c)
		e.mu.Lock()
		c.code, c.finishedAt = code, time.Now()
		e.mu.Unlock()
		_ = c.stdout.Close()
		_ = c.stderr.Close()
		close(c.ended)
	}()
	return e.startErr
}

func (e *fakeEngine) Signal(_ context.Context, id, signal string) error {
	e.mu.Lock()
	e.signals = append(e.signals, signal)
	ignore := e.ignoreKill
	e.mu.Unlock()
	c := e.get(id)
	switch signal {
	case "SIGTERM":
		c.termOnce.Do(func() { close(c.term) })
	case "SIGKILL":
		if !ignore {
			c.killOnce.Do(func() { close(c.kill) })
		}
	}
	return nil
}

func (e *fakeEngine) Inspect(_ context.Context, id string) (State, error) {
	c := e.get(id)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.inspectErr != nil {
		return State{}, e.inspectErr
	}
	if c == nil {
		return State{}, ErrNoContainer
	}
	state := State{ExitCode: c.code, OOMKilled: e.oomKilled, StartedAt: c.startedAt, FinishedAt: c.finishedAt}
	select {
	case <-c.ended:
	default:
		state.Running = c.started
	}
	return state, nil
}

func (e *fakeEngine) Interference(context.Context, string, time.Time) ([]string, error) {
	return e.foreign, nil
}

func (e *fakeEngine) Usage(context.Context, EngineInfo, string) UsageSampler { return fakeSampler{e} }

type fakeSampler struct{ e *fakeEngine }

func (s fakeSampler) Sample(context.Context) (Usage, bool) { return s.e.usage, !s.e.usageErr }
func (s fakeSampler) AtEnd(context.Context) (Usage, bool)  { return Usage{}, false }
func (s fakeSampler) Source() string                       { return "fake" }

func (e *fakeEngine) Remove(ctx context.Context, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.removeCtxErr = ctx.Err()
	if e.removeErr != nil {
		return e.removeErr
	}
	e.removed = append(e.removed, id)
	delete(e.containers, id)
	return nil
}

func (e *fakeEngine) List(context.Context) ([]Container, error) { return e.list, nil }

// print writes to the container's stdout; it blocks until somebody reads.
func (c *fakeContainer) print(text string) { _, _ = io.WriteString(c.stdout, text) }

func (c *fakeContainer) printErr(text string) { _, _ = io.WriteString(c.stderr, text) }
