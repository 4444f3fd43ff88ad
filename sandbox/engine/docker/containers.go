package docker

import (
	"context"
	"fmt"
	"net/http/httptrace"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/internal/said"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// List implements [engine.Engine].
func (e *adapter) List(ctx context.Context) ([]engine.Found, error) {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	found, err := e.api.ContainerList(ctx, container.ListOptions{
		All: true, Filters: filters.NewArgs(filters.Arg("label", spec.LabelManaged+"=true")),
	})
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", e.questionError(ctx, err))
	}
	containers := make([]engine.Found, 0, len(found))
	for _, c := range found {
		name := ""
		if len(c.Names) > 0 {
			name = strings.TrimPrefix(c.Names[0], "/")
		}
		containers = append(containers, engine.Found{
			ID: c.ID, Name: name, Image: c.Image, Labels: c.Labels,
			Running: c.State == "running" || c.State == "paused" || c.State == "restarting",
			Ended:   c.State == "exited" || c.State == "dead",
			Status:  c.Status, CreatedAt: time.Unix(c.Created, 0).UTC(),
		})
	}
	return containers, nil
}

// state is the engine's view of a container.
type state struct {
	id     string
	labels map[string]string
	// created says that the container exists and was never started.
	created                    bool
	running, paused, oomKilled bool
	exitCode, pid              int
	// complaint is the engine's message if the start failed.
	complaint string
	// started and finished are zero if the container never started or ended.
	started, finished time.Time
}

// inspect returns the state of a container. If it does not exist, the error is
// [engine.ErrNoContainer].
func (e *adapter) inspect(ctx context.Context, id string) (state, error) {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	info, err := e.api.ContainerInspect(ctx, id)
	if errdefs.IsNotFound(err) {
		return state{}, fmt.Errorf("inspecting container %.12s: %w", id, engine.ErrNoContainer)
	}
	if err != nil {
		return state{}, fmt.Errorf("inspecting container %.12s: %w", id, engineError(ctx, err))
	}
	if info.ContainerJSONBase == nil || info.ID == "" || info.State == nil || container.ValidateContainerState(info.State.Status) != nil {
		return state{}, fmt.Errorf("inspecting container %.12s: %w", id, errNonsense)
	}
	labels := map[string]string{}
	if info.Config != nil {
		labels = info.Config.Labels
	}
	return state{
		id: info.ID, labels: labels, created: info.State.Status == container.StateCreated,
		paused:  info.State.Paused,
		running: info.State.Running, oomKilled: info.State.OOMKilled, exitCode: info.State.ExitCode, pid: info.State.Pid,
		complaint: said.Text(info.State.Error), started: engineTime(info.State.StartedAt), finished: engineTime(info.State.FinishedAt),
	}, nil
}

// engineTime parses a time of the engine; the year 1 means never.
func engineTime(text string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || t.Year() <= 1 {
		return time.Time{}
	}
	return t.UTC()
}

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
		if pause(ctx, removePoll) != nil {
			return fmt.Errorf("removing container %.32s: %w", name, err)
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
		if err == nil || try == removeTries || pause(ctx, removePause) != nil {
			return err
		}
	}
}
