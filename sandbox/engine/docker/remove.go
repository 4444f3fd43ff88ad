package docker

import (
	"context"
	"fmt"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/evalbox/evalbox/internal/dockerhost"
)

const (
	// removePoll is the interval at which a removal by somebody else is checked.
	removePoll = 50 * time.Millisecond
	// removeTries is the number of attempts of a removal that nobody waits for.
	removeTries = 3
	removePause = time.Second
)

// Remove implements [engine.Engine].
func (e *adapter) Remove(ctx context.Context, name string) error {
	ctx, cancel := changeContext(ctx, callTimeout)
	defer cancel()
	return e.removeNow(ctx, name)
}

// removeNow waits until the container is gone.
func (e *adapter) removeNow(ctx context.Context, name string) error {
	for {
		err := e.api.ContainerRemove(ctx, name, container.RemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil, errdefs.IsNotFound(err):
			return nil
		case !errdefs.IsConflict(err):
			return fmt.Errorf("removing container %.32s: %w", name, engineError(ctx, err))
		}
		// Another removal is in progress; it may still fail.
		select {
		case <-ctx.Done():
			return fmt.Errorf("removing container %.32s: %w", name, err)
		case <-time.After(removePoll):
		}
	}
}

// removeSoon returns once the removal is certain. For an engine at a socket on this
// machine that is once the request is written: the kernel holds it, and the engine
// carries it out even if nobody waits for the answer. The rest happens in the background.
func (e *adapter) removeSoon(ctx context.Context, id string) error {
	if !dockerhost.IsLocal(e.api.DaemonHost()) {
		return e.Remove(ctx, id)
	}
	written, answer := make(chan struct{}), make(chan error, 1)
	e.removals.Add(1)
	certain := sync.OnceFunc(func() {
		close(written)
		e.removals.Done()
	})
	go func() {
		ctx, cancel := changeContext(ctx, removeTries*callTimeout)
		defer cancel()
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{WroteRequest: func(sent httptrace.WroteRequestInfo) {
			if sent.Err == nil {
				certain()
			}
		}})
		err := e.removeTrying(ctx, id)
		answer <- err
		certain() // or hopeless
		if err != nil {
			e.log.Warn("a container is left behind", "container", id, "error", err)
		}
	}()
	<-written
	select {
	case err := <-answer:
		return err
	default:
		return nil
	}
}

// removeTrying retries, because the engine may fail to remove a container at first.
func (e *adapter) removeTrying(ctx context.Context, id string) error {
	for try := 1; ; try++ {
		err := e.removeNow(ctx, id)
		if err == nil || try == removeTries || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(removePause):
		}
	}
}
