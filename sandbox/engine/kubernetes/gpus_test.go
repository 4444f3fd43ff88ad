package kubernetes

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestDevicesAreRefused checks that a run that names devices does not start without them.
func TestDevicesAreRefused(t *testing.T) {
	e, err := newAdapter(Config{Programs: "registry.example/init@sha256:0"}, &rest.Config{Host: "https://127.0.0.1:1"})
	require.NoError(t, err)
	defer e.Close()
	for _, gpus := range []spec.GPURequest{{All: true}, {IDs: []string{"0"}}} {
		class := spec.Class{User: "1:1", Image: spec.Image{Digest: "registry.example/x@sha256:0"}, GPUs: gpus}
		_, err := e.Prepare(t.Context(), class, engine.Meta{Name: "evalbox-x"})
		var refused *policy.FieldError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, "gpus", refused.Field)
	}
}
