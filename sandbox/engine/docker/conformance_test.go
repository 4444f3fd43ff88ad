//go:build linux

package docker_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/internal/dockerhost"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestEngineConformance runs on the engine that the docker command would use here, with the
// debian image. If either is missing it fails with instructions: `make test` provides
// both.
func TestEngineConformance(t *testing.T) {
	catalog, err := images.LoadCatalog(configs.Images(), "configs/images.yaml")
	require.NoError(t, err)
	debian, _ := catalog.Lookup("debian")
	endpoint, err := dockerhost.Find(dockerhost.Address{})
	require.NoError(t, err)
	enginetest.Run(t, enginetest.Options{
		New: func(t *testing.T) engine.Engine {
			t.Helper()
			e, err := docker.FromEnv()
			require.NoError(t, err)
			return e
		},
		Image: debian.Tag(), Labels: map[string]string{spec.LabelOwner: owner.This().String()},
		Breakable: func(t *testing.T) (engine.Engine, func(), func()) {
			t.Helper()
			way := enginetest.NewDetour(t, "unix://"+filepath.Join(t.TempDir(), "s"), endpoint.Host)
			e, err := docker.Connect(docker.Address{Host: way.Address()})
			require.NoError(t, err)
			return e, way.Stop, way.Start
		},
	})
}
