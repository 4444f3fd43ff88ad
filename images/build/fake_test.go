package build

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
	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
)

// testDockerfile is what the catalogs in testdata pin.
const testDockerfile = "x"

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

	// Errors that the calls return, or in the stream of their answer.
	inspectErr, importErr, importStreamErr, buildErr, buildStreamErr, removeErr error
	// registry is what the engine pulls from.
	registry fakeRegistry
	// user is the user of every image.
	user string
	// stepLabels are the labels of the steps of a build.
	stepLabels map[string]string
	// command is the container of a command that ends only when it is killed.
	command *container.Summary
	// onBuild is called in the middle of a build.
	onBuild func(ctx context.Context)

	mu       sync.Mutex
	images   map[string]image.Summary // by tag or ID, guarded by mu
	calls    []string                 // guarded by mu
	imported []byte                   // guarded by mu
	built    build.ImageBuildOptions  // guarded by mu

	buildContext []byte // guarded by mu
	liveCtx      bool   // the context of the last removal was alive; guarded by mu

	runs   []container.Summary // of somebody, guarded by mu
	killed chan string
}

func newFake(tags ...string) *fakeEngine {
	f := &fakeEngine{images: map[string]image.Summary{}, killed: make(chan string, 1)}
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
		Config: &dockerspec.DockerOCIImageConfig{ImageConfig: ocispec.ImageConfig{User: f.user}},
	}, nil
}

func (f *fakeEngine) ImageImport(ctx context.Context, source image.ImportSource, ref string, _ image.ImportOptions) (io.ReadCloser, error) {
	if f.importErr != nil {
		f.called("import")()
		return nil, f.importErr
	}
	data, err := io.ReadAll(source.Source)
	defer f.called("import")()
	if err = errors.Join(ctx.Err(), err); err != nil {
		return nil, err
	}
	if f.importStreamErr != nil {
		return streamError(f.importStreamErr), nil
	}
	f.imported = data
	f.images[ref] = image.Summary{ID: "sha256:base", RepoTags: []string{ref}}
	return io.NopCloser(strings.NewReader(`{"status":"sha256:base"}`)), nil
}

func (f *fakeEngine) ImageBuild(ctx context.Context, buildContext io.Reader, opts build.ImageBuildOptions) (build.ImageBuildResponse, error) {
	if f.onBuild != nil {
		f.onBuild(ctx)
	}
	if f.command != nil {
		f.mu.Lock()
		f.runs = append(f.runs, *f.command)
		f.images[f.command.ImageID] = image.Summary{ID: f.command.ImageID, ParentID: "sha256:base"}
		f.mu.Unlock()
		select {
		case <-f.killed:
			f.buildStreamErr = errors.New("killed")
		case <-ctx.Done():
		}
	}
	data, err := io.ReadAll(buildContext)
	defer f.called("build")()
	f.buildContext = data
	if err = errors.Join(ctx.Err(), f.buildErr, err); err != nil {
		return build.ImageBuildResponse{}, err
	}
	f.images["sha256:step"] = image.Summary{ID: "sha256:step", ParentID: "sha256:base", RepoTags: []string{"<none>:<none>"}, Labels: f.stepLabels}
	if f.buildStreamErr != nil {
		return build.ImageBuildResponse{Body: streamError(f.buildStreamErr)}, nil
	}
	f.built = opts
	f.images[opts.Tags[0]] = image.Summary{ID: "sha256:new", ParentID: "sha256:step", RepoTags: opts.Tags}
	return build.ImageBuildResponse{Body: io.NopCloser(strings.NewReader(`{"stream":"Step 1/1 : FROM\n"}`))}, nil
}

func (f *fakeEngine) ImageList(ctx context.Context, _ image.ListOptions) ([]image.Summary, error) {
	defer f.called("list")()
	return slices.Collect(maps.Values(f.images)), ctx.Err()
}

func (f *fakeEngine) ContainerList(ctx context.Context, _ container.ListOptions) ([]container.Summary, error) {
	defer f.called("list containers")()
	return slices.Clone(f.runs), ctx.Err()
}

func (f *fakeEngine) ContainerKill(_ context.Context, id, _ string) error {
	defer f.called("kill " + id)()
	if f.command != nil && id == f.command.ID {
		select {
		case f.killed <- id:
		default:
		}
	}
	return nil
}

func (f *fakeEngine) ImageRemove(ctx context.Context, ref string, _ image.RemoveOptions) ([]image.DeleteResponse, error) {
	defer f.called("remove")()
	f.liveCtx = ctx.Err() == nil
	if err := errors.Join(ctx.Err(), f.removeErr); err != nil {
		return nil, err
	}
	if _, ok := f.images[ref]; !ok {
		return nil, errdefs.ErrNotFound
	}
	delete(f.images, ref)
	return nil, nil
}

func streamError(err error) io.ReadCloser {
	return io.NopCloser(strings.NewReader(`{"errorDetail":{"message":"` + err.Error() + `"},"error":"` + err.Error() + `"}`))
}
