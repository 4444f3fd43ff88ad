package images

import (
	"testing"

	"github.com/docker/docker/api/types/image"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
)

func inspected() image.InspectResponse {
	return image.InspectResponse{
		ID: "sha256:a", Os: "linux", Architecture: "arm64", RootFS: image.RootFS{Layers: []string{"l1", "l2"}},
		Config: &dockerspec.DockerOCIImageConfig{ImageConfig: ocispec.ImageConfig{
			User: "1", Env: []string{"A=1"}, Cmd: []string{"c"}, WorkingDir: "/w",
		}},
	}
}

// The content changes with everything that a program can tell, and with nothing
// else.
func TestContentOf(t *testing.T) {
	want := contentOf(inspected())
	assert.Regexp(t, `^sha256:[0-9a-f]{64}$`, want)
	for name, c := range map[string]struct {
		change func(*image.InspectResponse)
		same   bool
	}{
		"ID":             {func(i *image.InspectResponse) { i.ID = "sha256:b" }, true},
		"created":        {func(i *image.InspectResponse) { i.Created = "2026-01-01T00:00:00Z" }, true},
		"labels":         {func(i *image.InspectResponse) { i.Config.Labels = map[string]string{"a": "b"} }, true},
		"variant of all": {func(i *image.InspectResponse) { i.Variant = "v8" }, true},
		"empty, not nil": {func(i *image.InspectResponse) { i.Config.Entrypoint = []string{} }, true},
		"layers":         {func(i *image.InspectResponse) { i.RootFS.Layers = []string{"l2", "l1"} }, false},
		"architecture":   {func(i *image.InspectResponse) { i.Architecture = "amd64" }, false},
		"variant":        {func(i *image.InspectResponse) { i.Variant = "v9" }, false},
		"user":           {func(i *image.InspectResponse) { i.Config.User = "0" }, false},
		"environment":    {func(i *image.InspectResponse) { i.Config.Env = []string{"A=1", "LD_PRELOAD=x"} }, false},
		"entry point":    {func(i *image.InspectResponse) { i.Config.Entrypoint = []string{"c"} }, false},
		"command":        {func(i *image.InspectResponse) { i.Config.Cmd = nil }, false},
		"working folder": {func(i *image.InspectResponse) { i.Config.WorkingDir = "/" }, false},
		"volumes":        {func(i *image.InspectResponse) { i.Config.Volumes = map[string]struct{}{"/v": {}} }, false},
		"no config":      {func(i *image.InspectResponse) { i.Config = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			i := inspected()
			c.change(&i)
			assert.Equal(t, c.same, contentOf(i) == want)
		})
	}
}
