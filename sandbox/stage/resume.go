package stage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// Resume opens the stage of a run whose controller died, as that controller left it. With
// started set, its program may have run; otherwise it never has, and the stage is only good
// for [Stage.Rollback], [Stage.Restore] and [Stage.WriteResult]. The labels are those of
// parts on the engine that have to be made again. After an error nothing is locked.
func Resume(o Options, was record.Journal, labels map[string]string, started bool) (*Stage, error) {
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
	s.final, err = resumeFinal(s, was, started)
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

// resumeFinal opens ./final where a dead controller may have emptied and granted it.
func resumeFinal(s *Stage, journal record.Journal, started bool) (*final, error) {
	was := journal.Final
	f := &final{store: s.Store, runID: s.Plan.Job.RunID, path: s.Plan.Job.Final, owner: was, backup: was.Backup, foreign: was.Foreign}
	if f.path == "" {
		f.path = filepath.Join(s.Dir, record.OwnFinal)
		f.granted = started
	} else {
		var err error
		if f.lock, err = lockFinal(f.store, f.path); err != nil {
			return f, err
		}
		if err := restoreNote(f.store, journal); err != nil {
			return f, err
		}
		if note := readNote(f.store, f.path); note.RunID == f.runID {
			f.noted, f.earlier = true, note.Earlier
			f.granted = note.Lent != nil // the controller may have handed it back
			if note.Lent != nil {
				f.owner.Dir = note.Lent.Dir // that of a container which has waited is not yet in the journal
			}
		} else {
			f.earlier = f.earlierNote()
		}
	}
	if err := f.giveWay(s, started); err != nil {
		return f, err
	}
	switch err := os.Mkdir(f.path, 0o755); {
	case err == nil && started:
		s.Warn("final %q was removed before the outputs were collected", f.path)
	case err != nil && !errors.Is(err, fs.ErrExist):
		return f, f.pathError("cannot be made", err)
	case f.granted && f.owner.Dir != nil:
		// The program may have closed it.
		if err := f.owner.Dir.LetIn(f.path); err != nil && !errors.Is(err, fsx.ErrReplaced) {
			return f, f.pathError("cannot be opened again", err)
		}
	}
	if err := f.open(); err != nil {
		return f, err
	}
	if f.owner.Dir != nil && !f.owner.Dir.Is(f.root) {
		f.granted = false // it is not the one that the program had
	}
	if started {
		return f, nil
	}
	// The controller may have died at any point of emptying ./final.
	for _, backup := range []string{f.backupPath(), f.backupIn()} {
		if f.backup == "" && fsx.IsDir(backup) {
			f.backup = backup
		}
	}
	f.foreign = true // if it cannot be put back, it stays
	return f, nil
}

// giveWay takes the ./final of the record if something that is not a directory took the place of the
// ./final of the caller: nothing is written there, or read.
func (f *final) giveWay(s *Stage, started bool) error {
	info, err := os.Lstat(f.path)
	if err != nil || info.IsDir() || f.lock == nil {
		return nil //nolint:nilerr // it is made again, or the error shows when it is opened
	}
	own, kind := filepath.Join(s.Dir, record.OwnFinal), fsx.Kind(info.Mode().Type())
	switch backup := f.backupPath(); {
	case started:
		s.Warn("final %q was replaced by %s before the outputs were collected; the collected files are in %s", f.path, kind, own)
	case fsx.IsDir(backup):
		s.Warn("final %q was replaced by %s: the earlier files are in %s", f.path, kind, backup)
		f.backup = ""
	}
	f.path, f.owner, f.noted, f.granted = own, record.Ownership{}, false, false
	if err := os.Mkdir(own, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return record.StateError(own, "cannot be made", err)
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
