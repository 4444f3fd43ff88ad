package docker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"github.com/docker/docker/api/types"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Pass implements [engine.Passer].
func (e *adapter) Pass(c engine.Container) (engine.Passed, *os.File, error) {
	given, ok := c.(*instance)
	if !ok || given.engine != e {
		return engine.Passed{}, nil, errors.New("the container is not of this engine")
	}
	given.mu.Lock()
	begun, line := given.begun, given.line
	given.begun = true // nobody can give it a job here any more
	given.mu.Unlock()
	if begun || line.file == nil {
		return engine.Passed{}, nil, fmt.Errorf("container %.12s has had its job", given.id)
	}
	file, err := line.file()
	if err != nil {
		return engine.Passed{}, nil, fmt.Errorf("passing container %.12s: %w", given.id, err)
	}
	<-line.over
	line.cut() // the file keeps it open
	if !errors.Is(line.err, os.ErrDeadlineExceeded) {
		return engine.Passed{}, nil, errors.Join(given.errLost(), file.Close())
	}
	return engine.Passed{ID: given.id, Up: given.up.Round(0), Before: given.before, Warnings: given.warnings}, file, nil
}

// Receive implements [engine.Passer].
func (e *adapter) Receive(ctx context.Context, class spec.Class, passed engine.Passed, connection *os.File) (engine.Container, error) {
	conn, err := net.FileConn(connection)
	if err = errors.Join(err, connection.Close()); err != nil {
		return nil, fmt.Errorf("receiving container %.12s: %w", passed.ID, err)
	}
	c := newInstance(e, passed.ID, wire.NewNonce())
	c.warnings, c.workDir, c.up = passed.Warnings, class.WorkDir, passed.Up
	c.preloads, c.before = class.Preload.Fits(), passed.Before
	c.line = e.converse(&conversation{hijacked: types.NewHijackedResponse(conn, ""), close: sync.OnceValue(conn.Close)})
	ready, err := c.Look(ctx)
	if err == nil && ready.Build != wire.BuildID() {
		err = fmt.Errorf("%w: container %.12s has the init of another version", engine.ErrProtocol, c.id)
	}
	if err != nil {
		c.line.cut()
		return nil, err
	}
	go c.look(context.WithoutCancel(ctx))
	return c, nil
}
