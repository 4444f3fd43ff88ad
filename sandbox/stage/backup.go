package stage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/collect"
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
	if err = f.moveAway(names); err == nil {
		return nil
	}
	if f.foreign {
		return f.pathError("holds what no run left there, and it cannot be moved aside", err)
	}
	if err := fsx.Empty(f.root); err != nil {
		return f.pathError("cannot be emptied", err)
	}
	return nil
}

// moveAway moves the entries of ./final to a new backup directory beside it: all of them,
// or none.
func (f *final) moveAway(names []string) error {
	opened, err := f.root.Stat(".")
	if err != nil {
		return err
	}
	if named, err := os.Lstat(f.path); err != nil || !os.SameFile(opened, named) {
		return errors.New("it was replaced by something else")
	}
	backup := f.path + ".before-" + f.runID
	if err := os.Mkdir(backup, 0o700); err != nil {
		return err
	}
	f.backup = backup
	if err := move(names, f.path, backup); err != nil {
		return errors.Join(err, f.rollback())
	}
	return nil
}

// move renames entries from one directory to another of the same parent.
func move(names []string, from, to string) error {
	return fsx.InRoot(filepath.Dir(from), func(parent *os.Root) error {
		for _, name := range names {
			if err := parent.Rename(path.Join(filepath.Base(from), name), path.Join(filepath.Base(to), name)); err != nil {
				return err
			}
		}
		return nil
	})
}

// rollback undoes empty and note, for a run whose program never started.
func (f *final) rollback() error {
	if f == nil {
		return nil
	}
	if err := f.unnote(); err != nil {
		return fmt.Errorf("forgetting who filled final %q: %w", f.path, fsx.Cause(err))
	}
	if f.backup == "" {
		return nil
	}
	var names []string
	err := fsx.InRoot(f.backup, func(root *os.Root) (err error) {
		names, err = entries(root)
		return err
	})
	if err == nil {
		err = move(names, f.backup, f.path)
	}
	if err == nil {
		err = os.Remove(f.backup)
	}
	if err != nil {
		return fmt.Errorf("putting back what lay in final %q, now in %q: %w", f.path, f.backup, fsx.Cause(err))
	}
	f.backup = ""
	return nil
}

// commit decides about the backup, once the program has started. The warning is for the
// result.
func (f *final) commit() (warning string) {
	switch {
	case f.backup == "":
		return ""
	case f.foreign:
		return fmt.Sprintf("what lay in final before was not left there by a run: it is now in %s", f.backup)
	}
	if err := fsx.Remove(f.backup); err != nil {
		return fmt.Sprintf("what the earlier run left in final could not be deleted: it is in %s: %v", f.backup, fsx.Cause(err))
	}
	return ""
}

// leftByEarlierRun reports whether ./final holds exactly the recorded outputs of the run
// that filled it last: nothing was added or changed since. Without a record it does not.
func (f *final) leftByEarlierRun(ctx context.Context) bool {
	found, err := f.store.Load(FilledLast(f.store, f.path))
	if err != nil || found.Result == nil {
		return false
	}
	info, err := os.Stat(filepath.Join(found.Dir, record.ResultFile))
	if err != nil {
		return false
	}
	same, err := collect.Same(ctx, f.root, outputLimits(found.Spec.Job), found.Result.Outputs, found.Result.OutputsSkipped, info.ModTime())
	return err == nil && same
}

// finalNote says which run filled a ./final last.
type finalNote struct {
	Path  string `json:"path"`
	RunID string `json:"run_id"`
}

// note records that this run fills its ./final. It is written before the program starts,
// so that a controller that dies leaves it.
func (f *final) note() error {
	if f.lock == nil {
		return nil // the record's own
	}
	file := finalFile(f.store, f.path, "json")
	f.earlier, _ = os.ReadFile(file) // there may be none
	if err := record.WriteJSON(file, finalNote{Path: f.path, RunID: f.runID}); err != nil {
		return record.StateError(file, "cannot be written", err)
	}
	f.noted = true
	return nil
}

// unnote undoes note.
func (f *final) unnote() error {
	if !f.noted {
		return nil
	}
	f.noted = false
	file := finalFile(f.store, f.path, "json")
	if f.earlier == nil {
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return fsx.WriteFile(file, f.earlier, 0o600, false)
}

// FilledLast returns the run that filled a ./final last; empty if it is unknown.
func FilledLast(store *record.Store, path string) string {
	var note finalNote
	if path == "" || record.ReadJSON(finalFile(store, path, "json"), &note) != nil {
		return ""
	}
	return note.RunID
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
	if err := os.Remove(finalFile(store, path, "json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", errors.Join(record.StateError(path, "its note cannot be removed", err), f.rollback())
	}
	return f.commit(), nil
}

// LeftBy returns the run whose outputs a ./final holds: all of them, unchanged, and nothing
// else, by its record. It is empty if there is no such run.
func LeftBy(ctx context.Context, store *record.Store, path string) (runID string) {
	_ = fsx.InRoot(path, func(root *os.Root) error {
		f := &final{store: store, path: path, root: root}
		if f.leftByEarlierRun(ctx) {
			runID = FilledLast(store, path)
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
