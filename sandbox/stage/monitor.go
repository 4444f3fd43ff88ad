package stage

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/archive"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/spec"
)

const (
	// askTimeout bounds one question to the disk monitor.
	askTimeout = time.Minute
	// unwatchedLimit is how long a program may run unmonitored: a little longer than an
	// engine may be away.
	unwatchedLimit = engine.ReconnectBudget + 15*time.Second
	// reconnectTries is how often a new monitor may fail while the engine is there, and
	// reconnectPause the time between two attempts.
	reconnectTries = 3
	reconnectPause = time.Second
	// maxComplaint bounds the text that is kept of a monitor's stderr, in bytes.
	maxComplaint = 1 << 10
)

var (
	// errSilent is the cause of a question that was given up.
	errSilent = errors.New("it did not answer in time")
	// errMonitorEnded means that the disk monitor has ended.
	errMonitorEnded = errors.New("the watcher of the outputs' disk has ended")
)

// monitor asks the container that measures a staging volume, one question at a time, and
// starts another one if that has ended.
type monitor struct {
	engine engine.Copier
	plan   spec.Spec
	labels map[string]string
	log    *slog.Logger
	talk   *conversation // nil until the first connection
}

// connect starts a monitor, in place of the present one.
func (m *monitor) connect(ctx context.Context) error {
	m.close(nil)
	m.talk = nil
	streams, err := m.engine.MonitorVolume(ctx, m.plan, m.labels)
	if err != nil {
		return err
	}
	m.talk = newConversation(streams)
	return nil
}

// reconnect starts a monitor and measures once.
func (m *monitor) reconnect(ctx context.Context) (archive.Space, error) {
	if err := m.connect(ctx); err != nil {
		return archive.Space{}, err
	}
	return m.measure(ctx)
}

// complaint returns the output of the monitor on its stderr.
func (m *monitor) complaint() string {
	if m.talk == nil {
		return ""
	}
	return m.talk.complaint()
}

// close ends the conversation. A question that waits for its answer fails with the reason.
func (m *monitor) close(reason error) {
	if m.talk != nil {
		m.talk.close(reason)
	}
}

// ask puts one question and reads its answer. An answer that does not come in time ends
// the monitor.
func (m *monitor) ask(ctx context.Context, question string, read func(*bufio.Reader) error) error {
	if m.talk == nil {
		return errMonitorEnded
	}
	return m.talk.ask(ctx, question, read)
}

// measure asks for the disk usage of the volume.
func (m *monitor) measure(ctx context.Context) (space archive.Space, err error) {
	err = m.ask(ctx, "space", func(from *bufio.Reader) error {
		space, err = archive.ReadSpace(lineOf(from))
		return err
	})
	return space, err
}

// free asks for the free bytes of the disk.
func (m *monitor) free(ctx context.Context) (free int64, err error) {
	err = m.ask(ctx, "free", func(from *bufio.Reader) error {
		free, err = archive.ReadFree(lineOf(from))
		return err
	})
	return free, err
}

// list asks for the entries of a directory of the volume.
func (m *monitor) list(ctx context.Context, dir string, limit, depth int) (list *archive.Inventory, err error) {
	err = m.ask(ctx, "list "+strings.TrimPrefix(dir, archive.OutDir+"/"), func(from *bufio.Reader) error {
		list, err = archive.ReadInventory(from, limit, depth)
		return err
	})
	return list, err
}

// lineOf reads bounded lines.
func lineOf(from *bufio.Reader) func() (string, error) {
	return func() (string, error) {
		line, err := from.ReadSlice('\n')
		return string(line), err
	}
}

// watch measures until watching ends or judge finds a reason to stop the run.
func (m *monitor) watch(ctx, watching context.Context, judge func(archive.Space) outcome.StopReason) outcome.StopReason {
	period, last := diskPeriod, time.Now()
	for {
		select {
		case <-watching.Done():
			return outcome.StopNone
		case <-time.After(period):
		}
		began := time.Now()
		space, err := m.measureAgain(ctx, watching, last)
		switch {
		case watching.Err() != nil:
			return outcome.StopNone
		case err != nil:
			m.log.Debug("the disk of the staging volume is not monitored any more", "error", err)
			return outcome.StopUnwatched
		}
		last = time.Now()
		if reason := judge(space); reason != outcome.StopNone {
			return reason
		}
		period = nextPeriod(began)
	}
}

// measureAgain measures once, with a new monitor if the present one has ended. It gives up
// when new ones fail although the engine is there, or when the last measurement was too
// long ago.
func (m *monitor) measureAgain(ctx, watching context.Context, last time.Time) (archive.Space, error) {
	space, err := m.measure(ctx)
	for failed := 0; err != nil && watching.Err() == nil; {
		m.log.Debug("the disk monitor failed", "error", err)
		if failed >= reconnectTries || time.Since(last) > unwatchedLimit {
			return space, err
		}
		if space, err = m.reconnect(ctx); err == nil {
			break
		}
		if !errors.Is(err, engine.ErrUnavailable) {
			failed++
		}
		select {
		case <-watching.Done():
		case <-time.After(reconnectPause):
		}
	}
	return space, err
}

// conversation is the attached streams of one monitor.
type conversation struct {
	streams engine.Conversation
	answers *bufio.Reader
	pipe    *io.PipeReader
	once    sync.Once
	noteMu  sync.Mutex
	note    *result.HeadTail
}

// newConversation begins to read the answers.
func newConversation(streams engine.Conversation) *conversation {
	reader, writer := io.Pipe()
	c := &conversation{streams: streams, pipe: reader, answers: bufio.NewReader(reader), note: result.NewHeadTail(maxComplaint)}
	go func() {
		err := streams.Copy(writer, writerFunc(c.complain))
		if err == nil {
			err = errMonitorEnded
		}
		_ = writer.CloseWithError(err) // never fails
	}()
	return c
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func (c *conversation) complain(p []byte) (int, error) {
	c.noteMu.Lock()
	defer c.noteMu.Unlock()
	return c.note.Write(p)
}

func (c *conversation) complaint() string {
	c.noteMu.Lock()
	defer c.noteMu.Unlock()
	return c.note.Text()
}

func (c *conversation) close(reason error) {
	if reason == nil {
		reason = errMonitorEnded
	}
	c.once.Do(func() {
		_ = c.pipe.CloseWithError(reason) // never fails
		_ = c.streams.Close()             // ends the monitor, too
	})
}

func (c *conversation) ask(ctx context.Context, question string, read func(*bufio.Reader) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, askTimeout, errSilent)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.close(context.Cause(ctx)) })
	defer stop()
	if _, err := io.WriteString(c.streams.Stdin(), question+"\n"); err != nil {
		return fmt.Errorf("%w: %w", errMonitorEnded, err)
	}
	return read(c.answers)
}
