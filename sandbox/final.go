package sandbox

import (
	"context"
	"errors"
	"io/fs"

	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/stage"
)

// ClearFinal empties a ./final as a run does right before it starts, without a run: outputs
// of an earlier run are deleted, and anything else is moved to a directory beside it, which
// the warning names. The ./final that the run keep filled last stays as it is. One that
// does not exist is empty. One that a run is using is [ErrBusy].
func (r *Runner) ClearFinal(ctx context.Context, final, keep string) (warning string, err error) {
	path, err := stage.ResolveFinal(final)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if err := r.store.Prepare(); err != nil {
		return "", err
	}
	if keep != "" && stage.FilledLast(r.store, path) == keep {
		return "", nil
	}
	if err := r.reclaimFinal(ctx, path); err != nil {
		return "", err
	}
	return stage.Clear(ctx, r.store, path)
}

// Record returns the record of a run; see [record.Store.Get].
func (r *Runner) Record(id string) (record.Record, error) { return r.store.Get(id) }

// LeftBy returns the run whose outputs a ./final holds: all of them, unchanged, and nothing
// else, by its record. It is empty if there is no such run.
func (r *Runner) LeftBy(ctx context.Context, final string) string {
	path, err := stage.ResolveFinal(final)
	if err != nil {
		return ""
	}
	return stage.LeftBy(ctx, r.store, path)
}
