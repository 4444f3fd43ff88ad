package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// View says how much of the programs' output a command shows while they run.
type View int

const (
	// Hidden shows nothing.
	Hidden View = iota
	// Shown passes the output on.
	Shown
	// Piped is Shown, and announces the end of a program that is interrupted.
	Piped
	// AtTerminal shows the output only to people, at a terminal.
	AtTerminal
)

// A Session is a command that runs programs: what connects it with its caller from
// [App.Begin] to [Session.Ended].
type Session struct {
	*App

	Settings settings.Settings
	Runner   *sandbox.Runner
	// Box is the runner. While it runs a program or writes back files, the second signal ends
	// the program and not this process.
	Box   sandbox.Box
	IO    sandbox.IO
	Hooks sandbox.Hooks

	traces    *traces
	live      *live
	waiting   *waiting
	announced func()
	shown     error
	over      bool
}

// Begin opens the runner that the settings describe, with further options, and connects its
// programs with the caller: the output, the waits for GPUs and for the engine, and the signals. The caller closes the
// session.
func (a *App) Begin(ctx context.Context, s settings.Settings, view View, more ...sandbox.Option) (*Session, error) {
	runner, err := a.OpenRunner(s, more...)
	if err != nil {
		return nil, err
	}
	x := &Session{
		App: a, Settings: s, Runner: runner, traces: a.trace(ctx),
		waiting: a.waits(s), announced: func() {},
	}
	x.Box = x.traces.box(counted{runner, a.Runs})
	x.live = a.connect(&x.IO, s, view)
	x.Hooks = sandbox.Hooks{Kill: a.Kill, Waiting: x.waiting.say, Started: x.waiting.end}
	if view == Piped {
		x.Hooks.Started = func() {
			x.waiting.end()
			if !a.IsQuiet(s) {
				x.AnnounceEnd(ctx)
			}
		}
	}
	return x, nil
}

// AnnounceEnd says, when ctx ends, that the program is asked to end: that can take its grace
// period. Nothing is said after the session has ended.
func (x *Session) AnnounceEnd(ctx context.Context) {
	said := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(said)
		x.Logf("stopping the program; press Ctrl-C again to kill it")
	})
	x.announced = func() {
		if stop() {
			return
		}
		select {
		case <-said:
		case <-time.After(patience):
		}
	}
}

// Logf prints a line on stderr, beside the output of programs.
func (x *Session) Logf(format string, args ...any) {
	fmt.Fprintf(x.live.err, "sandbox: "+format+"\n", args...) // the summary reports a stderr that is gone
}

// Ended says that nothing runs any more: from here on a signal ends this process. It shows
// the rest of the output, and returns why the output could not be shown.
func (x *Session) Ended() error {
	if x.over {
		return x.shown
	}
	x.over = true
	x.waiting.end()
	x.announced()
	if x.App.Ended != nil {
		x.App.Ended()
	}
	x.shown = x.live.finish()
	return x.shown
}

// Close closes the runner, and sends the rest of the traces.
func (x *Session) Close() {
	_ = x.Runner.Close() // nothing is left to do about it
	if err := x.traces.end(); err != nil {
		x.Warn("the traces are not complete: %s", text.Short(err.Error(), maxExportError))
	}
}

// Finish ends the session with an exit code, shows the result, and returns runErr or why the
// result cannot be shown.
func (x *Session) Finish(code int, value any, runErr error, lines func() []string) error {
	_ = x.Ended() // the result has all output
	x.Code = code
	return errors.Join(x.Present(value, x.IsQuiet(x.Settings), x.Settings, lines), runErr)
}

// LivesHere reports whether a terminal shows the output of a program to people, as it comes.
func (a *App) LivesHere(s settings.Settings) bool {
	return a.OutTerminal && a.ErrTerminal && !s.JSON
}

// MaxParallel bounds how many containers a command runs at once.
const MaxParallel = 1024

// GPUWait is how long a run waits for GPUs. Concurrent runs with the same time limit wait for
// each other: at most until all earlier ones have had their time.
func GPUWait(s settings.Settings, parallel int, timeout time.Duration) time.Duration {
	if s.GPUs == "" || parallel == 1 {
		return s.GPUWait
	}
	const slack = 10 * time.Minute // of each run, for its image, outputs and grading
	each := timeout + slack
	if each > time.Duration(1<<62)/time.Duration(parallel) {
		return max(s.GPUWait, 1<<62)
	}
	return max(s.GPUWait, time.Duration(parallel)*each)
}

