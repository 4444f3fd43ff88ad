package store

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A fakeHost has one image, whose file system is an archive.
type fakeHost struct {
	client.APIClient

	root      string
	exportErr error
	removed   bool
}

func (h *fakeHost) ContainerCreate(ctx context.Context, _ *container.Config, _ *container.HostConfig,
	_ *network.NetworkingConfig, _ *ocispec.Platform, _ string,
) (container.CreateResponse, error) {
	return container.CreateResponse{ID: "made"}, ctx.Err()
}

func (h *fakeHost) ContainerExport(context.Context, string) (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader([]byte(h.root))), h.exportErr
}

func (h *fakeHost) ContainerRemove(ctx context.Context, id string, _ container.RemoveOptions) error {
	h.removed = id == "made"
	return ctx.Err()
}

// Whatever happens while an image is read, the container for it is removed.
func TestContentsCleansUp(t *testing.T) {
	for name, c := range map[string]struct {
		host fakeHost
		want string
	}{
		"an empty archive": {fakeHost{}, ""},
		"export fails":     {fakeHost{exportErr: errors.New("no export")}, "no export"},
		"garbage":          {fakeHost{root: strings.Repeat("x", 2000)}, "reading the file system of the image"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Docker{APIClient: &c.host}.Contents(t.Context(), "sha256:x")
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
			assert.True(t, c.host.removed)
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h := &fakeHost{}
	_, err := Docker{APIClient: h}.Contents(ctx, "sha256:x")
	require.ErrorIs(t, err, context.Canceled)
	assert.False(t, h.removed, "nothing was made")
}

func TestAbove(t *testing.T) {
	all := []image.Summary{
		{ID: "other"},
		{ID: "a", ParentID: "base"}, {ID: "b", ParentID: "a"},
		{ID: "c", ParentID: "base", RepoTags: []string{"<none>:<none>"}},
		{ID: "d", ParentID: "c"}, {ID: "used", ParentID: "d", RepoTags: []string{"x:1"}},
		{ID: "e", ParentID: "d"},
	}
	ids, used := Above(all, "base")
	assert.Equal(t, []string{"b", "a", "e"}, ids)
	assert.True(t, used)
}
