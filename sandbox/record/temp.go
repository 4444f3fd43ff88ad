package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TempDir returns the directory of temporary files; see [Store.Temp].
func (s *Store) TempDir() string { return filepath.Join(s.dir, "tmp") }

// ownTemps are the directories that this process has made with [Store.Temp] and not removed.
var ownTemps sync.Map

// IsOwnTemp reports whether a path with links resolved is or lies in a directory that this process has made
// with [Store.Temp]. Other directories belong to jobs of other processes, and may hold the answers of a
// task.
func (s *Store) IsOwnTemp(real string) bool {
	tmp := fsx.RealPath(s.TempDir())
	rel, err := filepath.Rel(tmp, real)
	if err != nil || !filepath.IsLocal(rel) {
		return false
	}
	name, _, _ := strings.Cut(rel, string(filepath.Separator))
	_, own := ownTemps.Load(filepath.Join(tmp, name))
	return own
}

// Temp makes a directory for the temporary files of a job, such as the copies that its runs mount. Only
// the owner of the state directory may enter it. remove deletes it with its content.
//
// The process holds a lock on the directory until then. [Store.SweepTemp] deletes the directories of
// processes that died; Temp does that first.
func (s *Store) Temp(what string) (dir string, remove func() error, err error) {
	if err := s.Prepare(); err != nil {
		return "", nil, err
	}
	_ = s.SweepTemp() // a garbage collection reports it
	if err := os.MkdirAll(s.TempDir(), 0o700); err != nil {
		return "", nil, StateError(s.TempDir(), "cannot be made", err)
	}
	for {
		if dir, err = os.MkdirTemp(fsx.RealPath(s.TempDir()), what+"-"); err != nil {
			return "", nil, StateError(s.TempDir(), "cannot be written", err)
		}
		lock, err := fsx.LockPath(dir)
		if _, gone := os.Lstat(dir); gone == nil && err == nil {
			ownTemps.Store(dir, true)
			return dir, func() error {
				ownTemps.Delete(dir)
				return errors.Join(removeTemp(dir), lock.Close())
			}, nil
		}
		// A sweep of another process came before the lock.
		if lock != nil {
			err = errors.Join(err, lock.Close())
		}
		if err != nil && !errors.Is(err, fsx.ErrLocked) && !errors.Is(err, fs.ErrNotExist) {
			return "", nil, errors.Join(StateError(dir, "cannot be locked", err), removeTemp(dir))
		}
	}
}

// SweepTemp deletes the temporary files of processes that died, unless a run that is not settled may still
// read them. It tries all of them, and joins the errors.
func (s *Store) SweepTemp() error {
	entries, err := os.ReadDir(s.TempDir())
	if errors.Is(err, fs.ErrNotExist) || len(entries) == 0 && err == nil {
		return nil
	}
	if err != nil {
		return StateError(s.TempDir(), "cannot be read", err)
	}
	if err := s.Trusted(); err != nil {
		return err
	}
	var errs []error
	for _, entry := range entries {
		errs = append(errs, s.sweepTemp(filepath.Join(fsx.RealPath(s.TempDir()), entry.Name())))
	}
	return errors.Join(errs...)
}

// sweepTemp deletes one directory, if the process that made it is dead and no run needs it.
func (s *Store) sweepTemp(dir string) (err error) {
	lock, err := fsx.LockPath(dir)
	switch {
	case errors.Is(err, fsx.ErrLocked), errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return StateError(dir, "cannot be locked", err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	needed, err := s.needsTemp(dir)
	if err != nil || needed {
		return err
	}
	return removeTemp(dir)
}

// needsTemp reports whether a run that is not settled has files below a directory in its container. A run
// with a result may need them: the program of a lost engine may run. The script does not count: the record
// has a copy.
func (s *Store) needsTemp(dir string) (bool, error) {
	entries, err := os.ReadDir(s.openDir())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, StateError(s.openDir(), "cannot be read", err)
	}
	for _, entry := range entries {
		var plan spec.Spec
		record := s.RecordDir(entry.Name())
		if err := ReadJSON(filepath.Join(record, SpecFile), &plan); errors.Is(err, fs.ErrNotExist) {
			continue // it has no container
		} else if err != nil {
			return true, nil //nolint:nilerr // the plan cannot say it; whoever finishes the run reports the error
		}
		for _, source := range plan.Job.Sources() {
			if fsx.Within(source, dir) {
				return true, nil
			}
		}
	}
	return false, nil
}

func removeTemp(dir string) error {
	if err := fsx.Remove(dir); err != nil {
		return fmt.Errorf("removing temporary directory %s: %w", dir, fsx.Cause(err))
	}
	return nil
}
