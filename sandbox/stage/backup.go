package stage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// empty empties ./final (EX-002) without losing anything: its content is moved to a backup
// directory beside it. Once the program has started, outputs of an earlier run are deleted
// there. Anything else stays, because somebody may have named the wrong directory.
func (f *final) empty(ctx context.Context) error {
	names, err := entries(f.root)
	if err != nil {
		return f.pathError("cannot be read", err)
	}
	if len(names) == 0 {
		return nil
	}
	f.foreign = !f.leftByEarlierRun(ctx)
	if err = f.moveAway(names, f.backupPath()); err == nil {
		return nil
	}
	if f.foreign {
		return f.pathError("holds what no run left there, and it cannot be moved aside", err)
	}
	// There is no room beside it. What is deleted is looked at once more, out of the way of
	// others.
	if err := f.moveAway(names, f.backupIn()); err != nil {
		return f.pathError("cannot be emptied", err)
	}
	if warning := f.commit(ctx); warning != "" {
		return errors.Join(f.pathError("cannot be emptied", errors.New(warning)), f.putBack())
	}
	return nil
}

// moveAway moves the entries of ./final to a new backup directory: all of them, or none. What
// appears meanwhile was left by no run.
func (f *final) moveAway(names []string, backup string) error {
	opened, err := f.root.Stat(".")
	if err != nil {
		return err
	}
	if named, err := os.Lstat(f.path); err != nil || !os.SameFile(opened, named) {
		return errors.New("it was replaced by something else")
	}
	if err := os.Mkdir(backup, 0o700); err != nil {
		return err
	}
	f.backup = backup
	err = move(names, f.path, backup)
	if err == nil {
		names, err = entries(f.root)
		names = slices.DeleteFunc(names, func(name string) bool { return filepath.Join(f.path, name) == backup })
	}
	if err == nil && len(names) > 0 {
		f.foreign = true
		err = move(names, f.path, backup)
	}
	if err != nil {
		return errors.Join(err, f.putBack())
	}
	return nil
}

// backupPath is the directory for the earlier content of ./final, backupIn the one in ./final
// itself where there is no room beside it.
func (f *final) backupPath() string { return f.path + ".before-" + f.runID }
func (f *final) backupIn() string   { return filepath.Join(f.path, ".evalbox-before-"+f.runID) }

// move renames entries from one directory to another, beside it or in it.
func move(names []string, from, to string) error {
	return fsx.InRoot(filepath.Dir(from), func(parent *os.Root) error {
		base := filepath.Dir(from)
		for _, name := range names {
			old, err := filepath.Rel(base, filepath.Join(from, name))
			if err != nil {
				return err
			}
			moved, err := filepath.Rel(base, filepath.Join(to, name))
			if err != nil {
				return err
			}
			if err := parent.Rename(old, moved); err != nil {
				return err
			}
		}
		return nil
	})
}

// rollback undoes grant, for a run whose program never started.
func (f *final) rollback() error {
	if f == nil {
		return nil
	}
	if f.granted && f.owner.Path != "" {
		if _, err := handBack(f.root, f.owner); err != nil {
			return f.pathError("cannot be handed back entirely", err)
		}
	}
	f.granted = false
	if err := f.unnote(); err != nil {
		return fmt.Errorf("forgetting who filled final %q: %w", f.path, fsx.Cause(err))
	}
	if err := f.putBack(); err != nil {
		return fmt.Errorf("putting back what lay in final %q, now in %q: %w", f.path, f.backup, fsx.Cause(err))
	}
	return nil
}

// putBack moves the backup back into ./final.
func (f *final) putBack() error {
	if f.backup == "" {
		return nil
	}
	var names []string
	ours := false
	err := fsx.InRoot(f.backup, func(root *os.Root) (err error) {
		names, err = entries(root)
		ours = f.isStillLeft(context.Background(), root)
		return err
	})
	if err == nil {
		err = move(names, f.backup, f.path)
	}
	if err == nil {
		err = os.Remove(f.backup)
	}
	if err != nil {
		return err
	}
	f.backup = ""
	if !ours {
		return nil
	}
	// The moves changed the identity of the entries.
	if f.earlier.Left, err = fsx.Identify(context.Background(), f.root, maxEntries); err != nil {
		return err
	}
	return writeNote(f.store, *f.earlier)
}

// commit decides about the backup, once the program has started. The warning is for the
// result.
func (f *final) commit(ctx context.Context) (warning string) {
	if f.backup == "" {
		return ""
	}
	still := false
	if !f.foreign {
		_ = fsx.InRoot(f.backup, func(root *os.Root) error {
			still = f.isStillLeft(ctx, root)
			return nil
		}) // one that cannot be read stays
	}
	if !still {
		return fmt.Sprintf("files were in final before that no run had left there: they are now in %s", f.backup)
	}
	if err := fsx.Remove(f.backup); err != nil {
		return fmt.Sprintf("what the earlier run left in final could not be deleted: it is in %s: %v", f.backup, fsx.Cause(err))
	}
	f.backup = ""
	return ""
}

// leftByEarlierRun reports whether ./final holds exactly what the run left that filled it
// last: nothing was added or changed since. Without a finished record of that run it does
// not.
func (f *final) leftByEarlierRun(ctx context.Context) bool {
	f.earlier = f.earlierNote()
	if f.earlier == nil || f.earlier.Left == nil {
		return false
	}
	if state, err := f.store.State(f.earlier.RunID); err != nil || state != record.Finished {
		return false
	}
	now, err := fsx.Identify(ctx, f.root, maxEntries)
	return err == nil && now != nil && *now == *f.earlier.Left
}

