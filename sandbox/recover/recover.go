// Package recover finishes what dead controllers have left. [Recovery.Run] finishes one run,
// [Recovery.All] the runs that a filter selects. [Recovery.Collect] then removes what no run needs any
// more, and a [Behind] works behind the runs of a living controller. Everything else that meets a run
// without a controller calls these: the next run with the same ./final, a wait for GPUs, a batch that
// goes on.
//
// The process that owns a run is gone if [owner.Gone] says so of the owner in its journal; without a
// journal, of the owner that is noted when a run begins, or of the label of its container. Of several
// processes that recover a run, [record.Store.Claim] lets one through.
package recover

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stage"
)

// Recovery recovers the runs of one state directory. Its methods may be called concurrently.
type Recovery struct {
	Store  *record.Store
	Engine engine.Engine
	Log    *slog.Logger
	// Free gives back the GPUs and the user ID that a run has leased. Nothing of the run is on the engine.
	Free func(ctx context.Context, id string) error
}

// Resume finishes a run that this process has claimed, by its journal as it was before. If it returns no
// result, another process may try.
type Resume func(ctx context.Context, found record.Record, note record.Journal) (*result.Result, error)

// GiveUp is a [Resume] for a run that has a result, and whose program nobody waits for: the run keeps the
// result, whatever its engine knows.
func GiveUp(context.Context, record.Record, record.Journal) (*result.Result, error) {
	return nil, engine.ErrNoContainer
}

// StillRuns is the [ErrStillRuns] of a run.
func StillRuns(id string) error {
	return fmt.Errorf("run %s: %w until its time limit; watch or end it with: sandbox adopt %s", id, ErrStillRuns, id)
}

var (
	// ErrStillRuns means that the program of a run without a controller has not ended. It may run until its
	// time limit, which the container's init keeps.
	ErrStillRuns = errors.New("its program still runs")
	// ErrElsewhere means that the container of a run is on another engine, where its program may run.
	ErrElsewhere = errors.New("cannot be finished here")
	// errNoJournal reports a run of which nothing is left: what it had on the engine was removed, and its
	// outputs were moved to its ./final.
	errNoJournal = fmt.Errorf("%w, and its journal is gone: it has no result", outcome.ErrOwnerDied)
)

const (
	// beginPatience is how long a controller may take between the record and its journal.
	beginPatience = time.Minute
	// removeBudget bounds the removal of a container and everything that belongs to it.
	removeBudget = time.Minute
)

// Run finishes a run whose controller is gone, and returns its result. A run that has one only loses the
// rest of it on the engine, unless its engine was lost and knows the end by now. A run whose controller
// lives is a [record.ErrRunning]. A run that never gets a result is an [outcome.ErrOwnerDied]: nothing
// of it is left but its record, if that has anything.
func (r *Recovery) Run(ctx context.Context, found record.Record, resume Resume) (*result.Result, error) {
	defer r.sweepTemp()
	done, again := found.Result, r.mayKnowMore(found)
	switch {
	case done != nil && !again && found.Spec.Job.Keep:
		return done, r.publishKept(ctx, found.ID)
	case found.State == record.Unreadable && !r.Store.IsOpen(found.ID):
		return nil, &endedError{found.Damage} // it was ended before
	}
	note, nameless, err := r.claim(ctx, found)
	switch {
	case done != nil && errors.Is(err, record.ErrRunning):
		return done, nil // its controller is about to do the rest
	case err != nil:
		return done, err
	case nameless == nil && note.Container != "" && found.State != record.Unreadable && (done == nil || again):
		res, err := r.resume(ctx, found, note, resume)
		if res != nil || !again || !errors.Is(err, engine.ErrNoContainer) {
			return res, r.letGo(ctx, note, res == nil, err)
		}
	}
	err = r.end(ctx, found, note, nameless)
	return done, r.letGo(ctx, note, nameless == nil && (done == nil || err != nil), err)
}

// claim makes this process the owner of a run. nameless is why a journal names no owner: it is
// missing or damaged. Nobody can claim or resume such a run.
func (r *Recovery) claim(ctx context.Context, found record.Record) (note record.Journal, nameless, err error) {
	job := found.Spec.Job
	limit := time.Duration((job.TimeoutSeconds + job.GraceSeconds) * float64(time.Second))
	note, err = r.Store.Claim(ctx, found.ID, time.Now().Add(limit+stage.PartSlack))
	switch {
	case errors.Is(err, record.ErrUnreadable):
		return note, err, nil
	case errors.Is(err, record.ErrNoJournal):
		begun, readErr := r.Store.Journal(found.ID)
		if found.Result == nil && begun.Owner == "" && time.Since(found.Created) <= beginPatience {
			return note, nil, err // somebody may be about to write it
		}
		return note, err, readErr
	}
	return note, nil, err
}

// letGo ends the ownership of a run that is not over, also for a caller who has given up: somebody else may try.
func (r *Recovery) letGo(ctx context.Context, note record.Journal, open bool, err error) error {
	if !open {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeBudget)
	defer cancel()
	return errors.Join(err, r.Store.Disclaim(ctx, note.ID, note.Deadline))
}

