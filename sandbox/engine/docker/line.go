package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
)

// line is one connection to a container's streams. Its input goes to a receiver, which
// implements the protocol of evalbox's init.
type line struct {
	kind     lineKind
	receiver *wire.Receiver
	// over is closed at the end of the connection. err then says why it ended; nil means
	// a regular end of the streams.
	over chan struct{}
	err  error

	close func() error
	// file gives the connection up; nil for a log.
	file func() (*os.File, error)
	// stdin takes frames for init; nil for a log.
	stdin io.Writer
}

// lineKind is the source of a line.
type lineKind int

const (
	// attached means the streams themselves.
	attached lineKind = iota
	// logFollowed means the engine's copy of the output, from its beginning to the end of
	// the container; logSoFar means the part of it that exists now.
	logFollowed
	logSoFar
)

// whole reports whether the line started at the beginning of the output: a log that
// exceeded its limit has lost it.
func (l *line) whole() bool {
	if l.kind == attached {
		return true
	}
	now, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := l.receiver.Ready(now)
	return err == nil
}

// listen reads the streams of a line to their end.
func (e *adapter) listen(l *line, streams func(stdout, stderr io.Writer) error) *line {
	l.over = make(chan struct{})
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.lines == nil {
		l.cut()
	} else {
		e.lines[l] = struct{}{}
	}
	go func() {
		l.err = streams(l.receiver.Stdout(), l.receiver.Stderr())
		l.receiver.Close(l.err)
		close(l.over)
		e.mu.Lock()
		defer e.mu.Unlock()
		delete(e.lines, l)
	}()
	return l
}

// cut ends a line. It is safe to call twice.
func (l *line) cut() { _ = l.close() }

// callInit attaches to a container that is about to start.
func (e *adapter) callInit(ctx context.Context, id string) (*line, error) {
	streams, err := e.attach(ctx, id)
	if err != nil {
		return nil, err
	}
	return e.converse(streams), nil
}

// converse reads the streams of a container whose init has no job yet.
func (e *adapter) converse(streams *conversation) *line {
	l := &line{receiver: wire.NewReceiver(), close: streams.Close, file: streams.file, stdin: streams.Stdin()}
	return e.listen(l, streams.Copy)
}

// readLog returns a line that reads the engine's log of the output from the beginning. It
// ends with [line.cut], not with ctx.
func (e *adapter) readLog(ctx context.Context, id string, kind lineKind, receiver *wire.Receiver) (*line, error) {
	reading, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	ctx, cancel := callContext(ctx, callTimeout) // until the answer begins
	defer cancel()
	silent := context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })
	log, err := e.api.ContainerLogs(reading, id, container.LogsOptions{ShowStdout: true, ShowStderr: true, Follow: kind == logFollowed})
	if !silent() && err == nil {
		err = errors.Join(ctx.Err(), log.Close())
	}
	if err != nil {
		stop(nil)
		if errdefs.IsNotFound(err) || errdefs.IsConflict(err) { // somebody is removing it
			err = engine.ErrNoContainer
		}
		return nil, fmt.Errorf("reading the log of container %.12s: %w", id, engineError(ctx, err))
	}
	closing := sync.OnceValue(func() error {
		stop(net.ErrClosed)
		return log.Close()
	})
	l := &line{receiver: receiver, kind: kind, close: closing}
	return e.listen(l, func(stdout, stderr io.Writer) error { return demultiplex(log, stdout, stderr) }), nil
}
