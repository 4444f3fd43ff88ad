package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stage"
)

// GCOptions says what a garbage collection takes.
type GCOptions struct {
	// DryRun only reports.
	DryRun bool
	// Kept takes containers of dead owners that were kept (--keep) as well.
	Kept bool
}

// GCReport says what a garbage collection did, or would do.
type GCReport struct {
	// Finished are the runs that have their results now.
	Finished []Collected `json:"finished"`
	// Ended are the runs that have no result and never will, and of which nothing is left but a record
	// that cannot be read, if there is one.
	Ended   []Collected `json:"ended"`
	Removed []Collected `json:"removed"`
	Left    []Collected `json:"left"`
}

// Collected is one run, container or volume, and why it was finished, removed or left.
type Collected struct {
	Container string `json:"container"`
	RunID     string `json:"run_id"`
	Reason    string `json:"reason"`
}

// GC finishes the runs whose controllers died and whose programs have ended, see
// [Runner.Adopt]. Then it removes the containers that dead controllers left behind, and the
// volumes of runs whose files are copied. It moves outputs to the ./final of their runs, and removes
// the temporary files of dead controllers. A program that still runs may run until its time
// limit. GC never touches a container whose owner lives, or one without the labels of
// evalbox. An owner that cannot be seen from here (another machine, another PID namespace)
// counts as dead after the deadline of the container, which is an hour after the latest end
// of its program.
//
// A run whose record is damaged ends without a result: nobody can finish it. Its record stays.
//
// After a failure GC continues, and joins the errors.
func (r *Runner) GC(ctx context.Context, opts GCOptions) (GCReport, error) {
	var report GCReport
	var unfinished map[string]error
	var errs []error
	if opts.DryRun {
		unfinished = r.wouldFinish(&report)
	} else {
		var err error
		unfinished, err = r.finishEnded(ctx, &report)
		errs = append(errs, err)
	}
	containers, err := r.engine.List(ctx)
	if err != nil {
		return report, errors.Join(append(errs, err)...)
	}
	volumes, err := stage.Volumes(ctx, r.engine)
	errs = append(errs, err)
	lasts := lastDeadlines(containers, volumes)
	decide := func(c engine.Found, name string, removeIt func(context.Context, engine.Found) error) {
		found := Collected{Container: name, RunID: c.Labels[spec.LabelRun]}
		run, seen := r.look(c), c
		seen.Ended, seen.Labels = run.hasEnded(c), run.ownedBy(c)
		if last, known := lasts[c.Labels[spec.LabelRun]]; known && c.Labels[spec.LabelPart] != "" {
			seen.Labels[spec.LabelDeadline] = last.Format(time.RFC3339)
		}
		remove, reason := collectable(seen, opts, time.Now())
		if why := r.mustStay(c, run, unfinished); why != "" {
			remove, reason = false, why
		}
		if found.Reason = reason; remove && !opts.DryRun {
			if err := removeIt(ctx, c); err != nil {
				errs = append(errs, err)
				remove, found.Reason = false, err.Error()
			}
		}
		if remove {
			report.Removed = append(report.Removed, found)
		} else {
			report.Left = append(report.Left, found)
		}
	}
	for _, c := range containers {
		decide(c, c.Name, r.collectOne)
	}
	// A volume can be removed once no container has it mounted.
	for _, v := range volumes {
		decide(engine.Found{Labels: v.Labels}, "volume "+v.Name, func(ctx context.Context, c engine.Found) error {
			return stage.RemoveVolume(ctx, r.engine, c.Labels[spec.LabelRun])
		})
	}
	if !opts.DryRun {
		r.tidyWork()
		errs = append(errs, r.sweepPool(ctx))
		left, err := r.engine.List(ctx)
		if err == nil {
			err = errors.Join(r.reclaimLost(left), r.sweepUIDs(ctx), r.store.SweepTemp())
		}
		errs = append(errs, err)
	}
	return report, errors.Join(errs...)
}

