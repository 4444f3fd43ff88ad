package docker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

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
	running, oomKilled bool
	exitCode, pid      int
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
	if info.ContainerJSONBase == nil || info.State == nil {
		return state{}, fmt.Errorf("inspecting container %.12s: the engine reported no state", id)
	}
	return state{
		running: info.State.Running, oomKilled: info.State.OOMKilled, exitCode: info.State.ExitCode, pid: info.State.Pid,
		complaint: info.State.Error, started: engineTime(info.State.StartedAt), finished: engineTime(info.State.FinishedAt),
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
