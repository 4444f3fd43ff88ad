package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stage"
)

// GCOptions says what a garbage collection takes.
type GCOptions struct {
	// DryRun only reports.
	DryRun bool
	// Kept takes containers of dead owners that were told to stay (--keep).
	Kept bool
}

// GCReport says what a garbage collection did, or would do.
type GCReport struct {
	Removed []Collected `json:"removed"`
	Left    []Collected `json:"left"`
}

// Collected is one container or volume, and why it was removed or left.
type Collected struct {
	Container string `json:"container"`
	RunID     string `json:"run_id"`
	Reason    string `json:"reason"`
}

// GC removes the containers, and the volumes of runs whose files are copied,
// that dead controllers left behind, and gives back
// the ./final directories that they had granted to their programs. A container whose
// owner lives is never touched, nor one without our labels. An owner that cannot
// be seen from here (another machine, another PID namespace) counts as dead once
// the container is past its deadline, by an hour.
//
// GC goes on after a failure and joins the errors.
func (r *Runner) GC(ctx context.Context, opts GCOptions) (GCReport, error) {
	containers, err := r.engine.List(ctx)
	if err != nil {
		return GCReport{}, err
	}
	depots, err := stage.Volumes(ctx, r.engine)
	var report GCReport
	errs := []error{err}
	lasts := lastDeadlines(containers, depots)
	decide := func(c engine.Found, name string, removeIt func(context.Context, engine.Found) error) {
		found := Collected{Container: name, RunID: c.Labels[spec.LabelRun]}
		var remove bool
		seen := c
		seen.Ended = r.hasEnded(c)
		if last, known := lasts[c.Labels[spec.LabelRun]]; known && c.Labels[spec.LabelPart] != "" {
			seen.Labels = maps.Clone(c.Labels)
			seen.Labels[spec.LabelDeadline] = last.Format(time.RFC3339)
		}
		remove, found.Reason = collectable(seen, opts, time.Now())
		if remove && !opts.DryRun {
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
	for _, d := range depots {
		decide(engine.Found{Labels: d.Labels}, "volume "+d.Name, func(ctx context.Context, c engine.Found) error {
			return stage.RemoveVolume(ctx, r.engine, c.Labels[spec.LabelRun])
		})
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

// lastDeadlines are the latest of each run: its parts are needed as long as any
// other of its parts, or its container, may be.
func lastDeadlines(containers []engine.Found, depots []engine.Depot) map[string]time.Time {
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
	for _, d := range depots {
		add(d.Labels)
	}
	return lasts
}

// collectable decides about one container, or a volume, which has nothing but labels.
func collectable(c engine.Found, opts GCOptions, now time.Time) (remove bool, reason string) {
	if c.Labels[spec.LabelManaged] != "true" {
		return false, "is not ours"
	}
	if c.Labels[spec.LabelKeep] == "true" && !opts.Kept {
		return false, "was told to stay (--keep)"
	}
	by, err := owner.Parse(c.Labels[spec.LabelOwner])
	if err != nil {
		return false, err.Error()
	}
	switch by.Fate() {
	case owner.Alive:
		if c.Labels[spec.LabelKeep] == "true" && c.Ended {
			return true, "was told to stay, and has ended"
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

// hasEnded reports whether the run of a container has its result: a controller needs
// a container that has ended for a while, and a courier, which never runs, to the
// last. Of a run whose record was removed nothing but its own container tells.
func (r *Runner) hasEnded(c engine.Found) bool {
	state, err := r.storeOf(c).State(c.Labels[spec.LabelRun])
	if errors.Is(err, record.ErrNoRecord) {
		return c.Labels[spec.LabelPart] == "" && c.Ended
	}
	return err == nil && state == record.Finished
}

// storeOf is the state folder of a container's controller, which may be another one
// and out of reach.
func (r *Runner) storeOf(c engine.Found) *record.Store {
	if dir := c.Labels[spec.LabelState]; dir != "" && dir != r.store.Dir() {
		if store, err := record.Open(dir); err == nil {
			return store
		}
	}
	return r.store
}

// collectOne removes a container and puts right what its owner left on disk.
func (r *Runner) collectOne(ctx context.Context, c engine.Found) error {
	if err := r.engine.Remove(ctx, c.ID); err != nil {
		return err
	}
	if c.Labels[spec.LabelPart] != "" {
		return nil // has nothing on our disk
	}
	// Its record says whose ./final was.
	return stage.Reclaim(r.storeOf(c), c.Labels[spec.LabelRun])
}

// reclaimLost puts right what lost runs left on disk whose containers are gone.
func (r *Runner) reclaimLost(containers []engine.Found) error {
	there := map[string]bool{}
	for _, c := range containers {
		there[c.Labels[spec.LabelRun]] = true
	}
	ids, err := r.store.Ids()
	errs := []error{err}
	for _, id := range ids {
		if state, err := r.store.State(id); err == nil && state == record.Lost && !there[id] {
			errs = append(errs, stage.Reclaim(r.store, id))
		}
	}
	return errors.Join(errs...)
}

// reclaimFinal puts right what a dead controller left of a run with this ./final,
// before another run uses it: its program may still be writing there.
func (r *Runner) reclaimFinal(ctx context.Context, final string) error {
	id := stage.FilledLast(r.store, final)
	if id == "" {
		return nil
	}
	switch state, err := r.store.State(id); {
	case errors.Is(err, record.ErrNoRecord):
		return nil
	case err != nil:
		return err
	case state != record.Lost:
		return nil
	}
	if err := r.engine.Remove(ctx, spec.Job{RunID: id}.ContainerName()); err != nil {
		return fmt.Errorf("final %q is still in use by run %s, whose controller died: %w", final, id, err)
	}
	if note, err := r.store.Journal(id); err == nil && note.Transfer == spec.TransferCopy {
		// Nothing of it is in the way; a garbage collection tries again.
		if err := stage.RemoveVolume(ctx, r.engine, id); err != nil {
			r.log.Warn("the volume of a lost run is left behind", logRun, id, logError, err)
		}
	}
	return stage.Reclaim(r.store, id)
}
