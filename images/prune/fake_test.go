package prune

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/store"
)

// A fakeHost is an engine that holds whole images: their configuration and their
// file system. It is safe for concurrent use.
type fakeHost struct {
	client.APIClient

	removeErr error

	mu         sync.Mutex
	images     map[string]fakeImage // by ID, guarded by mu
	tags       map[string]string    // the ID of each, guarded by mu
	containers map[string]container.Summary
	calls      []string
}

// A fakeImage is an image whose layer is called as its ID.
type fakeImage struct {
	Env     []string
	Created string
	// Root is the tar archive of the file system.
	Root []byte
	// Parent is the ID of the image that it was built on.
	Parent string
}

// hexOf is the SHA-256 of a text.
func hexOf(text string) string { return digest.FromString(text).Encoded() }

// idOf is an ID that looks like one.
func idOf(name string) string { return "sha256:" + hexOf(name) }

// imageOf is an image whose layer is called as these words.
func imageOf(_ *testing.T, words ...string) fakeImage {
	return fakeImage{Created: "2026-01-01T00:00:00.5Z", Root: []byte(strings.Join(words, "\n"))}
}

func newHost(t *testing.T) *fakeHost {
	t.Helper()
	h := &fakeHost{images: map[string]fakeImage{}, tags: map[string]string{}, containers: map[string]container.Summary{}}
	t.Cleanup(func() {
		for id := range h.containers {
			assert.NotContains(t, id, "made", "a container is left behind")
		}
	})
	return h
}

// put gives an image a name.
func (h *fakeHost) put(tag, id string, img fakeImage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.images[id] = img
	if tag != "" {
		h.tags[tag] = id
	}
}

func (h *fakeHost) find(ref string) (string, fakeImage, bool) {
	if id, ok := h.tags[ref]; ok {
		ref = id
	}
	img, ok := h.images[ref]
	return ref, img, ok
}

func (h *fakeHost) tagsOf(id string) []string {
	var tags []string
	for tag, of := range h.tags {
		if of == id {
			tags = append(tags, tag)
		}
	}
	return tags
}

func (h *fakeHost) called(name string) func() {
	h.mu.Lock()
	h.calls = append(h.calls, name)
	return h.mu.Unlock
}

func (h *fakeHost) ImageInspect(ctx context.Context, ref string, _ ...client.ImageInspectOption) (image.InspectResponse, error) {
	defer h.called("inspect")()
	id, img, ok := h.find(ref)
	if !ok {
		return image.InspectResponse{}, errors.Join(ctx.Err(), errdefs.ErrNotFound)
	}
	return image.InspectResponse{
		ID: id, RepoTags: h.tagsOf(id), Os: "linux", Architecture: "amd64", Created: img.Created, Size: 1000,
		RootFS: image.RootFS{Layers: []string{hexOf(string(img.Root))}},
		Config: &dockerspec.DockerOCIImageConfig{ImageConfig: ocispec.ImageConfig{Env: img.Env}},
	}, ctx.Err()
}

func (h *fakeHost) ContainerRemove(ctx context.Context, id string, _ container.RemoveOptions) error {
	defer h.called("remove container")()
	if err := errors.Join(ctx.Err(), h.removeErr); err != nil {
		return err
	}
	delete(h.containers, id)
	return nil
}

func (h *fakeHost) ContainerList(_ context.Context, opts container.ListOptions) ([]container.Summary, error) {
	defer h.called("list containers")()
	var all []container.Summary
	for _, c := range h.containers {
		label, labelled := opts.Filters.Get("label"), c.Labels[store.LabelReader] != ""
		if len(label) == 0 || labelled && label[0] == store.LabelReader {
			all = append(all, c)
		}
	}
	return all, nil
}

func (h *fakeHost) ImageList(ctx context.Context, _ image.ListOptions) ([]image.Summary, error) {
	defer h.called("list")()
	var all []image.Summary
	for id, img := range h.images {
		all = append(all, image.Summary{ID: id, ParentID: img.Parent, RepoTags: h.tagsOf(id), Size: 1000})
	}
	return all, ctx.Err()
}

func (h *fakeHost) ImageRemove(ctx context.Context, ref string, opts image.RemoveOptions) ([]image.DeleteResponse, error) {
	defer h.called("remove image")()
	if err := errors.Join(ctx.Err(), h.removeErr); err != nil {
		return nil, err
	}
	id, _, ok := h.find(ref)
	if !ok {
		return nil, errdefs.ErrNotFound
	}
	for _, c := range h.containers {
		if c.ImageID == id && !opts.Force {
			return nil, errdefs.ErrConflict
		}
	}
	delete(h.tags, ref)
	if len(h.tagsOf(id)) == 0 {
		delete(h.images, id)
	}
	return nil, nil
}

// smallHost holds the image "small" of the test catalog.
func smallHost(t *testing.T, packages ...string) (*fakeHost, images.Catalog, images.Entry) {
	t.Helper()
	cat := testCatalog(t)
	small, ok := cat.Lookup("small")
	require.True(t, ok)
	h := newHost(t)
	h.put(small.Tag(), idOf("small"), imageOf(t, packages...))
	return h, cat, small
}

func testCatalog(t *testing.T) images.Catalog {
	t.Helper()
	data, err := os.ReadFile("../testdata/valid/full.yaml")
	require.NoError(t, err)
	cat, err := images.LoadCatalog(data, "full.yaml")
	require.NoError(t, err)
	return cat
}
