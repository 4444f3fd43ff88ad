package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// readyPatience is how long init may take to report after its container has started.
const readyPatience = time.Minute

// Prepare implements [engine.Engine].
func (e *adapter) Prepare(ctx context.Context, class spec.Class, meta engine.Meta) (engine.Container, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	set, err := initSetOf(class.Image.Platform)
	if err != nil {
		return nil, fmt.Errorf("creating container %s: %w", meta.Name, err)
	}
	id, warnings, err := e.create(ctx, set, class, meta)
	if err != nil {
		return nil, err
	}
	c := newInstance(e, id)
	c.warnings, c.workDir = warnings, class.WorkDir
	if err := c.open(ctx, set); err != nil {
		if c.line != nil {
			c.line.cut()
		}
		return nil, errors.Join(err, e.Remove(ctx, id))
	}
	return c, nil
}

// createTries limits the attempts to create a container: the init volume may be in an
// unusual place, may be missing, and may disappear again.
const createTries = 4

// create creates the container, and before that the init volume if the engine lacks it.
func (e *adapter) create(ctx context.Context, set initSet, class spec.Class, meta engine.Meta) (string, []string, error) {
	for try := 1; ; try++ {
		files := e.inits.files(set.volume)
		config, host, err := createRequest(class, meta, files)
		if err != nil {
			return "", nil, err
		}
		created, err := e.createOnce(ctx, config, host, meta.Name)
		if err == nil {
			return created.ID, created.Warnings, nil
		}
		missing, isMissing := missingSource(err)
		switch {
		case !isMissing:
			return "", nil, err
		case !strings.HasPrefix(missing, files.dir+"/"):
			return "", nil, fmt.Errorf("%w: %w", engine.ErrNoSource, err)
		case try == createTries:
			return "", nil, err
		}
		if err := e.deliver(ctx, set, files, class); err != nil {
			return "", nil, err
		}
	}
}

// createOnce makes one attempt to create a container, and classifies its error.
func (e *adapter) createOnce(ctx context.Context, config *container.Config, host *container.HostConfig, name string) (container.CreateResponse, error) {
	ctx, cancel := changeContext(ctx, callTimeout)
	defer cancel()
	created, err := e.api.ContainerCreate(ctx, config, host, &network.NetworkingConfig{}, nil, name)
	if err == nil {
		return created, nil
	}
	if err = engineError(ctx, err); errdefs.IsConflict(err) {
		err = fmt.Errorf("%w: %w", engine.ErrNameTaken, err)
	}
	return created, fmt.Errorf("creating container %s: %w", name, err)
}

// missingSource extracts the missing path from the engine's refusal of a mount.
func missingSource(err error) (path string, ok bool) {
	if err == nil || !errdefs.IsInvalidArgument(err) {
		return "", false
	}
	_, path, ok = strings.Cut(err.Error(), "bind source path does not exist: ")
	return strings.TrimSpace(path), ok
}

func (e *adapter) start(ctx context.Context, id string) error {
	ctx, cancel := changeContext(ctx, 2*callTimeout)
	defer cancel()
	if err := e.api.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		return fmt.Errorf("starting container %.12s: %w", id, engineError(ctx, err))
	}
	return nil
}

// notStarted distinguishes an engine that refused a start from one that was lost.
func notStarted(err error) error {
	if isLoss(err) {
		return err
	}
	return fmt.Errorf("%w: %w", engine.ErrNotStarted, err)
}

// open starts the container and waits until its init is ready. It attaches before the
// start, because output is lost while nobody is attached.
func (c *instance) open(ctx context.Context, set initSet) error {
	var err error
	if c.line, err = c.engine.callInit(ctx, c.id); err != nil {
		return err
	}
	if err := c.engine.start(ctx, c.id); err != nil {
		return set.blame(notStarted(err))
	}
	c.up = time.Now()
	waiting, cancel := callContext(ctx, readyPatience)
	defer cancel()
	switch c.ready, err = c.line.receiver.Ready(waiting); {
	case err == nil && c.ready.Build == wire.BuildID():
		return nil
	case err == nil:
		return fmt.Errorf("%w: volume %s does not hold the init of this version; %s", engine.ErrProtocol, set.volume, set.remedy())
	case errors.Is(err, wire.ErrCut):
		return set.blame(c.whySilent(ctx))
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("%w: container %.12s: %w", engine.ErrProtocol, c.id, err)
}

// blame adds the volume of an init that could not be executed: after a power failure its
// file may be empty.
func (s initSet) blame(err error) error {
	if strings.Contains(err.Error(), initTarget) {
		return fmt.Errorf("%w; volume %s may be damaged: %s", err, s.volume, s.remedy())
	}
	return err
}

// whySilent says why a container ended before its init was ready.
func (c *instance) whySilent(ctx context.Context) error {
	<-c.line.over
	if c.line.err != nil {
		return c.errLost()
	}
	now, err := c.engine.ended(ctx, c.id)
	switch {
	case err != nil:
		return err
	case now.running:
		return c.errLost()
	}
	return fmt.Errorf("%w: container %.12s ended with exit code %d before its init was ready, and said %.500q",
		engine.ErrProtocol, c.id, now.exitCode, c.line.receiver.Complaint()+now.complaint)
}

// endPatience is how long the engine may take to notice the end of a container whose
// streams have ended.
const endPatience = 3 * time.Second

// ended returns the state of a container whose streams have ended. The engine notices the
// end of the container a little later. If it is still running, the connection was lost.
func (e *adapter) ended(ctx context.Context, id string) (state, error) {
	waiting, cancel := context.WithTimeout(ctx, endPatience)
	statuses, errs := e.api.ContainerWait(waiting, id, container.WaitConditionNotRunning)
	select {
	case <-statuses:
	case err := <-errs:
		e.log.Debug("waiting for a container that ends", "container", id, "error", err)
	}
	cancel()
	return e.inspect(ctx, id)
}

// logPatience is how long the first frame of a log may take to arrive. The engine stores
// whole lines, so the frame may only arrive with the first line of the program.
const logPatience = 200 * time.Millisecond

// Open implements [engine.Engine].
func (e *adapter) Open(ctx context.Context, ref engine.Ref, streams engine.Streams) (engine.Container, error) {
	if ref.Nonce == "" {
		if _, err := e.inspect(ctx, ref.ID); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("container %.12s has had no job", ref.ID)
	}
	nonce, err := wire.ParseNonce(ref.Nonce)
	if err != nil {
		return nil, fmt.Errorf("looking for container %.12s: %w", ref.ID, err)
	}
	c := newInstance(e, ref.ID)
	c.nonce, c.begun = nonce, true
	c.stdout, c.stderr = newSink(streams.Stdout), newSink(streams.Stderr)
	if err := c.reread(ctx, logFollowed); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, logPatience)
	defer cancel()
	c.ready, _ = c.line.receiver.Ready(waiting) // without it in the log, it stays unknown
	return c, nil
}
