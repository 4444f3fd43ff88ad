package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/engine"
)

// reclaim puts right what a run that will never finish left on disk: it hands
// ./final back and frees the space that was set aside. It may be called again.
func reclaim(s *record.Store, id string) (err error) {
	note, err := s.Journal(id)
	if errors.Is(err, record.ErrNoRecord) {
		return nil
	}
	if err != nil {
		return err
	}
	dir := filepath.Join(s.RunsDir(), id)
	if err := os.Remove(filepath.Join(dir, record.ReserveFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return record.StateError(dir, "cannot be written", err)
	}
	if err := errors.Join(dropEgress(dir), dropHold(dir)); err != nil {
		return record.StateError(dir, "cannot be written", err)
	}
	if !note.Final.Granted {
		return nil
	}
	if !fsx.Within(note.Final.Path, dir) {
		lock, err := lockFinal(s, note.Final.Path)
		if err != nil {
			return fmt.Errorf("handing back final of run %s: %w", id, err)
		}
		defer func() { err = errors.Join(err, lock.release()) }()
	}
	root, err := os.OpenRoot(note.Final.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("handing back final %q of run %s: %w", note.Final.Path, id, fsx.Cause(err))
	}
	return errors.Join(fsx.ChownTree(root, note.Final.ToUID, note.Final.UID, note.Final.GID), root.Close())
}

// reclaimLost puts right what lost runs left on disk whose containers are gone.
func (r *Runner) reclaimLost(containers []engine.Found) error {
	there := map[string]bool{}
	for _, c := range containers {
		there[c.Labels[LabelRun]] = true
	}
	ids, err := r.store.Ids()
	errs := []error{err}
	for _, id := range ids {
		if state, err := r.store.State(id); err == nil && state == record.Lost && !there[id] {
			errs = append(errs, reclaim(r.store, id))
		}
	}
	return errors.Join(errs...)
}

// reclaimFinal puts right what a dead controller left of a run with this ./final,
// before another run uses it: its program may still be writing there.
func (r *Runner) reclaimFinal(ctx context.Context, final string) error {
	id := filledLast(r.store, final)
	if id == "" {
		return nil
	}
	switch state, err := r.store.State(id); {
	case errors.Is(err, record.ErrNoRecord):
		return nil
	case err != nil:
		return err
	case state != record.Lost:
		return nil
	}
	if err := r.engine.Remove(ctx, Job{RunID: id}.ContainerName()); err != nil {
		return fmt.Errorf("final %q is still in use by run %s, whose controller died: %w", final, id, err)
	}
	if note, err := r.store.Journal(id); err == nil && note.Transfer == TransferCopy {
		// Nothing of it is in the way; a sweep tries again.
		if err := r.removeDepot(ctx, id); err != nil {
			r.log.Warn("the volume of a lost run is left behind", logRun, id, logError, err)
		}
	}
	return reclaim(r.store, id)
}
