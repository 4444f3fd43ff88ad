package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// Resume opens the stage of a run whose controller died, as that controller left it. With
// started set, its program may have run; otherwise it never has, and the stage is only good
// for [Stage.Rollback] and [Stage.WriteResult]. The labels are for
// parts on the engine that have to be made again. After an error nothing is locked.
func Resume(o Options, labels map[string]string, started bool) (*Stage, error) {
	s := newStage(o, o.Store.RecordDir(o.Plan.Job.RunID))
	if c, ok := s.files.(*copies); ok {
		to, err := copier(o.Engine)
		if err != nil {
			return nil, err
		}
		c.opened, c.resumed, c.labels = true, true, labels
		c.monitor = &monitor{engine: to, plan: c.Plan, labels: labels, log: c.Log}
	}
	var err error
	s.final, err = resumeFinal(s, started)
	if err == nil {
		err = s.resumeBound()
	}
	if err == nil && started {
		err = s.resumeTrees()
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// resumeFinal opens the outputs of a run whose controller died: they may have been moved to ./final, or
// some of them.
func resumeFinal(s *Stage, started bool) (*final, error) {
	f, err := reopenFinal(s.Store, s.Plan.Job.RunID, s.Plan.Job.Final)
	if err != nil || f.root != nil || f.state == published {
		return f, err
	}
	if started {
		s.Warn("the directory with the outputs is gone: %s", f.out)
	}
	if err := os.Mkdir(f.out, 0o755); err != nil {
		return f, record.StateError(f.out, "cannot be made", err)
	}
	if f.root, err = os.OpenRoot(f.out); err != nil {
		return f, record.StateError(f.out, "cannot be opened", err)
	}
	return f, nil
}

// reopenFinal opens the outputs of a run of a dead process, which may be anywhere on their way to its
// ./final. Without any, root is nil.
func reopenFinal(store *record.Store, id, path string) (*final, error) {
	recordDir := store.RecordDir(id)
	f := &final{store: store, runID: id, path: path, out: filepath.Join(recordDir, record.OwnFinal)}
	if path != "" {
		lock, err := lockFinal(store, path)
		if err != nil {
			return f, err
		}
		f.held = append(f.held, lock)
		switch note := readNote(store, path); {
		case note.Next == id && note.Moving:
			f.state = moving
		case note.RunID == id && note.Next != id:
			f.state = published
		}
		if fsx.IsRealDir(path) {
			err = f.openDir()
		}
		if err != nil || f.state == published {
			return f, err
		}
	}
	return f, f.findOut(record.OutputDirs(recordDir, path, id))
}

// findOut opens the directory of the run, one of dirs. Without any, root is nil.
func (f *final) findOut(dirs []string) error {
	if inside := dirs[len(dirs)-1]; f.state == moving && fsx.IsRealDir(inside) {
		// A copy in ./final is whole, and the directory that it was copied from may be half deleted.
		for _, dir := range dirs[:len(dirs)-1] {
			if err := fsx.Remove(dir); err != nil {
				return record.StateError(dir, "cannot be removed", err)
			}
		}
	}
	i := slices.IndexFunc(dirs, fsx.IsRealDir)
	switch {
	case i >= 0:
		f.out = dirs[i]
	case f.state != moving:
		return nil
	default: // all of them have moved
		if err := os.Mkdir(f.out, 0o700); err != nil {
			return record.StateError(f.out, "cannot be made", err)
		}
	}
	err := fsx.LetIn(f.out) // the program may have closed it
	if err == nil {
		f.root, err = fsx.OpenRealDir(f.out)
	}
	if err != nil {
		return record.StateError(f.out, "cannot be opened", err)
	}
	return nil
}

// resumeTrees opens the working copies with their initial state.
func (s *Stage) resumeTrees() error {
	for i, job := range s.Plan.Job.Trees {
		t := &workingCopy{job: job, live: record.LiveTree(s.Dir, i), points: pointsOf(s.Plan, job.Target)}
		if err := s.resumeTree(i, t); err != nil {
			return record.StateError(s.Dir, "cannot be read", err)
		}
		s.trees = append(s.trees, t)
		s.Sources[spec.NumberedRole(spec.RoleTree, i)] = t.insideDir
	}
	return nil
}

func (s *Stage) resumeTree(i int, t *workingCopy) (err error) {
	if t.base, err = tree.ReadBase(record.BaseFile(s.Dir, i)); err != nil {
		return err
	}
	var left []result.SkippedOutput
	if err := record.ReadJSON(record.LeftFile(s.Dir, i), &left); err != nil {
		return err
	}
	t.left = left
	if err := os.Mkdir(t.live, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if t.root, err = os.OpenRoot(t.live); err != nil {
		return fmt.Errorf("tree %s: %w", t.job.Target, fsx.Cause(err))
	}
	return s.resumeBoundTree(i, t)
}
