package build

import (
	"context"
	"io"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// A fakeRegistry is what a fakeEngine can pull from. Its zero value is one that
// has everything, and knows no tags.
type fakeRegistry struct {
	// Errors that the calls return, or in the stream of their answer.
	versionErr, inspectErr, pullErr, pullStreamErr error
	// tags are the digests of tags, by reference.
	tags map[string]string
	// arch is the architecture of the engine.
	arch string

	// What the calls were given, guarded by the engine's mu.
	inspected, pulledRef, auth, platform string
}

func (f *fakeEngine) ServerVersion(ctx context.Context) (types.Version, error) {
	defer f.called("version")()
	if err := firstError(ctx.Err(), f.registry.versionErr); err != nil {
		return types.Version{}, err
	}
	arch := f.registry.arch
	if arch == "" {
		arch = "arm64"
	}
	return types.Version{Os: "linux", Arch: arch}, nil
}

func (f *fakeEngine) DistributionInspect(ctx context.Context, ref, auth string) (registry.DistributionInspect, error) {
	defer f.called("distribution")()
	f.registry.inspected, f.registry.auth = ref, auth
	if err := firstError(ctx.Err(), f.registry.inspectErr); err != nil {
		return registry.DistributionInspect{}, err
	}
	now, ok := f.registry.tags[ref]
	if !ok {
		return registry.DistributionInspect{}, errdefs.ErrNotFound
	}
	return registry.DistributionInspect{Descriptor: ocispec.Descriptor{Digest: digest.Digest(now)}}, nil
}

func (f *fakeEngine) ImagePull(ctx context.Context, ref string, opts image.PullOptions) (io.ReadCloser, error) {
	defer f.called("pull")()
	f.registry.pulledRef, f.registry.auth, f.registry.platform = ref, opts.RegistryAuth, opts.Platform
	if err := firstError(ctx.Err(), f.registry.pullErr); err != nil {
		return nil, err
	}
	if f.registry.pullStreamErr != nil {
		return streamError(f.registry.pullStreamErr), nil
	}
	f.images[ref] = image.Summary{ID: "sha256:pulled", RepoDigests: []string{ref}}
	return io.NopCloser(strings.NewReader(`{"status":"Pulling from tools"}`)), nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
