package stage

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// finalNote says which run filled a ./final last, what it left there, and which run is next. A damaged
// note says nothing: what lies in ./final is then of no run that is known, and moves aside.
type finalNote struct {
	Path string `json:"path"`
	// RunID is the run that filled ./final last; empty for none.
	RunID string `json:"run_id"`
	// Left is everything that the run left; nil if that is unknown, or if anything there
	// was not of the run.
	Left *fsx.Identity `json:"left,omitempty"`
	// Next is the run that was started since, and whose outputs come to ./final. Moving says that
	// ./final was emptied for them.
	Next   string `json:"next,omitempty"`
	Moving bool   `json:"moving,omitempty"`
}

// usedBy is the run that uses ./final, or used it last.
func (n finalNote) usedBy() string {
	if n.Next != "" {
		return n.Next
	}
	return n.RunID
}

// readNote returns the note about a ./final; the zero note if there is none.
func readNote(store *record.Store, path string) finalNote {
	var note finalNote
	if path == "" || record.ReadJSON(finalFile(store, path), &note) != nil || note.Path != path {
		return finalNote{}
	}
	return note
}

// writeNote writes a note. That entries are moving is on the disk before the first one moves: otherwise
// nobody could tell them from those that lay there before.
func writeNote(store *record.Store, note finalNote) error {
	file, write := finalFile(store, note.Path), record.WriteJSON
	if note.Moving {
		write = record.WriteDurableJSON
	}
	if err := write(file, note); err != nil {
		return record.StateError(file, "cannot be written", err)
	}
	return nil
}

func removeNote(store *record.Store, path string) error {
	if err := os.Remove(finalFile(store, path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return record.StateError(path, "its note cannot be removed", err)
	}
	return nil
}

// note records that this run is the next one that fills its ./final. It is written before the program
// starts, so that a controller that dies leaves it.
func (f *final) note() error {
	if f.path == "" {
		return nil
	}
	f.before = readNote(f.store, f.path)
	note := f.before
	note.Path, note.Next, note.Moving = f.path, f.runID, false
	return writeNote(f.store, note)
}

// unnote undoes note.
func (f *final) unnote() error {
	note := readNote(f.store, f.path)
	if note.Next != f.runID {
		return nil
	}
	note.Next, note.Moving = "", false
	if f.before.usedBy() != "" && note.RunID == f.before.RunID {
		note = f.before // another run may have been next
	}
	if note.usedBy() == "" {
		return removeNote(f.store, f.path)
	}
	return writeNote(f.store, note)
}

// FilledLast returns the run that filled a ./final last, and the run whose outputs come there next.
// Each is empty if there is none.
func FilledLast(store *record.Store, path string) (last, next string) {
	note := readNote(store, path)
	return note.RunID, note.Next
}

// Clear empties a ./final without a run. It moves and deletes what a run would. The warning
// names the directory that content of no run was moved to. A ./final that a run is using is
// [ErrBusy].
func Clear(ctx context.Context, store *record.Store, path string) (warning string, err error) {
	f := &final{store: store, runID: record.NewID(time.Now()), path: path}
	defer func() { err = errors.Join(err, f.close()) }()
	if err := f.hold(); err != nil {
		return "", err
	}
	return f.empty(ctx)
}

// LeftBy returns the run whose outputs a ./final holds: all of them, unchanged, and nothing
// else, by its record. It is empty if there is no such run.
func LeftBy(ctx context.Context, store *record.Store, path string) (runID string) {
	note := readNote(store, path)
	_ = fsx.InRoot(path, func(root *os.Root) error {
		if f := (&final{store: store, path: path, dir: root}); f.leftByEarlierRun(ctx, note) {
			runID = note.RunID
		}
		return nil
	}) // one that cannot be read holds nothing that is known
	return runID
}

// ResolveFinal returns the absolute path of a ./final, without links.
func ResolveFinal(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if err != nil {
		return "", &spec.PathError{Field: "final", Path: path, Rule: "cannot be used", Err: fsx.Cause(err)}
	}
	return abs, nil
}

// eachNote calls do for the note of each ./final.
func eachNote(store *record.Store, do func(file string, note finalNote) error) error {
	all, err := os.ReadDir(store.LocksDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return record.StateError(store.LocksDir(), "cannot be read", err)
	}
	var errs []error
	for _, entry := range all {
		file := filepath.Join(store.LocksDir(), entry.Name())
		var note finalNote
		if strings.HasPrefix(entry.Name(), notePrefix) && record.ReadJSON(file, &note) == nil && finalFile(store, note.Path) == file {
			errs = append(errs, do(file, note))
		}
	}
	return errors.Join(errs...)
}

// finalOf is the ./final that the outputs of a run come to, by the notes; empty if none says so.
func finalOf(store *record.Store, id string) (path string) {
	_ = eachNote(store, func(_ string, note finalNote) error { // one that cannot be read says nothing
		if note.Next == id {
			path = note.Path
		}
		return nil
	})
	return path
}

// staleNote is how old a note must be that was not completed, and that nobody can still be
// writing.
const staleNote = 24 * time.Hour

// TidyNotes removes the notes about directories that do not exist, whose runs are over, and those that
// were never completed. It forgets next runs that have no record.
func TidyNotes(store *record.Store) error {
	stale, _ := filepath.Glob(filepath.Join(store.LocksDir(), notePrefix+"*"+noteSuffix+".new-*")) // the pattern is valid
	for _, file := range stale {
		if info, err := os.Lstat(file); err == nil && time.Since(info.ModTime()) > staleNote {
			_ = os.Remove(file) // the next collection tries again
		}
	}
	return eachNote(store, func(file string, note finalNote) error {
		state, err := store.State(note.usedBy())
		gone := errors.Is(err, record.ErrNoRecord)
		if !gone && (err != nil || state != record.Finished) {
			return nil
		}
		_, err = os.Lstat(note.Path)
		missing := errors.Is(err, fs.ErrNotExist)
		if !missing && (note.Next == "" || !gone) {
			return nil
		}
		lock, err := lockFinal(store, note.Path)
		if err != nil {
			return nil //nolint:nilerr // a run is about to use it
		}
		switch again := readNote(store, note.Path); {
		case again.usedBy() != note.usedBy():
		case missing, again.RunID == "":
			err = os.Remove(file)
		default: // nobody has the outputs of the next run any more
			again.Next, again.Moving = "", false
			err = writeNote(store, again)
		}
		return errors.Join(err, lock.Close())
	})
}