func (r *Recovery) resume(ctx context.Context, found record.Record, note record.Journal, resume Resume) (*result.Result, error) {
	if err := r.isHere(ctx, note); err != nil {
		return nil, err
	}
	return resume(ctx, found, note)
}

// isHere refuses a run of another engine. Behind its deadline its program is over, wherever it was.
func (r *Recovery) isHere(ctx context.Context, note record.Journal) error {
	info, err := r.Engine.Info(ctx)
	if err == nil && note.Engine != info.ID && time.Now().Before(note.Deadline) {
		err = fmt.Errorf("run %s: %w: its container is on another engine", note.ID, ErrElsewhere)
	}
	return err
}

// mayKnowMore reports whether the engine of a run that was given up may know its end by now, and
// whether the outputs of the run can still be distinguished from the outputs of other runs.
func (r *Recovery) mayKnowMore(found record.Record) bool {
	if found.Result == nil || found.Result.Status != result.StatusEngineLost || !r.Store.IsOpen(found.ID) {
		return false
	}
	by := found.ID
	if final := found.Spec.Job.Final; final != "" {
		_, by = stage.FilledLast(r.Store, final)
	}
	return by == found.ID
}

// publishKept publishes the outputs of a run whose container stays, once its program has ended.
func (r *Recovery) publishKept(ctx context.Context, id string) error {
	containers, err := r.Engine.List(ctx)
	if err != nil {
		return err
	}
	for _, c := range containers {
		if r.isOf(id, c.Labels) && c.Labels[spec.LabelPart] == "" && !c.Ended {
			return nil
		}
	}
	return stage.Publish(ctx, r.Store, id)
}

// endedError reports a run that has ended without a result, because its record is damaged.
type endedError struct{ damage error }

func (e *endedError) Error() string { return e.damage.Error() + "; the run has ended without a result" }

func (e *endedError) Unwrap() []error { return []error{e.damage, outcome.ErrOwnerDied} }

// end ends a run that gets no other result than the one that it may have: what the engine has of it is
// removed, its outputs move to its ./final, and its leases are given back. Its record stays if it has a
// result, outputs that cannot move, or damage. Without a result the error says why there is none.
func (r *Recovery) end(ctx context.Context, found record.Record, note record.Journal, nameless error) error {
	id, removing := found.ID, context.WithoutCancel(ctx)
	if nameless == nil && found.Result == nil && note.Container != "" {
		if err := r.isHere(ctx, note); err != nil {
			return err
		}
	}
	// The program may run until its container is gone: the files come later.
	if err := r.remove(removing, id, nameless); err != nil {
		return err
	}
	if err := stage.Reclaim(ctx, r.Store, id); err != nil {
		return err
	}
	if err := r.Free(removing, id); err != nil {
		return err
	}
	why := fmt.Errorf("run %s: %w", id, errNoJournal)
	dir, _ := r.Store.Unpublished(id)
	switch {
	case found.Result != nil:
		return r.Store.Settle(id)
	case found.State == record.Unreadable:
		return errors.Join(&endedError{found.Damage}, r.Store.Settle(id))
	case nameless == nil:
		why = fmt.Errorf("run %s: %w", id, outcome.ErrOwnerDied)
	case dir != "":
		return errors.Join(fmt.Errorf("%w; its outputs are in %s", why, dir), r.Store.Settle(id))
	}
	return errors.Join(why, r.Store.Discard(id))
}

// RemoveLeft removes what the engine has of a run that this process owns.
func (r *Recovery) RemoveLeft(ctx context.Context, id string) error { return r.remove(ctx, id, nil) }

// remove removes what the engine has of a run. If its journal names no owner, the labels of
// its container do: the owner may live, and nothing is removed.
func (r *Recovery) remove(ctx context.Context, id string, nameless error) error {
	ctx, cancel := context.WithTimeout(ctx, removeBudget)
	defer cancel()
	containers, err := r.Engine.List(ctx)
	if err != nil {
		return err
	}
	for _, c := range containers {
		if nameless == nil || !r.isOf(id, c.Labels) || c.Labels[spec.LabelPart] != "" {
			continue
		}
		if remove, reason := collectable(r.look(c).container(c), Options{Kept: true}, time.Now()); !remove {
			return fmt.Errorf("%w; container %s: %s", nameless, c.Name, reason)
		}
	}
	for _, c := range containers {
		if r.isOf(id, c.Labels) {
			if err := r.Engine.Remove(ctx, c.ID); err != nil {
				return err
			}
		}
	}
	volumes, err := stage.Volumes(ctx, r.Engine)
	if err != nil {
		return err
	}
	for _, v := range volumes {
		if r.isOf(id, v.Labels) {
			return stage.RemoveVolume(ctx, r.Engine, id)
		}
	}
	return nil
}

// isOf reports whether something on the engine is of a run of this store.
func (r *Recovery) isOf(id string, labels map[string]string) bool {
	return labels[spec.LabelRun] == id && labels[spec.LabelState] == r.Store.Dir()
}

// sweepTemp removes temporary files that only a finished run has read.
func (r *Recovery) sweepTemp() {
	if err := r.Store.SweepTemp(); err != nil { // a garbage collection reports it
		r.Log.Debug("the temporary files of a dead process were not removed", "error", err)
	}
}
