package imagestest

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// ContainerCreate makes a container whose ID begins with "made".
func (e *Engine) ContainerCreate(ctx context.Context, config *container.Config, host *container.HostConfig,
	_ *network.NetworkingConfig, _ *ocispec.Platform, name string,
) (container.CreateResponse, error) {
	end, err := e.begin(ctx, "create")
	defer end()
	if err != nil {
		return container.CreateResponse{}, err
	}
	id, _, ok := e.find(config.Image)
	if !ok {
		return container.CreateResponse{}, errdefs.ErrNotFound
	}
	c := container.Summary{
		ID: fmt.Sprintf("made-%d", len(e.Calls)), Names: []string{"/" + name}, ImageID: id, Labels: config.Labels, State: container.StateCreated,
	}
	c.HostConfig.NetworkMode = string(host.NetworkMode)
	e.Containers[c.ID] = c
	return container.CreateResponse{ID: c.ID}, nil
}

func (e *Engine) ContainerExport(ctx context.Context, id string) (io.ReadCloser, error) {
	end, err := e.begin(ctx, "export")
	defer end()
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(e.Images[e.Containers[id].ImageID].Root)), nil
}

func (e *Engine) ContainerRemove(ctx context.Context, id string, _ container.RemoveOptions) error {
	end, err := e.begin(ctx, "remove container")
	defer end()
	if err != nil {
		return err
	}
	e.Removed = append(e.Removed, e.Containers[id])
	delete(e.Containers, id)
	return nil
}

func (e *Engine) ContainerList(ctx context.Context, opts container.ListOptions) ([]container.Summary, error) {
	end, err := e.begin(ctx, "list containers")
	defer end()
	var all []container.Summary
	for _, c := range e.Containers {
		if opts.Filters.MatchKVList("label", c.Labels) {
			all = append(all, c)
		}
	}
	return all, err
}

// ContainerKill removes the container, as a builder does with that of a command.
func (e *Engine) ContainerKill(ctx context.Context, id, _ string) error {
	end, err := e.begin(ctx, "kill "+id)
	defer end()
	delete(e.Containers, id)
	select {
	case e.Killed <- id:
	default:
	}
	return err
}
