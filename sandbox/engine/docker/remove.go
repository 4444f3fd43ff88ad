package docker

import (
	"context"
	"fmt"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
)

const (
	// removePoll is how often a removal by somebody else is looked at.
	removePoll = 50 * time.Millisecond
	// removeTries is how often a removal is asked for that nobody waits for.
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
		// Somebody else's removal is in progress; it may still fail.
		select {
		case <-ctx.Done():
			return fmt.Errorf("removing container %.32s: %w", name, err)
		case <-time.After(removePoll):
		}
	}
}

// removeSoon returns once the removal is certain. An engine at a socket of this machine
// has a request as soon as it is written: the kernel keeps it, and the engine carries it
// out whoever waits for the answer. That goes on in the background.
func (e *adapter) removeSoon(ctx context.Context, id string) error {
	if !isLocal(e.api.DaemonHost()) {
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

// removeTrying removes a container that the engine may fail to remove at first.
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
