package images

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/evalbox/evalbox/internal/owner"
)

// Reader is the part of the engine's API that reading an image needs. The client
// of github.com/docker/docker has it.
type Reader interface {
	Inspector
	ContainerCreate(ctx context.Context, config *container.Config, host *container.HostConfig,
		networking *network.NetworkingConfig, platform *ocispec.Platform, name string) (container.CreateResponse, error)
	ContainerExport(ctx context.Context, id string) (io.ReadCloser, error)
	ContainerRemove(ctx context.Context, id string, opts container.RemoveOptions) error
	ServerVersion(ctx context.Context) (types.Version, error)
}

var _ Reader = (*client.Client)(nil)

// LabelReader marks the containers that images are read through. They are never
// started, and are gone when the image is read; [Prune] and `sandbox gc` remove
// those that a killed process left.
const LabelReader = "org.evalbox.reader"

// readerAge is longer than reading an image takes. A container for that which is
// older was left behind, if its owner cannot be asked.
const readerAge = time.Hour

// readerName begins the names of these containers. No run's own can have it.
const readerName = "evalbox_reader-"

func readerLabels(id string, now time.Time) map[string]string {
	return map[string]string{
		LabelReader: id, owner.LabelManaged: "true", owner.LabelPart: "reader", owner.LabelOwner: owner.This().String(),
		owner.LabelDeadline: now.Add(readerAge).UTC().Format(time.RFC3339),
	}
}

// leftBehind says that a container was made to read an image, and that nobody will
// remove it.
func leftBehind(c container.Summary, now time.Time) bool {
	if c.Labels[LabelReader] == "" || c.State != container.StateCreated {
		return false
	}
	if by, err := owner.Parse(c.Labels[owner.LabelOwner]); err == nil && by.Fate() != owner.Unknown {
		return by.Fate() == owner.Dead
	}
	return now.Sub(time.Unix(c.Created, 0)) > readerAge
}

// createTime bounds making such a container, which the caller's context does not
// end: a call that is cut short goes on in the engine.
const createTime = 2 * time.Minute

// readImage lists the packages of an image without running anything of it: the
// engine exports the file system of a container that is never started.
func readImage(ctx context.Context, eng Reader, id string) (found contents, err error) {
	if err := ctx.Err(); err != nil {
		return contents{}, err
	}
	createCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createTime)
	defer cancel()
	made, err := eng.ContainerCreate(createCtx,
		&container.Config{
			Image: id, Cmd: []string{"true"}, NetworkDisabled: true,
			Labels: readerLabels(id, time.Now()),
		},
		&container.HostConfig{NetworkMode: "none", ReadonlyRootfs: true, CapDrop: []string{"ALL"}}, nil, nil, readerName+rand.Text())
	if err != nil {
		return contents{}, err
	}
	defer func() {
		removeCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), discardTime)
		defer cancel()
		remove := container.RemoveOptions{Force: true, RemoveVolumes: true}
		err = errors.Join(err, ignoreNotFound(eng.ContainerRemove(removeCtx, made.ID, remove)))
	}()
	stream, err := eng.ContainerExport(ctx, made.ID)
	if err != nil {
		return contents{}, err
	}
	defer stream.Close()
	return readContents(stream)
}
