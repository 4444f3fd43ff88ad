package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// SweepOptions say what a sweep takes.
type SweepOptions struct {
	// DryRun only reports.
	DryRun bool
	// Kept takes containers of dead owners that were told to stay (--keep).
	Kept bool
}

// SweepReport is what a sweep did, or would do.
type SweepReport struct {
	Removed []Swept `json:"removed"`
	Left    []Swept `json:"left"`
}

// Swept is one container of a sweep, and why it was removed or left.
type Swept struct {
	Container string `json:"container"`
	RunID     string `json:"run_id"`
	Reason    string `json:"reason"`
}

// Sweep removes the containers that dead controllers left behind, and gives back
// the ./final folders that they had lent to their programs. A container whose
// owner lives is never touched, nor one without our labels. An owner that cannot
// be seen from here (another machine, another PID namespace) counts as dead once
// the container is past its deadline, by an hour.
//
// Sweep goes on after a failure and joins the errors.
func (r *Runner) Sweep(ctx context.Context, opts SweepOptions) (SweepReport, error) {
	containers, err := r.engine.List(ctx)
	if err != nil {
		return SweepReport{}, err
	}
	var report SweepReport
	var errs []error
	for _, c := range containers {
		swept := Swept{Container: c.Name, RunID: c.Labels[LabelRun]}
		var remove bool
		remove, swept.Reason = sweepable(c, opts, time.Now())
		if remove && !opts.DryRun {
			if err := r.sweepOne(ctx, c); err != nil {
				errs = append(errs, err)
				remove, swept.Reason = false, err.Error()
			}
		}
		if remove {
			report.Removed = append(report.Removed, swept)
		} else {
			report.Left = append(report.Left, swept)
		}
	}
	if !opts.DryRun {
		left, err := r.engine.List(ctx)
		if err == nil {
			err = r.reclaimLost(left)
		}
		errs = append(errs, err)
	}
	return report, errors.Join(errs...)
}

// sweepable decides about one container.
func sweepable(c Container, opts SweepOptions, now time.Time) (remove bool, reason string) {
	if c.Labels[LabelManaged] != "true" {
		return false, "is not ours"
	}
	if c.Labels[LabelKeep] == "true" && !opts.Kept {
		return false, "was told to stay (--keep)"
	}
	by, err := parseOwner(c.Labels[LabelOwner])
	if err != nil {
		return false, err.Error()
	}
	switch by.fate() {
	case fateAlive:
		if c.Labels[LabelKeep] == "true" && !c.Running {
			return true, "was told to stay, and has ended"
		}
		return false, fmt.Sprintf("its owner, process %d, lives", by.pid)
	case fateDead:
		return true, fmt.Sprintf("its owner, process %d, is gone", by.pid)
	case fateUnknown:
	}
	deadline, err := time.Parse(time.RFC3339, c.Labels[LabelDeadline])
	if err != nil {
		return false, "its owner cannot be seen from here, and it has no deadline"
	}
	if now.After(deadline) {
		return true, "its owner cannot be seen from here, and its deadline is over"
	}
	return false, "its owner cannot be seen from here, and its deadline is " + deadline.Format(time.RFC3339)
}

// sweepOne removes a container and puts right what its owner left on disk.
func (r *Runner) sweepOne(ctx context.Context, c Container) error {
	if err := r.engine.Remove(ctx, c.ID); err != nil {
		return err
	}
	store, id := r.store, c.Labels[LabelRun]
	if dir := c.Labels[LabelState]; dir != "" && dir != store.dir {
		// A controller with another state folder left it. Its record, if it can
		// be reached from here, says whose ./final was.
		store = &Store{dir: dir}
	}
	return store.reclaim(id)
}

// reclaim puts right what a run that will never finish left on disk: it hands
// ./final back and frees the space that was set aside. It may be called again.
func (s *Store) reclaim(id string) (err error) {
	note, err := s.journal(id)
	if errors.Is(err, ErrNoRecord) {
		return nil
	}
	if err != nil {
		return err
	}
	dir := filepath.Join(s.runsDir(), id)
	if err := os.Remove(filepath.Join(dir, reserveFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return stateError(dir, "cannot be written", err)
	}
	if !note.Final.Lent {
		return nil
	}
	if !within(note.Final.Path, dir) {
		lock, err := lockFinal(s, note.Final.Path)
		if err != nil {
			return fmt.Errorf("handing back final of run %s: %w", id, err)
		}
		defer func() { err = errors.Join(err, lock.release()) }()
	}
	root, err := os.OpenRoot(note.Final.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("handing back final %q of run %s: %w", note.Final.Path, id, cause(err))
	}
	return errors.Join(chownTree(root, note.Final.ToUID, note.Final.UID, note.Final.GID), root.Close())
}

// lentBy reports whether a run that has no result still has its ./final lent to
// its program's user.
func (s *Store) lentBy(id string) (path string, lent bool) {
	note, err := s.journal(id)
	if err != nil || !note.Final.Lent || within(note.Final.Path, filepath.Join(s.runsDir(), id)) {
		return "", false
	}
	info, err := os.Stat(note.Final.Path)
	if err != nil {
		return "", false
	}
	uid, _, ok := ownerOf(info)
	return note.Final.Path, ok && uid == note.Final.ToUID && uid != note.Final.UID
}

// reclaimLost puts right what lost runs left on disk whose containers are gone.
func (r *Runner) reclaimLost(containers []Container) error {
	there := map[string]bool{}
	for _, c := range containers {
		there[c.Labels[LabelRun]] = true
	}
	ids, err := r.store.ids()
	errs := []error{err}
	for _, id := range ids {
		if state, err := r.store.state(id); err == nil && state == RecordLost && !there[id] {
			errs = append(errs, r.store.reclaim(id))
		}
	}
	return errors.Join(errs...)
}

// reclaimFinal puts right what a dead controller left of a run with this ./final,
// before another run uses it: its program may still be writing there.
func (r *Runner) reclaimFinal(ctx context.Context, final string) error {
	id := r.store.filledLast(final)
	if id == "" {
		return nil
	}
	if state, err := r.store.state(id); err != nil || state != RecordLost {
		return nil
	}
	if err := r.engine.Remove(ctx, Job{RunID: id}.ContainerName()); err != nil {
		return fmt.Errorf("final %q is still in use by run %s, whose controller died: %w", final, id, err)
	}
	return r.store.reclaim(id)
}
