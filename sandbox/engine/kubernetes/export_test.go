package kubernetes

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/evalbox/evalbox/sandbox/engine"
)

// WithoutImageVolumes makes every cluster one that does not mount images, until the test ends. No other
// test may run meanwhile.
func WithoutImageVolumes(t *testing.T) {
	t.Helper()
	before := imageVolumes
	imageVolumes = version.MustParseGeneric("1000.0")
	t.Cleanup(func() { imageVolumes = before })
}

// SeenImage is the image of the program that the engine of a container has seen so far; empty without one.
// changed is closed when the engine sees something new.
func SeenImage(c engine.Container) (image string, changed <-chan struct{}) {
	i, _ := c.(*instance) // those of this package are
	pod, _, changed := i.engine.pods.pod(i.job)
	return imageOf(pod), changed
}
