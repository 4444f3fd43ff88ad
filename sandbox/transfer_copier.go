package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/evalbox/evalbox/sandbox/stage/archive"

	"path"
	"strconv"

	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// copier returns the engine as a [engine.Copier], or one that fails.
func (r *Runner) copier() engine.Copier {
	if c, ok := r.engine.(engine.Copier); ok {
		return c
	}
	return noCopier{}
}

func (r *Runner) depots(ctx context.Context) ([]engine.Volume, error) { return r.copier().Volumes(ctx) }

func (r *Runner) removeDepot(ctx context.Context, runID string) error {
	return r.copier().RemoveVolume(ctx, runID)
}

// noCopier is an engine that files cannot be copied to. It has no depots.
type noCopier struct{}

var errNoCopier = errors.New("files cannot be copied to this engine")

func (noCopier) CreateVolume(context.Context, spec.Spec, map[string]string) (string, error) {
	return "", fmt.Errorf("%w: %w", ErrUnenforceable, errNoCopier)
}
func (noCopier) RecreateHelper(context.Context, spec.Spec, map[string]string) error {
	return errNoCopier
}
func (noCopier) FillVolume(context.Context, string, io.Reader) error { return errNoCopier }
func (noCopier) FetchVolume(context.Context, string, string) (io.ReadCloser, error) {
	return nil, errNoCopier
}
func (noCopier) MonitorVolume(context.Context, spec.Spec, map[string]string) (engine.Conversation, error) {
	return nil, errNoCopier
}
func (noCopier) RemoveVolume(context.Context, string) error       { return nil }
func (noCopier) Volumes(context.Context) ([]engine.Volume, error) { return nil, nil }

// depotPaths returns the host paths of a run whose files are copied.
func depotPaths(root string, run spec.Spec) engine.Sources {
	paths := engine.Sources{}
	if len(run.Class.Masks) > 0 {
		paths[spec.RoleEmpty] = path.Join(root, archive.EmptyFile)
	}
	for i := range run.Job.Mounts {
		paths[mountRole(i)] = path.Join(root, archive.MountsDir, strconv.Itoa(i))
	}
	for i := range run.Job.Trees {
		paths[treeRole(i)] = path.Join(root, archive.TreesDir, strconv.Itoa(i))
	}
	for _, bind := range run.Class.Binds {
		switch bind.Role {
		case RoleProgram:
			paths[RoleProgram] = path.Join(root, archive.ProgramDir, path.Base(bind.Target))
		case RoleInput:
			paths[RoleInput] = path.Join(root, archive.InputDir)
		case RoleFinal:
			paths[RoleFinal] = path.Join(root, archive.FinalDir)
		}
	}
	return paths
}
