package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/record"
)

// Reclaim restores what a run that will never finish left on disk: it gives ./final back
// to its owner and frees the space that was set aside. Its container is gone by then. It
// may be called again.
func Reclaim(store *record.Store, id string) (err error) {
	journal, err := store.Journal(id)
	if errors.Is(err, record.ErrNoRecord) {
		return nil
	}
	if err != nil {
		return err
	}
	dir := store.RecordDir(id)
	if err := os.Remove(filepath.Join(dir, record.ReserveFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return record.StateError(dir, "cannot be written", err)
	}
	for _, mounted := range record.MountedDirs {
		if err := os.RemoveAll(filepath.Join(dir, mounted)); err != nil {
			return record.StateError(dir, "cannot be written", err)
		}
	}
	owner := journal.Final
	if !owner.Granted {
		return nil
	}
	if !fsx.Within(owner.Path, dir) {
		lock, err := lockFinal(store, owner.Path)
		if err != nil {
			return fmt.Errorf("handing back final of run %s: %w", id, err)
		}
		defer func() { err = errors.Join(err, lock.release()) }()
	}
	root, err := os.OpenRoot(owner.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("handing back final %q of run %s: %w", owner.Path, id, fsx.Cause(err))
	}
	return errors.Join(fsx.ChownTree(root, owner.ToUID, owner.UID, owner.GID), root.Close())
}
