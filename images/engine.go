package images

import (
	"context"
	"io"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"
	"github.com/docker/docker/client"
)

// Inspector is the part of the engine that looking an image up needs. The
// error of an unknown image is a "not found" of containerd/errdefs.
type Inspector interface {
	ImageInspect(ctx context.Context, ref string, opts ...client.ImageInspectOption) (image.InspectResponse, error)
}

// PullEngine is the part of the engine's API that pulling an image needs. The
// client of github.com/docker/docker has it. The caller closes what ImagePull
// returns.
type PullEngine interface {
	Inspector
	ServerVersion(ctx context.Context) (types.Version, error)
	DistributionInspect(ctx context.Context, ref, encodedAuth string) (registry.DistributionInspect, error)
	ImagePull(ctx context.Context, ref string, opts image.PullOptions) (io.ReadCloser, error)
	ImageRemove(ctx context.Context, ref string, opts image.RemoveOptions) ([]image.DeleteResponse, error)
}

// Engine is the part of the engine's API that making an image needs. The client
// of github.com/docker/docker has it. The caller closes what ImageImport and
// ImageBuild return.
type Engine interface {
	PullEngine
	ImageImport(ctx context.Context, source image.ImportSource, ref string, opts image.ImportOptions) (io.ReadCloser, error)
	ImageBuild(ctx context.Context, buildContext io.Reader, opts build.ImageBuildOptions) (build.ImageBuildResponse, error)
	ImageList(ctx context.Context, opts image.ListOptions) ([]image.Summary, error)
	ContainerList(ctx context.Context, opts container.ListOptions) ([]container.Summary, error)
	ContainerKill(ctx context.Context, id, signal string) error
}

var _ Engine = (*client.Client)(nil)
