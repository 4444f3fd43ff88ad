// Package recover finishes what dead controllers have left. [Recovery.Run] finishes one run,
// [Recovery.All] the runs that a filter selects. [Recovery.Collect] then removes what no run needs any
// more, and a [Behind] works behind the runs of a living controller. Whatever else meets a run without a
// controller calls these: the next run with the same ./final, a wait for GPUs, a batch that is given again.
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
	Free func(context.Context, record.Record) error
}

// Resume finishes a run that this process has claimed, by its journal as it was before. If it returns no
// result, another process may try. Nil stands for nobody who waits for the program: a run keeps the result
// that it has, whatever its engine knows.
type Resume func(context.Context, record.Record, record.Journal, engine.Info) (*result.Result, error)

// StillRuns is the [ErrStillRuns] of a run.
func StillRuns(id string) error {
	return fmt.Errorf("run %s: its own process died, and %w until its time limit; watch or end it with: sandbox adopt %s", id, ErrStillRuns, id)
}

var (
	// ErrStillRuns means that the program of a run without a controller has not ended. It may run until its
	// time limit, which the container's init keeps.
	ErrStillRuns = errors.New("its program still runs")
	// ErrElsewhere means that the container of a run is on another engine, which has the end of its program.
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
	}
	if nameless == nil && note.Container != "" && (done == nil || again && resume != nil) {
		info, err := r.here(ctx, note)
		if err != nil {
			return nil, r.disclaim(ctx, note, err)
		}
		if found.State != record.Unreadable { // nobody can resume such a run
			res, err := resume(ctx, found, note, info)
			switch {
			case res != nil:
				return res, err
			case !again || !errors.Is(err, engine.ErrNoContainer):
				return nil, r.disclaim(ctx, note, err)
			}
		}
	}
	if done != nil && found.Spec.Job.Keep {
		err = r.publishKept(ctx, found.ID)
	} else {
		err = r.end(ctx, found, nameless)
	}
	if nameless == nil && (done == nil || err != nil) {
		err = r.disclaim(ctx, note, err)
	}
	return done, err
}

// claim makes this process the owner of a run. nameless is why a journal names no owner: it is
// missing or damaged. Nobody can claim or resume such a run.
func (r *Recovery) claim(ctx context.Context, found record.Record) (note record.Journal, nameless, err error) {
	job := found.Spec.Job
	limit := time.Duration((job.TimeoutSeconds + job.GraceSeconds) * float64(time.Second))
	note, err = r.Store.Claim(ctx, found.ID, time.Now().Add(limit+stage.PartSlack))
	switch {
	case errors.Is(err, record.ErrNoJournal) && found.Result == nil && note.Owner == "" && time.Since(note.Created) <= beginPatience:
		return note, nil, err // somebody may be about to write it
	case errors.Is(err, record.ErrNoJournal), errors.Is(err, record.ErrUnreadable):
		return note, err, nil
	}
	return note, nil, err
}

// disclaim ends the ownership of a run that is not over, also for a caller who has given up: somebody else
// may try.
func (r *Recovery) disclaim(ctx context.Context, note record.Journal, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeBudget)
	defer cancel()
	return errors.Join(err, r.Store.Disclaim(ctx, note.ID, note.Deadline))
}

// here refuses a run of another engine, which alone knows how its program has ended. Behind its deadline
// the program is over, and its outputs on this machine come to its ./final.
func (r *Recovery) here(ctx context.Context, note record.Journal) (engine.Info, error) {
	info, err := r.Engine.Info(ctx)
	if err != nil || note.Engine == info.ID {
		return info, err
	}
	err = fmt.Errorf("run %s: %w: its container is on another engine", note.ID, ErrElsewhere)
	if time.Now().After(note.Deadline) && note.Transfer != spec.TransferCopy {
		err = errors.Join(err, stage.Publish(ctx, r.Store, note.ID))
	}
	return info, err
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

// end ends a run whose program nobody asks for: what the engine has of it is removed, its outputs move to
// its ./final, and its leases are given back. Its record stays if it has a result, outputs that cannot
// move, or damage. Without a result the error says why there is none.
func (r *Recovery) end(ctx context.Context, found record.Record, nameless error) error {
	id, removing := found.ID, context.WithoutCancel(ctx)
	// The program may run until its container is gone: the files come later.
	if err := r.Remove(removing, id, nameless); err != nil {
		return err
	}
	if err := stage.Reclaim(ctx, r.Store, id); err != nil {
		return err
	}
	var why error
	dir, _ := r.Store.Unpublished(id)
	over := r.Store.Settle
	switch {
	case found.Result != nil:
	case found.State == record.Unreadable:
		why = &endedError{found.Damage}
	case nameless == nil:
		why, over = fmt.Errorf("run %s: %w", id, outcome.ErrOwnerDied), r.Store.Discard
	case dir != "":
		why = fmt.Errorf("run %s: %w; its outputs are in %s", id, errNoJournal, dir)
	default:
		why, over = fmt.Errorf("run %s: %w", id, errNoJournal), r.Store.Discard
	}
	if err := over(id); err != nil {
		return err
	}
	return errors.Join(why, r.Free(removing, found))
}

// Remove removes what the engine has of a run. If its journal names no owner, which nameless says, the
// labels of its container do: the owner may live, and nothing is removed.
func (r *Recovery) Remove(ctx context.Context, id string, nameless error) error {
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
