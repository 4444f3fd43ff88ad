package kubernetes

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
)

// WithoutImageVolumes makes every cluster one that does not mount images, until the test ends. No other
// test may run meanwhile.
func WithoutImageVolumes(t *testing.T) {
	t.Helper()
	before := imageVolumes
	imageVolumes = version.MustParseGeneric("1000.0")
	t.Cleanup(func() { imageVolumes = before })
}
