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
	"github.com/evalbox/evalbox/sandbox"
)

// live shows the output of programs while they run.
type live struct {
	cursor terminal.Cursor
	flush  []*terminal.Writer
	// err is stderr, which the output shares with our own messages.
	err io.Writer
}

// connect shows the program's streams, unless only the result is asked for. A pipe or a
// file gets the bytes unchanged; a terminal gets them made harmless.
func (a *App) connect(streams *sandbox.IO, s settings.Settings) *live {
	l := &live{err: &locked{out: a.Err}}
	if s.Quiet || s.JSON {
		return l
	}
	streams.Stdout = l.show(a.Out, a.OutTerminal, s.Raw)
	streams.Stderr = l.show(l.err, a.ErrTerminal, s.Raw)
	return l
}

func (l *live) show(out io.Writer, isTerminal, raw bool) io.Writer {
	if !isTerminal {
		return out
	}
	out = l.cursor.Follow(out)
	if raw {
		return out
	}
	harmless := terminal.NewWriter(out)
	l.flush = append(l.flush, harmless)
	return harmless
}

// announceEnd says, when the context ends, that the program is asked to end: that
// can take its grace period. The function it returns ends the watch; nothing is
// said after it.
func (l *live) announceEnd(ctx context.Context) (end func()) {
	said := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(said)
		// The summary reports a stderr that cannot be written to.
		_, _ = io.WriteString(l.err, "sandbox: ending the program; again: at once\n")
	})
	return func() {
		if stop() {
			return
		}
		select {
		case <-said:
		case <-time.After(patience):
		}
	}
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

// locked lets the live output and our own messages share a stream.
type locked struct {
	mu  sync.Mutex
	out io.Writer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

// finish shows the rest of the output and ends an unfinished line, so that our messages
// begin on a line of their own. It does not wait for ever.
func (l *live) finish() error { return patiently(l.end) }

func (l *live) end() error {
	var errs []error
	for _, w := range l.flush {
		errs = append(errs, w.Flush())
	}
	if l.cursor.MidLine() {
		_, err := io.WriteString(l.err, "\n")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

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
	if s.Quiet {
		return &waiting{show: func(string) {}}
	}
	return &waiting{show: func(why string) {
		fmt.Fprintf(a.Err, "sandbox: waiting for GPUs, up to %v: %s\n", s.GPUWait, terminal.Line(why))
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