// counted is a runner whose work is counted as long as it lasts. It adds runs to the trial of
// their context.
type counted struct {
	*sandbox.Runner

	runs *Runs
}

func (c counted) Run(ctx context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error) {
	defer c.runs.Begin()()
	t, ok := ctx.Value(trialKey{}).(*Trial)
	if !ok {
		return c.Runner.Run(ctx, req, opts...)
	}
	req = t.label(req)
	began := time.Now().UTC()
	res, err := c.Runner.Run(ctx, req, opts...)
	if res != nil {
		t.note(req, began, res)
	}
	return res, err
}

func (c counted) Adopt(ctx context.Context, id string, opts ...sandbox.RunOption) (*result.Result, error) {
	defer c.runs.Begin()()
	return c.Runner.Adopt(ctx, id, opts...)
}

func (c counted) ApplyTree(ctx context.Context, id, target string, opts tree.ApplyOptions) (tree.Report, error) {
	defer c.runs.Begin()()
	return c.Runner.ApplyTree(ctx, id, target, opts)
}

// live shows the output of programs while they run.
type live struct {
	screen *terminal.Screen
	// err is stderr for our own messages, which the output shares it with.
	err io.Writer
}

// connect shows the program's streams as far as the view does. A pipe or a file gets the bytes
// unchanged; a terminal gets them made harmless.
func (a *App) connect(streams *sandbox.IO, s settings.Settings, view View) *live {
	errs := &Locked{Out: a.Err}
	l := &live{screen: a.Screen()}
	l.err = l.screen.Messages(errs)
	if s.JSON || view == Hidden || view == AtTerminal && !a.LivesHere(s) {
		return l
	}
	streams.Stdout = l.show(a.Out, a.OutTerminal, s.Raw)
	streams.Stderr = l.show(errs, a.ErrTerminal, s.Raw)
	return l
}

func (l *live) show(out io.Writer, isTerminal, raw bool) io.Writer {
	switch {
	case !isTerminal:
		return out
	case raw:
		return l.screen.Raw(out)
	}
	return l.screen.Stream(out)
}

// patience is how long a terminal may take no output once the run has ended. A stopped or
// unread terminal must not hold this process for ever.
const patience = 2 * time.Second

// errStuck means that an output took nothing for as long as patience lasts.
var errStuck = errors.New("the reader of the output is stuck")

// patiently calls do, which may block on an output. It gives up after a while; do may then
// go on.
func patiently(do func() error) error {
	done := make(chan error, 1)
	go func() { done <- do() }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		return errStuck
	}
}

// Locked lets several writers share a stream: each Write is a whole.
type Locked struct {
	mu  sync.Mutex
	Out io.Writer
}

func (l *Locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Out.Write(p)
}

// finish shows the rest of the output and ends an unfinished line, so that our messages
// begin on a line of their own. It does not wait for ever.
func (l *live) finish() error { return patiently(l.screen.End) }

// waitingEvery is the least time between two messages: a busy queue changes many times in
// a second.
const waitingEvery = 5 * time.Second

// waiting shows why runs wait. Its methods may be called concurrently.
type waiting struct {
	show func(why string)

	mu    sync.Mutex
	last  time.Time
	next  string
	timer *time.Timer
}

// waits says on stderr why a run waits, also with --json.
func (a *App) waits(s settings.Settings) *waiting {
	limit := s.GPUWait
	if s.EngineKind == settings.Kubernetes { // its scheduler hands GPUs out
		limit = s.Cluster.ScheduleTimeout
	}
	return &waiting{show: func(why string) {
		if !s.Quiet {
			fmt.Fprintf(a.Err, "sandbox: waiting up to %v for %s\n", limit, terminal.Line(why))
		}
	}}
}

// say shows a reason now, or later if the last message is recent; then only the latest
// reason is shown.
func (w *waiting) say(why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pause := waitingEvery - time.Since(w.last)
	switch {
	case w.timer != nil:
		w.next = why
	case pause <= 0:
		w.last = time.Now()
		w.show(why)
	default:
		w.next = why
		w.timer = time.AfterFunc(pause, w.sayNext)
	}
}

func (w *waiting) sayNext() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		return // it has ended meanwhile
	}
	w.timer, w.last = nil, time.Now()
	w.show(w.next)
}

// end drops a reason that was not shown: the wait is over.
func (w *waiting) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}