// earlierNote returns the note of the run that filled ./final before this one; nil if there is
// none.
func (f *final) earlierNote() *finalNote {
	note := readNote(f.store, f.path)
	if note.Path == "" {
		return nil
	}
	note.Earlier = nil
	return &note
}

// isStillLeft reports whether a backup holds what leftByEarlierRun saw: somebody may have
// come between.
func (f *final) isStillLeft(ctx context.Context, backup *os.Root) bool {
	if f.earlier == nil || f.earlier.Left == nil {
		return false
	}
	now, err := fsx.Identify(ctx, backup, maxEntries)
	return err == nil && now != nil && now.Moved == f.earlier.Left.Moved
}

// finalNote says which run filled a ./final last, and what it left there.
type finalNote struct {
	Path  string `json:"path"`
	RunID string `json:"run_id"`
	// Lent is set as long as the program may have it: it has to be handed back.
	Lent *record.Ownership `json:"lent,omitempty"`
	// Left is everything that the run left; nil if that is unknown, or if anything there
	// was not the program's.
	Left *fsx.Identity `json:"left,omitempty"`
	// Earlier is the note of the run before, without that of the one before it.
	Earlier *finalNote `json:"earlier,omitempty"`
}

// readNote returns the note about a ./final; the zero note if there is none.
func readNote(store *record.Store, path string) finalNote {
	var note finalNote
	if path == "" || record.ReadJSON(finalFile(store, path), &note) != nil || note.Path != path {
		return finalNote{}
	}
	return note
}

// IsDamaged reports whether the note about a ./final is damaged: FilledLast knows no run then.
func IsDamaged(store *record.Store, path string) bool {
	var note finalNote
	err := record.ReadJSON(finalFile(store, path), &note)
	return !errors.Is(err, fs.ErrNotExist) && (err != nil || note.Path != path)
}

// restoreNote writes the note about the ./final of a run again if it is damaged. The journal says the
// same, once the program may have run.
func restoreNote(store *record.Store, journal record.Journal) error {
	path := journal.Final.Path
	if path == "" || journal.Ref.ID == "" {
		return nil
	}
	if !IsDamaged(store, path) {
		return nil
	}
	return writeNote(store, finalNote{Path: path, RunID: journal.ID, Lent: &journal.Final})
}

// writeNote writes a note. Whose ./final was before, and its permissions, nobody can find out again once it
// is lent.
func writeNote(store *record.Store, note finalNote) error {
	file, write := finalFile(store, note.Path), record.WriteJSON
	if note.Lent != nil {
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

// note records that this run fills its ./final. It is written before the program starts,
// so that a controller that dies leaves it.
func (f *final) note() error {
	if f.lock == nil {
		return nil // the record's own
	}
	f.earlier = f.earlierNote()
	note := finalNote{Path: f.path, RunID: f.runID, Earlier: f.earlier}
	if f.owner.Path != "" {
		note.Lent = &f.owner
	}
	f.noted = true
	return writeNote(f.store, note)
}

// unnote undoes note.
func (f *final) unnote() error {
	if !f.noted {
		return nil
	}
	f.noted = false
	if f.earlier == nil {
		return removeNote(f.store, f.path)
	}
	return writeNote(f.store, *f.earlier)
}

// leave records what this run left in ./final; nil if that is unknown.
func (f *final) leave(left *fsx.Identity) error {
	if !f.noted {
		return nil
	}
	return writeNote(f.store, finalNote{Path: f.path, RunID: f.runID, Left: left, Earlier: f.earlier})
}

// stillLent records that ./final has to be handed back once more.
func (f *final) stillLent() error {
	if !f.noted || f.owner.Path == "" {
		return nil
	}
	return writeNote(f.store, finalNote{Path: f.path, RunID: f.runID, Lent: &f.owner, Earlier: f.earlier})
}

// FilledLast returns the run that filled a ./final last; empty if it is unknown. owed says that
// the ./final was not handed back.
func FilledLast(store *record.Store, path string) (runID string, owed bool) {
	note := readNote(store, path)
	return note.RunID, note.Lent != nil
}

func entries(root *os.Root) ([]string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}

// Clear empties a ./final as a run does right before it starts, without a run. The warning
// names the directory that content of no run was moved to. A ./final that a run is using is
// [ErrBusy].
func Clear(ctx context.Context, store *record.Store, path string) (warning string, err error) {
	f := &final{store: store, runID: record.NewID(time.Now()), path: path}
	defer func() { err = errors.Join(err, f.close()) }()
	if f.lock, err = lockFinal(store, path); err != nil {
		return "", err
	}
	if err := f.open(); err != nil {
		return "", err
	}
	if err := f.empty(ctx); err != nil {
		return "", err
	}
	if err := removeNote(store, path); err != nil {
		return "", errors.Join(err, f.rollback())
	}
	return f.commit(ctx), nil
}

// LeftBy returns the run whose outputs a ./final holds: all of them, unchanged, and nothing
// else, by its record. It is empty if there is no such run.
func LeftBy(ctx context.Context, store *record.Store, path string) (runID string) {
	_ = fsx.InRoot(path, func(root *os.Root) error {
		f := &final{store: store, path: path, root: root}
		if f.leftByEarlierRun(ctx) {
			runID = f.earlier.RunID
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
