package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/image"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images/imagestest"
	"github.com/evalbox/evalbox/images/store"
	"github.com/evalbox/evalbox/internal/owner"
)

// An image is read through a container that has no network, and that others find if its
// maker dies. Whatever happens meanwhile, the container is removed.
func TestContentsCleansUp(t *testing.T) {
	for name, c := range map[string]struct {
		root      string
		exportErr error
		want      string
	}{
		"an empty archive": {"", nil, ""},
		"export fails":     {"", errors.New("no export"), "no export"},
		"garbage":          {strings.Repeat("x", 2000), nil, "reading the file system of the image"},
	} {
		t.Run(name, func(t *testing.T) {
			h := imagestest.New(t)
			h.Put("", "sha256:x", imagestest.Image{Root: []byte(c.root)})
			h.Fail["export"] = c.exportErr
			_, err := store.Docker{APIClient: h}.Contents(t.Context(), "sha256:x")
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
			require.Len(t, h.Removed, 1)
			removed := h.Removed[0]
			assert.Equal(t, "none", removed.HostConfig.NetworkMode)
			assert.Regexp(t, "^/evalbox_reader-", removed.Names[0])
			assert.Equal(t, "sha256:x", removed.Labels[store.LabelReader])
			assert.Equal(t, owner.This().String(), removed.Labels[owner.LabelOwner])
			assert.Equal(t, "true", removed.Labels[owner.LabelManaged])
			assert.NotEmpty(t, removed.Labels[owner.LabelDeadline])
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	h := imagestest.New(t)
	_, err := store.Docker{APIClient: h}.Contents(ctx, "sha256:x")
	require.ErrorIs(t, err, context.Canceled)
	assert.Empty(t, h.Calls, "nothing was made")
}

func TestAbove(t *testing.T) {
	all := []image.Summary{
		{ID: "other"},
		{ID: "a", ParentID: "base"}, {ID: "b", ParentID: "a"},
		{ID: "c", ParentID: "base", RepoTags: []string{"<none>:<none>"}},
		{ID: "d", ParentID: "c"}, {ID: "used", ParentID: "d", RepoTags: []string{"x:1"}},
		{ID: "e", ParentID: "d"},
	}
	ids, used := store.Above(all, "base")
	assert.Equal(t, []string{"b", "a", "e"}, ids)
	assert.True(t, used)
}