// wouldFinish is [Runner.finishEnded] of a dry run: whether the programs have ended is not
// looked at.
func (r *Runner) wouldFinish(report *GCReport) map[string]error {
	unfinished := map[string]error{}
	ids, _ := r.store.Orphans() // an error shows when it is done
	for _, id := range ids {
		if found, err := r.store.LoadBrief(id); err == nil && found.State == record.Unreadable {
			unfinished[id] = found.Damage
			report.Ended = append(report.Ended, Collected{spec.Job{RunID: id}.ContainerName(), id, found.Damage.Error()})
			continue
		}
		unfinished[id] = errors.New("its own process died; its run is finished first, if its program has ended; watch or end it with: sandbox adopt " + id)
		report.Finished = append(report.Finished, Collected{spec.Job{RunID: id}.ContainerName(), id, "its own process died; it is finished if its program has ended"})
	}
	return unfinished
}

// recordedRun is the record of a container's run as of one moment.
type recordedRun struct {
	store *record.Store
	note  record.Journal
	state record.State
	err   error
}

// look is one look for all decisions: another process may adopt the run between two of them.
func (r *Runner) look(c engine.Found) recordedRun {
	run := recordedRun{store: r.storeOf(c)}
	run.note, run.state, run.err = run.store.Look(c.Labels[spec.LabelRun])
	return run
}

// ownedBy returns the labels of a container with the present owner of its run: another process
// may have adopted it, or may have got it from the one that kept it waiting.
func (run recordedRun) ownedBy(c engine.Found) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, c.Labels)
	if errors.Is(run.err, record.ErrNoRecord) {
		labels[spec.LabelOwner] = cmp.Or(run.store.PoolOwner(c.Labels[spec.LabelRun]), labels[spec.LabelOwner])
	}
	other := run.note.Ref.ID != "" && c.ID != run.note.Ref.ID && c.Labels[spec.LabelPart] == ""
	if run.note.Owner != "" && !other {
		labels[spec.LabelOwner] = run.note.Owner
	}
	return labels
}

// hasEnded reports whether the run of a container has its result. The state of the container
// does not say that: a controller needs a container for a while after its end, and a
// helper container, which never runs, until the result. It is all that is known of a run
// whose record was removed.
func (run recordedRun) hasEnded(c engine.Found) bool {
	if errors.Is(run.err, record.ErrNoRecord) {
		return c.Labels[spec.LabelPart] == "" && c.Ended
	}
	return run.err == nil && run.state == record.Finished
}

// mustStay says why a container of a dead owner must not be removed: its run can be finished.
func (r *Runner) mustStay(c engine.Found, run recordedRun, unfinished map[string]error) string {
	id, store := c.Labels[spec.LabelRun], run.store
	toFinish := run.state == record.Lost || unfinished[id] != nil
	if run.err != nil || !toFinish || run.note.Engine == "" || time.Now().After(run.note.Deadline) {
		return ""
	}
	switch why := unfinished[id]; {
	case store != r.store:
		return fmt.Sprintf("its own process died; finish its run with: sandbox --state-dir %s adopt %s", store.Dir(), id)
	case errors.Is(why, ErrStillRuns):
		return "its own process died, and its program still runs until its time limit; watch or end it with: sandbox adopt " + id
	case why != nil:
		return why.Error()
	}
	return "its own process died; finish its run with: sandbox adopt " + id
}

// lastDeadlines returns the latest deadline of each run: a part is needed as long as any
// other part of the run, or its container.
func lastDeadlines(containers []engine.Found, volumes []engine.Volume) map[string]time.Time {
	lasts := map[string]time.Time{}
	add := func(labels map[string]string) {
		deadline, err := time.Parse(time.RFC3339, labels[spec.LabelDeadline])
		if id := labels[spec.LabelRun]; err == nil && deadline.After(lasts[id]) {
			lasts[id] = deadline
		}
	}
	for _, c := range containers {
		add(c.Labels)
	}
	for _, v := range volumes {
		add(v.Labels)
	}
	return lasts
}

