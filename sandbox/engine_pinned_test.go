//go:build linux

package sandbox_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox"
)

// swappingEngine has a link in the place of a folder while the engine mounts it, and
// the folder again before anybody can look.
type swappingEngine struct {
	sandbox.Engine
	name, other string
}

func (e swappingEngine) Start(ctx context.Context, id string) error {
	return errors.Join(
		os.Rename(e.name, e.name+".old"), os.Symlink(e.other, e.name),
		e.Engine.Start(ctx, id),
		os.Remove(e.name), os.Rename(e.name+".old", e.name))
}

// TestEngineMountsWhatWasChecked looks at what the container has, which no name tells.
func TestEngineMountsWhatWasChecked(t *testing.T) {
	t.Parallel()
	dir := project(t)
	endpoint, err := sandbox.FindEngine(sandbox.Address{})
	require.NoError(t, err)
	engine, err := endpoint.Engine()
	require.NoError(t, err)
	r := newRunner(t, sandbox.WithEngine(swappingEngine{engine, filepath.Join(dir, "src"), filepath.Join(dir, "private")}))
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	req := python(t, "import os, time\nprint(os.listdir('/repo'), flush=True)\ntime.sleep(20)\n")
	req.Mounts = []sandbox.Mount{{Source: filepath.Join(dir, "src"), Target: "/repo"}}
	res, err := r.Run(t.Context(), req)
	require.ErrorContains(t, err, "was replaced while the run was prepared")
	require.Nil(t, res)
	records, err := r.Store().List()
	require.NoError(t, err)
	require.Empty(t, records)
}
