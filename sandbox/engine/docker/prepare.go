package docker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/preload"
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
	for try := 1; ; try++ {
		c, err := e.prepare(ctx, set, class, meta)
		if err == nil {
			return c, nil
		}
		if !isLoss(err) || errors.Is(err, engine.ErrNameTaken) || try == 2 || ctx.Err() != nil || e.Remove(ctx, meta.Name) != nil {
			return nil, err
		}
		// Only the connection was lost. Nothing has run, and nothing is left: once more.
	}
}

// prepare makes one attempt.
func (e *adapter) prepare(ctx context.Context, set initSet, class spec.Class, meta engine.Meta) (*instance, error) {
	id, warnings, err := e.create(ctx, set, class, meta)
	if err != nil {
		return nil, err
	}
	c := newInstance(e, id, wire.NewNonce())
	c.warnings, c.workDir, c.preloads = warnings, class.WorkDir, class.Preload.Fits()
	if err := c.open(ctx, set, class, meta.Warm); err != nil {
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

// createOnce creates a container, and classifies the error. The engine may have created it although
// the answer was lost. So the request is repeated once, and a container of that name which has
// our labels is ours.
func (e *adapter) createOnce(ctx context.Context, config *container.Config, host *container.HostConfig, name string) (container.CreateResponse, error) {
	for try := 1; ; try++ {
		created, err := e.createAnswer(ctx, config, host, name)
		if err == nil {
			return created, nil
		}
		taken := errdefs.IsConflict(err)
		if taken || isLoss(err) {
			now, lookErr := e.named(ctx, name, taken)
			switch {
			case lookErr == nil && now.created && now.isOf(config.Labels):
				return container.CreateResponse{ID: now.id}, nil
			case lookErr == nil && !taken:
				taken, err = true, errors.New("another run has it") // and no loss: nobody may remove it
			case errors.Is(lookErr, engine.ErrNoContainer) && try == 1:
				continue // if the first request still arrives now, its container has our labels
			}
		}
		if taken {
			err = fmt.Errorf("%w: %w", engine.ErrNameTaken, err)
		}
		return container.CreateResponse{}, fmt.Errorf("creating container %s: %w", name, err)
	}
}

// named returns the state of the container with a name. If the name is taken, it may belong to a
// container that is still being created, and cannot be seen yet.
func (e *adapter) named(ctx context.Context, name string, taken bool) (state, error) {
	ctx, cancel := changeContext(ctx, callTimeout)
	defer cancel()
	for {
		now, err := e.inspect(ctx, name)
		if !taken || !errors.Is(err, engine.ErrNoContainer) || pause(ctx, removePoll) != nil {
			return now, err
		}
	}
}

// createAnswer makes one call to create a container.
func (e *adapter) createAnswer(ctx context.Context, config *container.Config, host *container.HostConfig, name string) (container.CreateResponse, error) {
	ctx, cancel := changeContext(ctx, callTimeout)
	defer cancel()
	created, err := e.api.ContainerCreate(ctx, config, host, &network.NetworkingConfig{}, nil, name)
	if err == nil && created.ID == "" {
		err = errNonsense
	}
	return created, engineError(ctx, err)
}

// isOf reports whether a container was created with these labels, which name its run and its
// owner. An image may add others.
func (s state) isOf(labels map[string]string) bool {
	for name, value := range labels {
		if s.labels[name] != value {
			return false
		}
	}
	return labels[spec.LabelRun] != "" && labels[spec.LabelOwner] != ""
}

// missingSource extracts the missing path from the engine's refusal of a mount.
func missingSource(err error) (path string, ok bool) {
	if err == nil || !errdefs.IsInvalidArgument(err) {
		return "", false
	}
	_, path, ok = strings.Cut(err.Error(), "bind source path does not exist: ")
	return strings.TrimSpace(path), ok
}

// start starts a container. If the answer is lost, the engine is asked whether it has started it,
// and has to start it again if not.
func (e *adapter) start(ctx context.Context, id string) error {
	for try := 1; ; try++ {
		err := e.startAnswer(ctx, id)
		if !isLoss(err) {
			return err
		}
		switch now, lookErr := e.inspect(context.WithoutCancel(ctx), id); {
		case lookErr == nil && now.running:
			return nil
		case lookErr == nil && now.created && try == 1:
		default:
			return err
		}
	}
}

// startAnswer makes one call to start a container.
func (e *adapter) startAnswer(ctx context.Context, id string) error {
	ctx, cancel := changeContext(ctx, 2*callTimeout)
	defer cancel()
	if err := e.api.ContainerStart(ctx, id, container.StartOptions{}); err != nil {
		return fmt.Errorf("starting container %.12s: %w", id, engineError(ctx, err))
	}
	return nil
}

// startPatience is how long the answer to a start may take when init has reported already.
const startPatience = 5 * time.Second

// startInit starts a container and returns when the engine has answered, or when its init has
// been ready for a while: then only the answer was lost.
func (c *instance) startInit(ctx context.Context) error {
	answer := make(chan error, 1)
	go func() { answer <- c.engine.start(ctx, c.id) }()
	ready := make(chan struct{})
	waiting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	go func() {
		if _, err := c.line.receiver.Ready(waiting); err == nil {
			close(ready)
		}
	}()
	select {
	case err := <-answer:
		return err
	case <-ready:
	}
	select {
	case err := <-answer:
		return err
	case <-time.After(startPatience):
		return nil
	}
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
func (c *instance) open(ctx context.Context, set initSet, class spec.Class, warm []string) error {
	wait, waits, err := preload.Wait(class, oomScore)
	if err != nil {
		return err
	}
	if !waits && len(warm) > 0 {
		wait, waits = wire.Wait{Args: warm, Dir: class.WorkDir, Patience: warmPatience, OOMScoreAdj: oomScore}, true
	}
	if c.line, err = c.engine.callInit(ctx, c.id); err != nil {
		return err
	}
	if err := c.startInit(ctx); err != nil {
		return set.blame(notStarted(err))
	}
	c.up = time.Now()
	waiting, cancel := callContext(ctx, readyPatience)
	defer cancel()
	switch c.ready, err = c.line.receiver.Ready(waiting); {
	case err == nil && c.ready.Build == wire.BuildID():
		go c.look(context.WithoutCancel(ctx))
		if waits {
			return c.preload(ctx, wait)
		}
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

// warmPatience is how long a command may take that only has to bring files into memory.
const warmPatience = 10 * time.Second

// preload starts the waiting interpreter, and returns when it is ready or has failed, or has ended.
func (c *instance) preload(ctx context.Context, wait wire.Wait) error {
	frame, err := wait.Encode()
	if err != nil {
		return fmt.Errorf("container %.12s: %w", c.id, err)
	}
	waiting, cancel := callContext(ctx, wait.Patience+readyPatience)
	defer cancel()
	go func() {
		// A failed write shows as the end of the line.
		_, _ = c.line.stdin.Write(frame)
	}()
	used, err := c.line.receiver.Waiting(waiting)
	switch {
	case err == nil:
		c.before = used.CPU
		return nil
	case errors.Is(err, wire.ErrCut):
		return c.whySilent(ctx)
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
	case now.running, now.exitCode == initRefuses && c.line.receiver.Complaint() == "":
		return c.errLost() // an init whose stdin ends has lost us
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
	nonce, err := wire.ParseNonce(ref.Nonce)
	if err != nil {
		return nil, fmt.Errorf("looking for container %.12s: %w", ref.ID, err)
	}
	c := newInstance(e, ref.ID, nonce)
	c.begun, c.opened = true, true
	c.stdout, c.stderr = newSink(streams.Stdout), newSink(streams.Stderr)
	if err := c.reread(ctx, logFollowed); err != nil {
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, logPatience)
	defer cancel()
	_, _ = c.line.receiver.Ready(waiting) // see Ready
	go c.look(context.WithoutCancel(ctx))
	c.endIdle(ctx)
	return c, nil
}

// idlePatience is how long an init without a program and without output must be seen to be so
// before it counts as one without a job. The connection that carried the job is gone.
const idlePatience = 3 * time.Second

// endIdle ends the init of a container that never got its job, although it was sent. An engine
// that was restarted with its containers keeps the stdin of such an init open, and so init would
// wait for ever. The engine's log alone does not show that: it only has whole lines. But an init
// with a job has a program beside it, or has ended.
func (c *instance) endIdle(ctx context.Context) {
	if !c.isIdle(ctx) || pause(ctx, idlePatience) != nil || !c.isIdle(ctx) {
		return
	}
	c.mu.Lock()
	c.idle = true
	c.mu.Unlock()
	_ = c.Signal(ctx, engine.Abort) // Wait finds out
}

// isIdle reports whether init is alone in its container, and nothing but its first frame came.
func (c *instance) isIdle(ctx context.Context) bool {
	if c.line.receiver.Began() {
		return false
	}
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	if now, err := c.engine.inspect(ctx, c.id); err != nil || !now.running || now.paused {
		return false
	}
	top, err := c.engine.api.ContainerTop(ctx, c.id, nil)
	if err != nil {
		return false
	}
	programs := slices.DeleteFunc(top.Processes, func(process []string) bool {
		return len(process) > 0 && preload.IsWaiting(process[len(process)-1])
	})
	return len(programs) == 1
}