// collectable decides about one container, or about a volume, which only has labels.
func collectable(c engine.Found, opts GCOptions, now time.Time) (remove bool, reason string) {
	if c.Labels[spec.LabelManaged] != "true" {
		return false, "is not ours"
	}
	if c.Labels[spec.LabelKeep] == "true" && !opts.Kept {
		return false, "is kept (--keep)"
	}
	by, err := owner.Parse(c.Labels[spec.LabelOwner])
	if err != nil {
		return false, err.Error()
	}
	switch by.Fate() {
	case owner.Alive:
		if c.Labels[spec.LabelKeep] == "true" && c.Ended {
			return true, "was kept, and has ended"
		}
		return false, fmt.Sprintf("its owner, process %d, lives", by.PID)
	case owner.Dead:
		return true, fmt.Sprintf("its owner, process %d, is gone", by.PID)
	case owner.Unknown:
	}
	deadline, err := time.Parse(time.RFC3339, c.Labels[spec.LabelDeadline])
	if err != nil {
		return false, "its owner cannot be seen from here, and it has no deadline"
	}
	if now.After(deadline) {
		return true, "its owner cannot be seen from here, and its deadline is over"
	}
	return false, "its owner cannot be seen from here, and its deadline is " + deadline.Format(time.RFC3339)
}

// storeOf returns the records of a container's controller. Its state directory may be another
// one, which cannot be read from here, or is of another version: then only its labels count.
func (r *Runner) storeOf(c engine.Found) *record.Store {
	dir := c.Labels[spec.LabelState]
	if dir == "" || dir == r.store.Dir() {
		return r.store
	}
	store, err := record.Open(dir)
	if err != nil {
		store, _ = record.Open(os.DevNull) // cannot be read either
	}
	return store
}

// collectOne removes a container, and publishes the outputs that its owner left.
func (r *Runner) collectOne(ctx context.Context, c engine.Found) error {
	if err := r.engine.Remove(ctx, c.ID); err != nil {
		return err
	}
	if c.Labels[spec.LabelPart] != "" {
		return nil // has nothing on this disk
	}
	store := r.storeOf(c)
	if store == r.store || store.Trusted() == nil {
		// Its record says where its outputs belong.
		return stage.Reclaim(store, c.Labels[spec.LabelRun])
	}
	return nil // another user's: what its records say is not done for that user
}

// reclaimLost publishes the outputs of lost runs whose containers are gone.
func (r *Runner) reclaimLost(containers []engine.Found) error {
	there := map[string]bool{}
	for _, c := range containers {
		there[c.Labels[spec.LabelRun]] = true
	}
	ids, err := r.store.IDs()
	errs := []error{err}
	for _, id := range ids {
		switch state, err := r.store.State(id); {
		case err != nil, !state.Abandoned(), there[id]:
		case r.store.IsHalfTaken(id):
			errs = append(errs, r.store.Discard(id))
		default:
			errs = append(errs, stage.Reclaim(r.store, id))
		}
	}
	errs = append(errs, stage.TidyNotes(r.store))
	return errors.Join(errs...)
}

// recoverFinal finishes the run of a dead controller whose outputs come to this ./final, before another
// run uses it.
func (r *Runner) recoverFinal(ctx context.Context, final string) error {
	if final == "" {
		return nil
	}
	last, next := stage.FilledLast(r.store, final)
	id := cmp.Or(next, last)
	if id == "" {
		return nil
	}
	found, err := r.store.Load(id)
	switch {
	case errors.Is(err, record.ErrNoRecord):
		return nil
	case err != nil:
		return err
	case found.State == record.Running: // its lock says so
		return nil
	case found.State == record.Finished && next == "":
		return nil
	}
	res, err := r.adopt(ctx, found, runOptions{}, true)
	if errors.Is(err, ErrStillRuns) && found.Result != nil && !found.Spec.Job.Keep {
		err = r.tidy(ctx, found) // nobody waits for the program of a run that was given up
	}
	if err == nil || res != nil || errors.Is(err, outcome.ErrOwnerDied) {
		return nil
	}
	return fmt.Errorf("final %q is still in use by a run whose own process died: %w", final, err)
}
