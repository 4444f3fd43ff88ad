package evaluate

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/sandbox"
)

// CleanOutputDirectory deletes everything in final/ below base and keeps the folder
// itself (EX-002), making it if it is missing. Links are deleted, never followed:
// nothing outside final/ changes. It refuses a final that is a link or no folder,
// and one that a run is using ([sandbox.ErrBusy]).
//
// It is for a working folder that belongs to the harness. The runs of an
// [Evaluator] do not need it: the runner empties final/ itself, at the last moment
// and under its lock, and moves aside what no run left there.
func CleanOutputDirectory(base string) (err error) {
	final := filepath.Join(base, finalName)
	if err := makeFinal(final); err != nil {
		return err
	}
	parent, err := os.OpenRoot(base)
	if err != nil {
		return &sandbox.PathError{Field: "working folder", Path: base, Rule: "cannot be opened", Err: fsx.Cause(err)}
	}
	defer func() { err = errors.Join(err, parent.Close()) }()
	folder, err := parent.OpenRoot(finalName)
	if err != nil {
		return &sandbox.PathError{Field: "final", Path: final, Rule: "cannot be opened", Err: fsx.Cause(err)}
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	// What was opened is what was looked at: no link took its place in between.
	opened, openErr := folder.Stat(".")
	named, nameErr := parent.Lstat(finalName)
	if err := errors.Join(openErr, nameErr); err != nil || !os.SameFile(opened, named) {
		return &sandbox.PathError{Field: "final", Path: final, Rule: "was replaced meanwhile", Err: fsx.Cause(err)}
	}
	lock, err := fsx.Lock(folder) // as a run does, as long as it has its ./final
	if errors.Is(err, fsx.ErrLocked) {
		err = sandbox.ErrBusy
	}
	if err != nil {
		return &sandbox.PathError{Field: "final", Path: final, Rule: "cannot be emptied", Err: fsx.Cause(err)}
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	if err := fsx.Empty(folder); err != nil {
		return &sandbox.PathError{Field: "final", Path: final, Rule: "cannot be emptied", Err: fsx.Cause(err)}
	}
	return nil
}
