package recover

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stage"
)

// Options says what a garbage collection takes.
type Options struct {
	// DryRun only reports.
	DryRun bool
	// Kept takes containers of dead owners that were kept (--keep) as well.
	Kept bool
}

// Report says what a garbage collection did, or would do.
type Report struct {
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

// maxFinished bounds the runs that a collection finishes at the same time.
const maxFinished = 8

// Collect finishes the runs whose programs have ended with resume, which returns [ErrStillRuns] for all
// others. Then it removes the containers and volumes that no run needs. sweep removes what else dead
// processes have left. After a failure it continues, and joins the errors.
func (r *Recovery) Collect(ctx context.Context, opts Options, resume Resume, sweep func(context.Context) error) (Report, error) {
	c := collection{Recovery: r, opts: opts, unfinished: map[string]error{}}
	if opts.DryRun {
		c.wouldFinish()
	} else {
		c.note(r.All(ctx, Filter{Deep: true, Most: maxFinished}, resume, c.finished))
	}
	containers, err := r.Engine.List(ctx)
	if err != nil {
		c.note(err)
		return c.report, errors.Join(c.errs...)
	}
	volumes, err := stage.Volumes(ctx, r.Engine)
	c.note(err)
	lasts := lastDeadlines(containers, volumes)
	for _, is := range containers {
		c.decide(is, is.Name, lasts, func() error { return r.collectOne(ctx, is) })
	}
	// A volume can be removed once no container has it mounted.
	for _, v := range volumes {
		is := engine.Found{Labels: v.Labels}
		c.decide(is, "volume "+v.Name, lasts, func() error { return stage.RemoveVolume(ctx, r.Engine, v.Labels[spec.LabelRun]) })
	}
	if !opts.DryRun {
		c.note(sweep(ctx))
		c.note(stage.TidyNotes(r.Store))
		c.note(r.Store.SweepTemp())
	}
	return c.report, errors.Join(c.errs...)
}

// collection is a garbage collection in progress.
type collection struct {
	*Recovery
	opts   Options
	report Report
	// unfinished says why runs cannot be finished now.
	unfinished map[string]error
	errs       []error
}

func (c *collection) note(err error) { c.errs = append(c.errs, err) }

// finished reports what became of a run.
func (c *collection) finished(done Recovered) {
	is := Collected{spec.Job{RunID: done.RunID}.ContainerName(), done.RunID, ""}
	var outputs *stage.UnpublishedError
	switch {
	case errors.As(done.Err, &outputs):
		is.Reason = outputs.Error()
		c.report.Left = append(c.report.Left, is)
		if !errors.Is(outputs, fsx.ErrReplaced) { // only the user can make room
			c.note(outputs)
		}
	case done.Result != nil:
		is.Reason = done.Result.Explanation
		c.report.Finished = append(c.report.Finished, is)
	case done.Settled():
		is.Reason = done.Err.Error()
		c.report.Ended = append(c.report.Ended, is)
	default:
		c.unfinished[done.RunID] = done.Err
	}
}

// wouldFinish reports the runs that a collection looks at first. Whether the programs have ended is not
// looked at.
func (c *collection) wouldFinish() {
	ids, _ := c.lost(Filter{Deep: true}) // an error shows when it is done
	for _, id := range ids {
		is := Collected{spec.Job{RunID: id}.ContainerName(), id, "its own process died; it is finished if its program has ended"}
		if found, err := c.Store.LoadBrief(id); err == nil && found.State == record.Unreadable {
			c.unfinished[id], is.Reason = found.Damage, found.Damage.Error()
			c.report.Ended = append(c.report.Ended, is)
			continue
		}
		c.unfinished[id] = errors.New("its own process died; its run is finished first, if its program has ended; watch or end it with: sandbox adopt " + id)
		c.report.Finished = append(c.report.Finished, is)
	}
}

// decide removes a container or a volume, and reports it, or reports why it stays.
func (c *collection) decide(is engine.Found, name string, lasts map[string]time.Time, remove func() error) {
	found := Collected{Container: name, RunID: is.Labels[spec.LabelRun]}
	goes, reason := c.verdict(is, c.opts, c.unfinished[found.RunID], lasts[found.RunID])
	if goes && !c.opts.DryRun {
		if err := remove(); err != nil {
			if !errors.Is(err, stage.ErrBusy) { // else a run uses its ./final, and recovers it
				c.note(err)
			}
			goes, reason = false, err.Error()
		}
	}
	if found.Reason = reason; goes {
		c.report.Removed = append(c.report.Removed, found)
	} else {
		c.report.Left = append(c.report.Left, found)
	}
}

// RemoveAbandoned removes one container that no run needs. Otherwise it says why the container stays.
func (r *Recovery) RemoveAbandoned(ctx context.Context, c engine.Found) (why string) {
	remove, reason := r.verdict(c, Options{}, nil, time.Time{})
	if !remove {
		return reason
	}
	if err := r.collectOne(ctx, c); err != nil {
		return err.Error()
	}
	return ""
}

// verdict decides about a container or a volume, by its record too. unfinished is why its run was not
// finished, and last the latest deadline of the container and the parts of its run.
func (r *Recovery) verdict(c engine.Found, opts Options, unfinished error, last time.Time) (remove bool, reason string) {
	run := r.look(c)
	if why := r.mustStay(c, run, unfinished); why != "" {
		return false, why
	}
	seen := run.container(c)
	if c.Labels[spec.LabelPart] != "" && !last.IsZero() {
		seen.Labels[spec.LabelDeadline] = last.Format(time.RFC3339)
	}
	return collectable(seen, opts, time.Now())
}

// recorded is the record of a container's run as of one moment.
type recorded struct {
	store *record.Store
	note  record.Journal
	state record.State
	err   error
}

// look is one look for all decisions: another process may adopt the run between two of them.
func (r *Recovery) look(c engine.Found) recorded {
	run := recorded{store: r.StoreOf(c)}
	run.note, run.state, run.err = run.store.Look(c.Labels[spec.LabelRun])
	return run
}

// container is a container with what the record knows better. Its owner is the present one of the run:
// another process may have adopted it, or may have got it from the process that kept it waiting. It has
// ended if the run has its result: a controller needs a container for a while after its end, and a helper
// container, which never runs, until the result. Of a run whose record was removed its state is all that
// is known.
func (run recorded) container(c engine.Found) engine.Found {
	c.Labels = maps.Clone(c.Labels)
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	removed := errors.Is(run.err, record.ErrNoRecord)
	if removed {
		c.Labels[spec.LabelOwner] = cmp.Or(run.store.PoolOwner(c.Labels[spec.LabelRun]), c.Labels[spec.LabelOwner])
	}
	other := run.note.Ref.ID != "" && c.ID != run.note.Ref.ID && c.Labels[spec.LabelPart] == ""
	if run.note.Owner != "" && !other {
		c.Labels[spec.LabelOwner] = run.note.Owner
	}
	if removed {
		c.Ended = c.Ended && c.Labels[spec.LabelPart] == ""
	} else {
		c.Ended = run.err == nil && run.state == record.Finished
	}
	return c
}

// mustStay says why a container of a dead owner must not be removed: its run can be finished. unfinished is
// why that was not done.
func (r *Recovery) mustStay(c engine.Found, run recorded, unfinished error) string {
	id := c.Labels[spec.LabelRun]
	if run.err != nil || run.state != record.Lost && unfinished == nil || run.note.Engine == "" || time.Now().After(run.note.Deadline) {
		return ""
	}
	switch {
	case run.store != r.Store:
		return fmt.Sprintf("its own process died; finish its run with: sandbox --state-dir %s adopt %s", run.store.Dir(), id)
	case unfinished != nil:
		return unfinished.Error()
	}
	return "its own process died; finish its run with: sandbox adopt " + id
}

// lastDeadlines returns the latest deadline of each run: a part is needed as long as any
// other part of the run, or its container.
func lastDeadlines(containers []engine.Found, volumes []engine.Volume) map[string]time.Time {
	lasts := map[string]time.Time{}
	add := func(labels map[string]string) {
		if id, deadline := labels[spec.LabelRun], deadlineOf(labels); deadline.After(lasts[id]) {
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

// deadlineOf is the deadline in labels; zero if there is none.
func deadlineOf(labels map[string]string) time.Time {
	deadline, err := time.Parse(time.RFC3339, labels[spec.LabelDeadline])
	if err != nil {
		return time.Time{}
	}
	return deadline
}

// collectable decides about one container, or about a volume, which only has labels.
func collectable(c engine.Found, opts Options, now time.Time) (remove bool, reason string) {
	kept := c.Labels[spec.LabelKeep] == "true"
	switch {
	case c.Labels[spec.LabelManaged] != "true":
		return false, "is not ours"
	case kept && !opts.Kept:
		return false, "is kept (--keep)"
	}
	remove, reason = owner.Gone(c.Labels[spec.LabelOwner], deadlineOf(c.Labels), now)
	if !remove && kept && c.Ended {
		return true, "was kept, and has ended"
	}
	return remove, reason
}

// StoreOf returns the records of a container's controller. Its state directory may be another
// one, which cannot be read from here, or is of another version: then only its labels count.
func (r *Recovery) StoreOf(c engine.Found) *record.Store {
	dir := c.Labels[spec.LabelState]
	if dir == "" || dir == r.Store.Dir() {
		return r.Store
	}
	store, err := record.Open(dir)
	if err != nil {
		store, _ = record.Open(os.DevNull) // cannot be read either
	}
	return store
}

// collectOne removes a container, and publishes the outputs that its owner left.
func (r *Recovery) collectOne(ctx context.Context, c engine.Found) error {
	if err := r.Engine.Remove(ctx, c.ID); err != nil {
		return err
	}
	if c.Labels[spec.LabelPart] != "" {
		return nil // has nothing on this disk
	}
	store := r.StoreOf(c)
	if store == r.Store || store.Trusted() == nil {
		// Its record says where its outputs belong.
		return stage.Reclaim(ctx, store, c.Labels[spec.LabelRun])
	}
	return nil // another user's: what its records say is not done for that user
}
