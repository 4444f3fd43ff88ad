package pull

import (
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/registry"
	"github.com/docker/docker/client"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
)

func testCatalog(t *testing.T) images.Catalog {
	t.Helper()
	data, err := os.ReadFile("../testdata/valid/full.yaml")
	require.NoError(t, err)
	cat, err := images.LoadCatalog(data, "full.yaml")
	require.NoError(t, err)
	return cat
}

// A fakeEngine holds images by tag. It is safe for concurrent use.
type fakeEngine struct {
	client.APIClient

	inspectErr error
	// registry is what the engine pulls from.
	registry fakeRegistry

	mu     sync.Mutex
	images map[string]image.Summary // by tag or ID, guarded by mu
	calls  []string                 // guarded by mu
}

func newFake(tags ...string) *fakeEngine {
	f := &fakeEngine{images: map[string]image.Summary{}}
	for _, tag := range tags {
		f.images[tag] = image.Summary{ID: "sha256:" + tag, RepoTags: []string{tag}}
	}
	return f
}

// state returns the names of all images, and how often each method was called.
func (f *fakeEngine) state() (names []string, calls map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls = map[string]int{}
	for _, c := range f.calls {
		calls[c]++
	}
	return slices.Sorted(maps.Keys(f.images)), calls
}

func (f *fakeEngine) called(name string) func() {
	f.mu.Lock()
	f.calls = append(f.calls, name)
	return f.mu.Unlock
}

func (f *fakeEngine) ImageInspect(ctx context.Context, ref string, _ ...client.ImageInspectOption) (image.InspectResponse, error) {
	defer f.called("inspect")()
	if err := errors.Join(ctx.Err(), f.inspectErr); err != nil {
		return image.InspectResponse{}, err
	}
	s, ok := f.images[ref]
	if !ok {
		return image.InspectResponse{}, errdefs.ErrNotFound
	}
	return image.InspectResponse{
		ID: s.ID, RepoTags: s.RepoTags, RepoDigests: s.RepoDigests, Size: 1000,
		Os: "linux", Architecture: "arm64", Variant: "v8", Created: "2026-01-01T00:00:00Z",
	}, nil
}

func (f *fakeEngine) ImageRemove(ctx context.Context, ref string, _ image.RemoveOptions) ([]image.DeleteResponse, error) {
	defer f.called("remove")()
	if _, ok := f.images[ref]; !ok {
		return nil, errdefs.ErrNotFound
	}
	delete(f.images, ref)
	return nil, ctx.Err()
}

func streamError(err error) io.ReadCloser {
	return io.NopCloser(strings.NewReader(`{"errorDetail":{"message":"` + err.Error() + `"},"error":"` + err.Error() + `"}`))
}

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
