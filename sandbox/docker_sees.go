package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

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
	id, err := e.createLooker(ctx, imageID, paths)
	switch {
	case err == nil:
		return true, e.Remove(ctx, id)
	case errdefs.IsNotFound(err):
		return true, nil // it got as far as the image
	case errdefs.IsInvalidArgument(err) && strings.Contains(err.Error(), "bind source path does not exist"):
		return false, nil
	}
	return false, fmt.Errorf("asking the engine whether it sees the folders of this machine: %w", engineError(ctx, err))
}

// createLooker makes a container, never to be started, that has each path mounted.
func (e *dockerEngine) createLooker(ctx context.Context, imageID string, paths []string) (string, error) {
	host := &container.HostConfig{NetworkMode: "none", ReadonlyRootfs: true, CapDrop: strslice.StrSlice{"ALL"}}
	for i, source := range paths {
		host.Mounts = append(host.Mounts, mount.Mount{
			Type: mount.TypeBind, Source: source, Target: lookedAt(i), ReadOnly: true,
		})
	}
	config := &container.Config{Image: imageID, Entrypoint: strslice.StrSlice{"/never-started"},
		Labels: map[string]string{LabelManaged: "true", LabelPart: PartCourier, LabelOwner: owner.This().String(),
			LabelDeadline: time.Now().Add(deadlineSlack).UTC().Format(time.RFC3339)}}
	created, err := e.api.ContainerCreate(ctx, config, host, &network.NetworkingConfig{}, nil, "")
	return created.ID, err
}

// lookedAt is where a container that is asked has one of its paths.
func lookedAt(i int) string { return fmt.Sprintf("%s/%d", depotDir, i) }

// SeesSame implements [Engine]. An engine tells what is at a path of a container
// that never runs, but not the inode.
func (e *dockerEngine) SeesSame(ctx context.Context, imageID string, paths ...string) (same bool, err error) {
	ctx, cancel := callContext(ctx, callTimeout)
	defer cancel()
	if found, err := e.Sees(ctx, imageID, paths...); err != nil || !found {
		return false, err
	}
	id, err := e.createLooker(ctx, imageID, paths)
	if err != nil {
		return false, fmt.Errorf("asking the engine what it sees: %w", engineError(ctx, err))
	}
	defer func() { err = errors.Join(err, e.Remove(ctx, id)) }()
	for i, ours := range paths {
		info, err := os.Lstat(ours)
		if err != nil {
			return false, nil // told when it is opened to be used
		}
		theirs, err := e.api.ContainerStatPath(ctx, id, lookedAt(i))
		if err != nil {
			return false, fmt.Errorf("asking the engine what it sees: %w", engineError(ctx, err))
		}
		if theirs.Mode != info.Mode() || theirs.Size != info.Size() || !theirs.Mtime.Equal(info.ModTime()) {
			return false, nil
		}
	}
	return true, nil
}
