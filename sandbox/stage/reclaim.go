package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/record"
)

// Reclaim cleans up after a run that will never finish and whose container is gone: it gives
// ./final back to its owner and frees the reserved space. It may be called again.
func Reclaim(store *record.Store, id string) (err error) {
	journal, err := store.Journal(id)
	if errors.Is(err, record.ErrNoRecord) {
		return nil
	}
	damaged := errors.Is(err, record.ErrUnreadable)
	if damaged {
		err = nil
	}
	// The journal says which files are given to whom.
	if err = errors.Join(err, store.Trusted()); err != nil {
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
	if journal.Schema == "" {
		return reclaimUnknown(store, id, damaged)
	}
	if fsx.Within(journal.Final.Path, dir) {
		return reclaim(dir, id, journal.Final)
	}
	if err := restoreNote(store, journal); err != nil {
		return err
	}
	note := readNote(store, journal.Final.Path)
	if err = ReclaimFinal(store, journal.Final.Path, id); err != nil || note.RunID == id && note.Lent != nil {
		return err
	}
	if journal.Ref.ID == "" {
		return imageOf(dir).Remove() // the program never had it
	}
	return imageOf(dir).Unmount() // one that is left has what could not be copied
}

// reclaimUnknown is [Reclaim] for a run without a journal, or with a damaged one: the notes of the
// state directory say which ./final it had. With a damaged one its program may have run.
func reclaimUnknown(store *record.Store, id string, mayHaveRun bool) error {
	entries, err := os.ReadDir(store.LocksDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return record.StateError(store.LocksDir(), "cannot be read", err)
	}
	lent := false
	for _, entry := range entries {
		file := filepath.Join(store.LocksDir(), entry.Name())
		var note finalNote
		if record.ReadJSON(file, &note) != nil || finalFile(store, note.Path) != file || note.RunID != id || note.Lent == nil {
			continue
		}
		lent = true
		if err := ReclaimFinal(store, note.Path, id); err != nil {
			return err
		}
	}
	switch {
	case lent:
		return nil
	case mayHaveRun:
		return imageOf(store.RecordDir(id)).Unmount() // the files in it stay
	}
	return imageOf(store.RecordDir(id)).Remove() // the program never had it
}

// ReclaimFinal hands a ./final of the caller's back that a run filled whose program is gone,
// unless that was done. The record of the run need not exist any more.
func ReclaimFinal(store *record.Store, path, id string) (err error) {
	if note := readNote(store, path); note.RunID != id || note.Lent == nil {
		return nil // the program never had it, or it was handed back
	}
	if err := store.Trusted(); err != nil {
		return err
	}
	lock, err := lockFinal(store, path)
	if err != nil {
		return fmt.Errorf("handing back final of run %s: %w", id, err)
	}
	defer func() { err = errors.Join(err, lock.release()) }()
	note := readNote(store, path) // now nobody changes it
	if note.RunID != id || note.Lent == nil {
		return nil
	}
	if err := reclaim(store.RecordDir(id), id, *note.Lent); err != nil {
		return err
	}
	note.Lent = nil
	return writeNote(store, note)
}

// reclaim hands a ./final back. One that was replaced since is not the one that a run had: what is
// in a file system of the run's own stays there.
func reclaim(recordDir, id string, owner record.Ownership) error {
	if owner.Path == "" {
		return nil
	}
	var err error
	if owner.Dir != nil {
		err = owner.Dir.LetIn(owner.Path)
	}
	var root *os.Root
	if err == nil {
		root, err = os.OpenRoot(owner.Path)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fsx.ErrReplaced):
		return nil
	case err == nil:
		if owner.Dir == nil || owner.Dir.Is(root) {
			if err = reclaimImage(recordDir, root); err == nil {
				_, err = handBack(root, owner)
			}
		}
		err = errors.Join(err, root.Close())
	}
	if err != nil {
		return fmt.Errorf("handing back final %q of run %s: %w", owner.Path, id, fsx.Cause(err))
	}
	return nil
}

// staleNote is how old a note must be that was not completed, and that nobody can still be
// writing.
const staleNote = 24 * time.Hour

// ReclaimFinals hands back every ./final that a finished run could not hand back, unless busy
// says that the program may still run. It removes the notes about directories and runs that
// do not exist any more. It tries all of them, and joins the errors.
func ReclaimFinals(store *record.Store, busy func(runID string) bool) error {
	entries, err := os.ReadDir(store.LocksDir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return record.StateError(store.LocksDir(), "cannot be read", err)
	}
	var errs []error
	for _, entry := range entries {
		file := filepath.Join(store.LocksDir(), entry.Name())
		switch name := entry.Name(); {
		case !strings.HasPrefix(name, notePrefix):
		case strings.HasSuffix(name, noteSuffix):
			errs = append(errs, tidyNote(store, file, busy))
		case strings.Contains(name, noteSuffix+".new-"):
			if info, err := entry.Info(); err == nil && time.Since(info.ModTime()) > staleNote {
				errs = append(errs, os.Remove(file))
			}
		}
	}
	return errors.Join(errs...)
}

// tidyNote hands the ./final of a note back, and removes a note that says nothing any more.
func tidyNote(store *record.Store, file string, busy func(runID string) bool) error {
	var note finalNote
	if err := record.ReadJSON(file, &note); err != nil || finalFile(store, note.Path) != file {
		return nil //nolint:nilerr // another one is writing it, or it is not a note
	}
	state, stateErr := store.State(note.RunID)
	gone := errors.Is(stateErr, record.ErrNoRecord)
	if stateErr != nil && !gone || state == record.Running || busy(note.RunID) {
		return nil
	}
	_, err := os.Lstat(note.Path)
	missing := errors.Is(err, fs.ErrNotExist)
	if note.Lent != nil && missing && !gone {
		return nil // its disk may come back
	}
	if note.Lent != nil && !state.Abandoned() {
		if err := ReclaimFinal(store, note.Path, note.RunID); err != nil {
			return err
		}
	}
	if !missing {
		return nil // it says who filled the directory, also without the record
	}
	lock, err := lockFinal(store, note.Path)
	if err != nil {
		return nil //nolint:nilerr // a run is about to use it
	}
	if again := readNote(store, note.Path); again.RunID == note.RunID {
		err = removeNote(store, note.Path)
	}
	return errors.Join(err, lock.release())
}
