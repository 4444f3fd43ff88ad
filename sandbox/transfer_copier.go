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

func (r *Runner) depots(ctx context.Context) ([]engine.Depot, error) { return r.copier().Depots(ctx) }

func (r *Runner) removeDepot(ctx context.Context, runID string) error {
	return r.copier().RemoveDepot(ctx, runID)
}

// noCopier is an engine that files cannot be copied to. It has no depots.
type noCopier struct{}

var errNoCopier = errors.New("files cannot be copied to this engine")

func (noCopier) MakeDepot(context.Context, spec.Spec, map[string]string) (string, error) {
	return "", fmt.Errorf("%w: %w", ErrUnenforceable, errNoCopier)
}
func (noCopier) MendDepot(context.Context, spec.Spec, map[string]string) error { return errNoCopier }
func (noCopier) FillDepot(context.Context, string, io.Reader) error            { return errNoCopier }
func (noCopier) FetchDepot(context.Context, string, string) (io.ReadCloser, error) {
	return nil, errNoCopier
}
func (noCopier) WatchDepot(context.Context, spec.Spec, map[string]string) (engine.Conversation, error) {
	return nil, errNoCopier
}
func (noCopier) RemoveDepot(context.Context, string) error      { return nil }
func (noCopier) Depots(context.Context) ([]engine.Depot, error) { return nil, nil }

// depotPaths returns the host paths of a run whose files are copied.
func depotPaths(root string, run spec.Spec) engine.Sources {
	paths := engine.Sources{}
	if len(run.Class.Masks) > 0 {
		paths[spec.RoleEmpty] = path.Join(root, archive.EmptyFile)
	}
	for i := range run.Job.Mounts {
		paths[spec.NumberedRole(spec.RoleMount, i)] = path.Join(root, archive.MountsDir, strconv.Itoa(i))
	}
	for i := range run.Job.Trees {
		paths[spec.NumberedRole(spec.RoleTree, i)] = path.Join(root, archive.TreesDir, strconv.Itoa(i))
	}
	for _, bind := range run.Class.Binds {
		switch bind.Role {
		case spec.RoleProgram:
			paths[spec.RoleProgram] = path.Join(root, archive.ProgramDir, path.Base(bind.Target))
		case spec.RoleInput:
			paths[spec.RoleInput] = path.Join(root, archive.InputDir)
		case spec.RoleFinal:
			paths[spec.RoleFinal] = path.Join(root, archive.FinalDir)
		}
	}
	return paths
}
