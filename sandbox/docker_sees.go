package sandbox

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/strslice"

	"github.com/evalbox/evalbox/internal/owner"
)

// unknownImage is an image that no engine has.
var unknownImage = "sha256:" + strings.Repeat("0", 64)

// Sees implements [Engine]. An engine looks for the sources of mounts before it
// looks for the image: asked to make a container of an image that it does not
// have, it answers "no such image" when it found them all, and makes nothing. A
// path that is nowhere tells whether this engine does look in that order; one that
// does not is asked with the real image, and what it makes is removed.
func (e *dockerEngine) Sees(ctx context.Context, imageID string, paths ...string) (bool, error) {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	nowhere := paths[0] + ".nowhere"
	if found, err := e.finds(ctx, unknownImage, append(slices.Clone(paths), nowhere)); err != nil || !found {
		if err != nil {
			return false, err
		}
		return e.finds(ctx, unknownImage, paths)
	}
	return e.finds(ctx, imageID, paths)
}

// finds asks once. It reports what the engine says of the mounts' sources, and
// takes any other refusal of the request for an error.
func (e *dockerEngine) finds(ctx context.Context, imageID string, paths []string) (bool, error) {
	host := &container.HostConfig{NetworkMode: "none", ReadonlyRootfs: true, CapDrop: strslice.StrSlice{"ALL"}}
	for i, source := range paths {
		host.Mounts = append(host.Mounts, mount.Mount{
			Type: mount.TypeBind, Source: source, Target: fmt.Sprintf("%s/%d", depotDir, i), ReadOnly: true,
		})
	}
	config := &container.Config{Image: imageID, Entrypoint: strslice.StrSlice{"/never-started"},
		Labels: map[string]string{LabelManaged: "true", LabelPart: PartCourier, LabelOwner: owner.This().String()}}
	created, err := e.api.ContainerCreate(ctx, config, host, &network.NetworkingConfig{}, nil, "")
	switch {
	case err == nil:
		return true, e.Remove(ctx, created.ID)
	case errdefs.IsNotFound(err):
		return true, nil // it got as far as the image
	case errdefs.IsInvalidArgument(err) && strings.Contains(err.Error(), "bind source path does not exist"):
		return false, nil
	}
	return false, fmt.Errorf("asking the engine whether it sees the folders of this machine: %w", engineError(ctx, err))
}
