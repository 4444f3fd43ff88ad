package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/collect"
)

// finalNote says which run filled a ./final last.
type finalNote struct {
	Path  string `json:"path"`
	RunID string `json:"run_id"`
}

// clear empties ./final (EX-002) without losing anything: what lies in it is
// moved aside, into a folder beside it. Once the program has started, what an
// earlier run left is deleted there; anything else stays, because somebody may
// have named the wrong folder.
func (w *workspace) clear(ctx context.Context) error {
	final := w.paths[RoleFinal]
	names, err := entries(w.final)
	if err != nil {
		return &PathError{Field: "final", Path: final, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	if len(names) == 0 {
		return nil
	}
	w.keepAside = !w.leftByEarlierRun(ctx)
	if err = w.moveAside(names); err == nil {
		return nil
	}
	if w.keepAside {
		return &PathError{Field: "final", Path: final, Rule: "holds what no run left there, and it cannot be moved aside", Err: fsx.Cause(err)}
	}
	if err := fsx.Empty(w.final); err != nil {
		return &PathError{Field: "final", Path: final, Rule: "cannot be emptied", Err: fsx.Cause(err)}
	}
	return nil
}

// moveAside moves the entries of ./final into a new folder beside it. All of
// them, or none.
func (w *workspace) moveAside(names []string) error {
	final := w.paths[RoleFinal]
	opened, err := w.final.Stat(".")
	if err != nil {
		return err
	}
	if named, err := os.Lstat(final); err != nil || !os.SameFile(opened, named) {
		return errors.New("it was replaced by something else")
	}
	aside := final + ".before-" + w.runID
	if err := os.Mkdir(aside, 0o700); err != nil {
		return err
	}
	w.aside = aside
	if err := w.move(names, final, aside); err != nil {
		return errors.Join(err, w.putBack())
	}
	return nil
}

// move renames entries from one folder to another of the same parent.
func (w *workspace) move(names []string, from, to string) (err error) {
	parent, err := os.OpenRoot(filepath.Dir(from))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parent.Close()) }()
	for _, name := range names {
		if err := parent.Rename(path.Join(filepath.Base(from), name), path.Join(filepath.Base(to), name)); err != nil {
			return err
		}
	}
	return nil
}

// putBack undoes moveAside. It is for runs whose program never started.
func (w *workspace) putBack() error {
	if err := w.unnoteFinal(); err != nil {
		return fmt.Errorf("forgetting who filled final %q: %w", w.paths[RoleFinal], fsx.Cause(err))
	}
	if w.aside == "" {
		return nil
	}
	root, err := os.OpenRoot(w.aside)
	if err != nil {
		return err
	}
	names, err := entries(root)
	err = errors.Join(err, root.Close())
	if err == nil {
		err = w.move(names, w.aside, w.paths[RoleFinal])
	}
	if err == nil {
		err = os.Remove(w.aside)
	}
	if err != nil {
		return fmt.Errorf("putting back what lay in final %q, now in %q: %w", w.paths[RoleFinal], w.aside, fsx.Cause(err))
	}
	w.aside = ""
	return nil
}

// settle decides about what was moved aside, once the program has started. The
// warning is for the result.
func (w *workspace) settle() (warning string) {
	switch {
	case w.aside == "":
		return ""
	case w.keepAside:
		return fmt.Sprintf("what lay in final before was not left there by a run: it is now in %s", w.aside)
	}
	if err := fsx.Remove(w.aside); err != nil {
		return fmt.Sprintf("what the earlier run left in final could not be deleted: it is in %s: %v", w.aside, fsx.Cause(err))
	}
	return ""
}

// leftByEarlierRun reports whether ./final holds exactly what the run that filled
// it last has recorded: nothing was added or changed since. A record that is gone
// cannot tell.
func (w *workspace) leftByEarlierRun(ctx context.Context) bool {
	found, err := w.store.Load(filledLast(w.store, w.paths[RoleFinal]))
	if err != nil || found.Result == nil {
		return false
	}
	info, err := os.Stat(filepath.Join(found.Dir, record.ResultFile))
	if err != nil {
		return false
	}
	same, err := collect.Same(ctx, w.final, outputLimits(found.Spec.Job), found.Result.Outputs, found.Result.OutputsSkipped, info.ModTime())
	return err == nil && same
}

// noteFinal remembers that this run fills its ./final. It is written before the
// program starts, so that a controller that dies leaves it.
func (w *workspace) noteFinal() error {
	if w.lock == nil {
		return nil // the record's own
	}
	final := w.paths[RoleFinal]
	file := finalFile(w.store, final, "json")
	w.earlier, _ = os.ReadFile(file) // there may be none
	if err := record.WriteJSON(file, finalNote{Path: final, RunID: w.runID}); err != nil {
		return record.StateError(file, "cannot be written", err)
	}
	return nil
}

// unnoteFinal takes noteFinal back, for a program that never started.
func (w *workspace) unnoteFinal() error {
	if w.lock == nil {
		return nil
	}
	file := finalFile(w.store, w.paths[RoleFinal], "json")
	if w.earlier == nil {
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	}
	return fsx.WriteFile(file, w.earlier, 0o600, false)
}

// filledLast is the run that filled a ./final last; empty when it cannot be told.
func filledLast(s *record.Store, final string) string {
	var note finalNote
	if final == "" || record.ReadJSON(finalFile(s, final, "json"), &note) != nil {
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
	names, err := dir.Readdirnames(-1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return names, err
}
