package archive

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/store"
	"github.com/evalbox/evalbox/internal/owner"
)

// A fakeHost is an engine that holds whole images: their configuration and their
// file system. It is safe for concurrent use.
type fakeHost struct {
	client.APIClient

	exportErr, removeErr, loadErr error
	// loads are what engines report of a load besides the ID of the image.
	loads string
	// onLoad is called after an image was loaded.
	onLoad func(id string)
	// onList is called after the images were listed.
	onList func()

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

// imageOf holds packages as "NAME VERSION".
func imageOf(t *testing.T, packages ...string) fakeImage {
	t.Helper()
	var status strings.Builder
	for _, p := range packages {
		name, version, _ := strings.Cut(p, " ")
		fmt.Fprintf(&status, "Package: %s\nStatus: install ok installed\nVersion: %s\nArchitecture: all\n\n", name, version)
	}
	return fakeImage{Created: "2026-01-01T00:00:00.5Z", Root: tarball(t,
		member{name: "usr/lib/os-release", body: "ID=debian\nVERSION_ID=12\n"},
		member{name: "var/lib/dpkg/status", body: status.String()},
	)}
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

func (h *fakeHost) ContainerCreate(ctx context.Context, config *container.Config, host *container.HostConfig,
	_ *network.NetworkingConfig, _ *ocispec.Platform, name string,
) (container.CreateResponse, error) {
	defer h.called("create")()
	if host.NetworkMode != "none" || config.Labels[store.LabelReader] != config.Image {
		return container.CreateResponse{}, errors.New("the container has a network or no label")
	}
	if !strings.HasPrefix(name, "evalbox_reader-") || config.Labels[owner.LabelOwner] != owner.This().String() ||
		config.Labels[owner.LabelManaged] != "true" || config.Labels[owner.LabelDeadline] == "" {
		return container.CreateResponse{}, errors.New("nobody would find the container if its maker died")
	}
	id := fmt.Sprintf("made-%d", len(h.calls))
	h.containers[id] = container.Summary{ID: id, ImageID: config.Image}
	return container.CreateResponse{ID: id}, ctx.Err()
}

func (h *fakeHost) ContainerExport(ctx context.Context, id string) (io.ReadCloser, error) {
	defer h.called("export")()
	if err := errors.Join(ctx.Err(), h.exportErr); err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(h.images[h.containers[id].ImageID].Root)), nil
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

func (h *fakeHost) ServerVersion(context.Context) (types.Version, error) {
	return types.Version{Version: "20.10.24"}, nil
}

// ImageSave writes a manifest with all names of the image, and the image as its
// one layer.
func (h *fakeHost) ImageSave(ctx context.Context, refs []string, _ ...client.ImageSaveOption) (io.ReadCloser, error) {
	defer h.called("save")()
	id, img, ok := h.find(refs[0])
	if !ok {
		return nil, errdefs.ErrNotFound
	}
	folder := hexOf(id) + "/"
	manifest, err := json.Marshal([]map[string]any{{"Config": id, "RepoTags": refs, "Layers": []string{folder + "layer.tar"}}})
	if err != nil {
		return nil, err
	}
	layer, err := json.Marshal(img)
	if err != nil {
		return nil, err
	}
	var saved bytes.Buffer
	err = writeMembers(&saved, []member{
		{name: folder, kind: tar.TypeDir}, {name: folder + "layer.tar", body: string(layer)},
		{name: "repositories", body: "{}"}, {name: "manifest.json", body: string(manifest)},
	})
	return io.NopCloser(&saved), errors.Join(err, ctx.Err())
}

// ImageLoad takes what ImageSave wrote, and every name in it.
func (h *fakeHost) ImageLoad(ctx context.Context, input io.Reader, _ ...client.ImageLoadOption) (image.LoadResponse, error) {
	var manifest []struct {
		Config   string
		RepoTags []string
	}
	var img fakeImage
	in := tar.NewReader(input)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && header.Name == "manifest.json" {
			err = json.NewDecoder(in).Decode(&manifest)
		} else if err == nil && path.Base(header.Name) == "layer.tar" && header.Typeflag == tar.TypeReg {
			err = json.NewDecoder(in).Decode(&img)
		}
		if err != nil {
			return image.LoadResponse{}, err
		}
	}
	defer h.called("load")()
	if err := errors.Join(ctx.Err(), h.loadErr); err != nil {
		return image.LoadResponse{}, err
	}
	id := manifest[0].Config
	h.images[id] = img
	for _, tag := range manifest[0].RepoTags {
		h.tags[tag] = id
	}
	if h.onLoad != nil {
		h.onLoad(id)
	}
	return image.LoadResponse{JSON: true, Body: io.NopCloser(strings.NewReader(h.loads + `{"stream":"Loaded image ID: ` + id + `\n"}`))}, nil
}

func (h *fakeHost) ImageTag(ctx context.Context, source, target string) error {
	defer h.called("tag")()
	h.tags[target] = source
	return ctx.Err()
}

func (h *fakeHost) ImageList(ctx context.Context, _ image.ListOptions) ([]image.Summary, error) {
	defer h.called("list")()
	var all []image.Summary
	for id, img := range h.images {
		all = append(all, image.Summary{ID: id, ParentID: img.Parent, RepoTags: h.tagsOf(id), Size: 1000})
	}
	if h.onList != nil {
		h.onList()
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

// A member is one member of a tar archive; without a type it is a file.
type member struct {
	name, body, link string
	kind             byte
}

func tarball(t testing.TB, members ...member) []byte {
	t.Helper()
	var buf bytes.Buffer
	require.NoError(t, writeMembers(&buf, members))
	return buf.Bytes()
}

func writeMembers(to io.Writer, members []member) error {
	w := tar.NewWriter(to)
	for _, m := range members {
		header := &tar.Header{Name: m.name, Linkname: m.link, Size: int64(len(m.body)), Mode: 0o644, Typeflag: m.kind}
		if m.kind == 0 {
			header.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.WriteString(w, m.body); err != nil {
			return err
		}
	}
	return w.Close()
}
