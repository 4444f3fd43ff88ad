//go:build linux

package sandbox_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/docker"
)

// swappingEngine replaces a directory with a link while the engine mounts it, and
// restores it before anybody can check.
type swappingEngine struct {
	engine.Engine
	engine.Copier
	name, other string
}

func (e swappingEngine) Prepare(ctx context.Context, class sandbox.Class, meta engine.Meta) (engine.Container, error) {
	if err := errors.Join(os.Rename(e.name, e.name+".old"), os.Symlink(e.other, e.name)); err != nil {
		return nil, err
	}
	c, err := e.Engine.Prepare(ctx, class, meta)
	return c, errors.Join(err, os.Remove(e.name), os.Rename(e.name+".old", e.name))
}

// TestEngineMountsWhatWasChecked compares the content of the container, which the path
// does not reveal.
func TestEngineMountsWhatWasChecked(t *testing.T) {
	t.Parallel()
	dir := project(t)
	e, err := docker.FromEnv()
	require.NoError(t, err)
	r := newRunner(t, sandbox.WithEngine(swappingEngine{e, e.(engine.Copier), filepath.Join(dir, "src"), filepath.Join(dir, "private")}))
	req := python(t, "import os\nprint(sorted(os.listdir('/repo')))\n")
	req.Mounts = []sandbox.Mount{{Source: filepath.Join(dir, "src"), Target: "/repo"}}
	req.Transfer = sandbox.TransferBind
	res, err := r.Run(t.Context(), req)
	var field *policy.FieldError
	require.ErrorAs(t, err, &field)
	require.Equal(t, "transfer", field.Field)
	require.Nil(t, res)
	records, err := r.Store().List()
	require.NoError(t, err)
	require.Empty(t, records)

	req.Transfer = sandbox.TransferAuto
	res = run(t, r, req)
	require.Equal(t, sandbox.TransferCopy, res.Enforced.Transfer)
	require.Equal(t, "['alias-key', 'deep', 'link', 'main.py', 'old.txt', 'run.sh', 'to-secret']\n", res.Stdout)
}
