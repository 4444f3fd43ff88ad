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
// for [Stage.Rollback] and [Stage.WriteResult]. The labels are those of
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
	if err != nil || f.root != nil || f.published {
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
		note := readNote(store, path)
		f.published, f.moving = note.RunID == id && note.Next != id, note.Next == id && note.Moving
		if fsx.IsRealDir(path) {
			err = f.openDir()
		}
		if err != nil || f.published {
			return f, err
		}
	}
	// A copy in ./final is whole, and the directory that it was copied from may be half deleted.
	for _, out := range slices.Backward(record.OutputDirs(recordDir, path, id)) {
		if !fsx.IsRealDir(out) {
			continue
		}
		if f.root != nil {
			return f, fsx.Remove(out)
		}
		f.out = out
		// The program may have closed it.
		err := fsx.LetIn(out)
		if err == nil {
			f.root, err = openReal(out)
		}
		if err != nil {
			return f, record.StateError(out, "cannot be opened", err)
		}
	}
	if f.root == nil && f.moving { // all of them have moved
		if err := os.Mkdir(f.out, 0o700); err != nil {
			return f, record.StateError(f.out, "cannot be made", err)
		}
		var err error
		f.root, err = os.OpenRoot(f.out)
		return f, err
	}
	return f, nil
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
