package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// reclaim puts right what a run that will never finish left on disk: it hands
// ./final back and frees the space that was set aside. It may be called again.
func (s *Store) reclaim(id string) (err error) {
	note, err := s.journal(id)
	if errors.Is(err, ErrNoRecord) {
		return nil
	}
	if err != nil {
		return err
	}
	dir := filepath.Join(s.runsDir(), id)
	if err := os.Remove(filepath.Join(dir, reserveFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return stateError(dir, "cannot be written", err)
	}
	if err := errors.Join(dropEgress(dir), dropHold(dir)); err != nil {
		return stateError(dir, "cannot be written", err)
	}
	if !note.Final.Lent {
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
		return fmt.Errorf("handing back final %q of run %s: %w", note.Final.Path, id, cause(err))
	}
	return errors.Join(chownTree(root, note.Final.ToUID, note.Final.UID, note.Final.GID), root.Close())
}

// lentBy reports whether a run that has no result still has its ./final lent to
// its program's user.
func (s *Store) lentBy(id string) (path string, lent bool) {
	note, err := s.journal(id)
	if err != nil || !note.Final.Lent || fsx.Within(note.Final.Path, filepath.Join(s.runsDir(), id)) {
		return "", false
	}
	info, err := os.Stat(note.Final.Path)
	if err != nil {
		return "", false
	}
	uid, _, ok := ownerOf(info)
	return note.Final.Path, ok && uid == note.Final.ToUID && uid != note.Final.UID
}

// reclaimLost puts right what lost runs left on disk whose containers are gone.
func (r *Runner) reclaimLost(containers []engine.Found) error {
	there := map[string]bool{}
	for _, c := range containers {
		there[c.Labels[spec.LabelRun]] = true
	}
	ids, err := r.store.ids()
	errs := []error{err}
	for _, id := range ids {
		if state, err := r.store.state(id); err == nil && state == RecordLost && !there[id] {
			errs = append(errs, r.store.reclaim(id))
		}
	}
	return errors.Join(errs...)
}

// reclaimFinal puts right what a dead controller left of a run with this ./final,
// before another run uses it: its program may still be writing there.
func (r *Runner) reclaimFinal(ctx context.Context, final string) error {
	id := r.store.filledLast(final)
	if id == "" {
		return nil
	}
	switch state, err := r.store.state(id); {
	case errors.Is(err, ErrNoRecord):
		return nil
	case err != nil:
		return err
	case state != RecordLost:
		return nil
	}
	if err := r.engine.Remove(ctx, spec.Job{RunID: id}.ContainerName()); err != nil {
		return fmt.Errorf("final %q is still in use by run %s, whose controller died: %w", final, id, err)
	}
	if note, err := r.store.journal(id); err == nil && note.Transfer == spec.TransferCopy {
		// Nothing of it is in the way; a sweep tries again.
		if err := r.removeDepot(ctx, id); err != nil {
			r.log.Warn("the volume of a lost run is left behind", logRun, id, logError, err)
		}
	}
	return r.store.reclaim(id)
}
