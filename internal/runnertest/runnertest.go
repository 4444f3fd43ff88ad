// Package runnertest opens runners on the engine of this machine. Without an engine, or
// without its image debian, a test fails: `make test` makes both.
package runnertest

import (
	"context"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// New returns a runner on the Docker engine of this machine, with the shipped images and a
// state directory of its own. At the end of the test no container of its runs may be left.
func New(t testing.TB, opts ...sandbox.Option) *sandbox.Runner {
	t.Helper()
	return Open(t, Docker, filepath.Join(t.TempDir(), "state"), opts...)
}

// Docker is the Docker engine of this machine.
func Docker() (engine.Engine, error) { return docker.FromEnv() }

// Open is New with another engine, and with this state directory.
func Open(t testing.TB, connect func() (engine.Engine, error), state string, opts ...sandbox.Option) *sandbox.Runner {
	t.Helper()
	e, err := connect()
	require.NoError(t, err)
	r, err := sandbox.New(append([]sandbox.Option{
		sandbox.WithEngine(e), sandbox.WithCatalog(Catalog(t)), sandbox.WithStateDir(state),
	}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, r.Close())
		e, err := connect()
		require.NoError(t, err)
		defer e.Close()
		// A removal that the engine was asked for takes it a moment.
		require.Eventually(t, func() bool {
			all, err := e.List(context.Background())
			return err == nil && !slices.ContainsFunc(all, func(c engine.Found) bool { return c.Labels[spec.LabelState] == r.Store().Dir() })
		}, time.Minute, 20*time.Millisecond, "a container is left behind")
	})
	return r
}

// Catalog is the catalog of the shipped images.
func Catalog(t testing.TB) images.Catalog {
	t.Helper()
	catalog, err := images.LoadCatalog(configs.Images(), "configs/images.yaml")
	require.NoError(t, err)
	return catalog
}
