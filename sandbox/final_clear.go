package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/engine"
)

// ClearFinal empties a ./final as a run does right before it starts, without a run: what
// an earlier run left there is deleted, and anything else is moved into a folder beside
// it, which the warning names. A final that the run keep filled last stays as it is. One
// that does not exist is empty; one that a run is using is [ErrBusy].
func (r *Runner) ClearFinal(ctx context.Context, final, keep string) (warning string, err error) {
	abs, err := filepath.Abs(final)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", &PathError{Field: "final", Path: final, Rule: "cannot be used", Err: fsx.Cause(err)}
	}
	if err := r.store.Prepare(); err != nil {
		return "", err
	}
	if keep != "" && filledLast(r.store, abs) == keep {
		return "", nil
	}
	if err := r.reclaimFinal(ctx, abs); err != nil {
		return "", err
	}
	w := &workspace{store: r.store, runID: record.NewID(time.Now()), paths: engine.Sources{RoleFinal: abs}}
	defer func() { err = errors.Join(err, w.release()) }()
	if w.lock, err = lockFinal(r.store, abs); err != nil {
		return "", err
	}
	if w.final, err = os.OpenRoot(abs); err != nil {
		return "", &PathError{Field: "final", Path: abs, Rule: "cannot be opened", Err: fsx.Cause(err)}
	}
	if w.folder, err = lockFolder(abs); err != nil {
		return "", fmt.Errorf("final %q: %w", abs, err)
	}
	if err := w.clear(ctx); err != nil {
		return "", err
	}
	if err := os.Remove(finalFile(r.store, abs, "json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", errors.Join(record.StateError(abs, "its note cannot be removed", err), w.putBack())
	}
	return w.settle(), nil
}

// Record returns the record of a run; see [record.Store.Get].
func (r *Runner) Record(id string) (record.Record, error) { return r.store.Get(id) }

// LeftBy is the run whose outputs a ./final holds, all of them, unchanged and nothing
// else, as its record says; empty when there is no such run.
func (r *Runner) LeftBy(ctx context.Context, final string) string {
	abs, err := filepath.Abs(final)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return ""
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return ""
	}
	defer root.Close()
	w := &workspace{store: r.store, final: root, paths: engine.Sources{RoleFinal: abs}}
	if !w.leftByEarlierRun(ctx) {
		return ""
	}
	return filledLast(r.store, abs)
}
