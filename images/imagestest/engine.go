// Package imagestest has a Docker engine in memory for the tests of the packages below
// images: its images, containers and registry.
package imagestest

import (
	"cmp"
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/build"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"github.com/stretchr/testify/assert"
)

// An Engine is what the tests have prepared and the calls have made of it. It is safe for
// concurrent use; tests read and change its maps while no call is under way.
type Engine struct {
	client.APIClient

	// Fail has errors of calls, by their names in Calls.
	Fail map[string]error
	// FailLate has errors in the answers of calls that have begun well.
	FailLate map[string]error
	// User is the user of every image, Arch the architecture of the engine.
	User, Arch string
	// Registry has the digests of the tags of the registry. Every digest is there.
	Registry map[string]string
	// Loaded is what the engine reports of a load besides the ID of the image.
	Loaded string
	// StepLabels are the labels of the steps of a build.
	StepLabels map[string]string
	// OnBuild is called in the middle of a build; its error is in the answer.
	OnBuild func(ctx context.Context) error
	// OnLoad is called after an image was loaded, OnList after the images were listed; both
	// may change the maps.
	OnLoad func(id string)
	OnList func()

	mu         sync.Mutex
	Images     map[string]Image  // by ID
	Tags       map[string]string // the ID of each
	Containers map[string]container.Summary
	Calls      []string

	// What the last calls were given.
	Imported, BuildContext []byte
	Built                  build.ImageBuildOptions
	Pulled                 struct{ Ref, Auth, Platform string }
	// Killed has the container that was killed first.
	Killed chan string
	// Removed are the containers that were removed.
	Removed []container.Summary
	// OutlivedCancel reports that the context of the last removal of an image was alive.
	OutlivedCancel bool
}

// New returns an engine that has an image for each tag. At the end of the test no container
// may be there that a call made.
func New(t testing.TB, tags ...string) *Engine {
	t.Helper()
	e := &Engine{
		Fail: map[string]error{}, FailLate: map[string]error{}, Registry: map[string]string{}, Arch: "arm64",
		Images: map[string]Image{}, Tags: map[string]string{}, Containers: map[string]container.Summary{}, Killed: make(chan string, 1),
	}
	for _, tag := range tags {
		e.Put(tag, "sha256:"+tag, Image{})
	}
	t.Cleanup(func() {
		for id := range e.Containers {
			assert.NotContains(t, id, "made", "a container is left behind")
		}
	})
	return e
}

// Put gives an image a name; an empty tag is none.
func (e *Engine) Put(tag, id string, img Image) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Images[id] = img
	if tag != "" {
		e.Tags[tag] = id
	}
}

// AddContainer adds a container.
func (e *Engine) AddContainer(c container.Summary) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.Containers[c.ID] = c
}

// State returns the names of all images, the IDs of those without one, and how often each
// call was made.
func (e *Engine) State() (names []string, calls map[string]int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	names, calls = slices.Collect(maps.Keys(e.Tags)), map[string]int{}
	for id, img := range e.Images {
		names = append(names, img.Digests...)
		if len(img.Digests)+len(e.tagsOf(id)) == 0 {
			names = append(names, id)
		}
	}
	for _, call := range e.Calls {
		calls[call]++
	}
	slices.Sort(names)
	return names, calls
}

// begin notes a call, which ends with end.
func (e *Engine) begin(ctx context.Context, call string) (end func(), err error) {
	e.mu.Lock()
	e.Calls = append(e.Calls, call)
	return e.mu.Unlock, cmp.Or(ctx.Err(), e.Fail[call])
}

// answer is the stream of an engine: what it says, then the error of the call.
func (e *Engine) answer(call, says string) io.ReadCloser {
	if err := e.FailLate[call]; err != nil {
		says += `{"errorDetail":{"message":"` + err.Error() + `"},"error":"` + err.Error() + `"}`
	}
	return io.NopCloser(strings.NewReader(says))
}

func (e *Engine) ServerVersion(ctx context.Context) (types.Version, error) {
	end, err := e.begin(ctx, "version")
	defer end()
	return types.Version{Version: "20.10.24", Os: "linux", Arch: e.Arch}, err
}
