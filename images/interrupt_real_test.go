package images_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/build"
	"github.com/evalbox/evalbox/images/pull"
	"github.com/evalbox/evalbox/images/store"
)

// interruptAt cancels once the progress holds a text.
type interruptAt struct {
	text   string
	cancel context.CancelFunc

	mu   sync.Mutex
	seen bytes.Buffer // guarded by mu
}

func (i *interruptAt) Write(p []byte) (int, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.seen.Write(p)
	if strings.Contains(i.seen.String(), i.text) {
		i.cancel()
	}
	return len(p), nil
}

// rootOf streams the file system of an image, as a bootstrap would.
func rootOf(eng *client.Client, id string) build.RootFunc {
	return func(ctx context.Context, _ images.Bootstrap, w io.Writer, _ func(string)) error {
		c, err := eng.ContainerCreate(ctx, &container.Config{Image: id}, nil, nil, nil, "")
		if err != nil {
			return err
		}
		defer func() {
			_ = eng.ContainerRemove(context.WithoutCancel(ctx), c.ID, container.RemoveOptions{Force: true})
		}()
		body, err := eng.ContainerExport(ctx, c.ID)
		if err != nil {
			return err
		}
		defer body.Close()
		_, err = io.Copy(w, body)
		return err
	}
}

// endlessDockerfile has a step that ends only when it is killed, and that says when
// it has begun, in words that no line of the file has.
const endlessDockerfile = `ARG BASE_IMAGE
FROM ${BASE_IMAGE}
ARG NAME RECIPE
LABEL org.evalbox.image="${NAME}" org.evalbox.recipe="${RECIPE}"
RUN printf 'it %s\n' runs; exec sleep 600
`

// A build that is interrupted leaves no steps.
func TestEngineEnsureInterrupted(t *testing.T) {
	eng := engine(t)
	debian, err := images.Resolve(t.Context(), store.Docker{APIClient: eng}, shipped(t), "debian")
	require.NoError(t, err)
	name := fmt.Sprintf("test-interrupt-%d", os.Getpid())
	cat, err := images.LoadCatalog([]byte(fmt.Sprintf(`
schema: evalbox/images/v1
default: %[1]s
images:
  %[1]s:
    description: made by a test
    base: {bootstrap: {suite: bookworm, variant: essential, packages: [python3], epoch: 2026-01-01T00:00:00Z}}
    dockerfile: Dockerfile.runner
    dockerfile_sha256: %[2]s
`, name, sum(endlessDockerfile))), "test.yaml")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	progress := &interruptAt{text: "it runs", cancel: cancel}
	_, _, err = build.Ensure(ctx, eng, cat, "", build.Options{
		Dockerfile: endlessDockerfile, Root: rootOf(eng, debian.ID), Pull: pull.Options{Progress: progress},
	})
	require.ErrorIs(t, err, context.Canceled, "%s", &progress.seen)
	// Its command is killed, so that it does not become an image.
	entry, _ := cat.Lookup("")
	absent(t, eng, entry.Tag())
	all, err := eng.ImageList(t.Context(), image.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", images.LabelImage+"="+name))})
	require.NoError(t, err)
	for _, img := range all {
		assert.Fail(t, "left behind", img.ID)
	}
}
