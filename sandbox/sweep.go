package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/sandbox/engine"
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

// Swept is one container or volume of a sweep, and why it was removed or left.
type Swept struct {
	Container string `json:"container"`
	RunID     string `json:"run_id"`
	Reason    string `json:"reason"`
}

// Sweep removes the containers, and the volumes of runs whose files are copied,
// that dead controllers left behind, and gives back
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
	depots, err := r.depots(ctx)
	var report SweepReport
	errs := []error{err}
	lasts := lastDeadlines(containers, depots)
	sweep := func(c engine.Found, name string, removeIt func(context.Context, engine.Found) error) {
		swept := Swept{Container: name, RunID: c.Labels[LabelRun]}
		var remove bool
		seen := c
		seen.Ended = r.hasEnded(c)
		if last, known := lasts[c.Labels[LabelRun]]; known && c.Labels[LabelPart] != "" {
			seen.Labels = maps.Clone(c.Labels)
			seen.Labels[LabelDeadline] = last.Format(time.RFC3339)
		}
		remove, swept.Reason = sweepable(seen, opts, time.Now())
		if remove && !opts.DryRun {
			if err := removeIt(ctx, c); err != nil {
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
	for _, c := range containers {
		sweep(c, c.Name, r.sweepOne)
	}
	// A volume can be removed once no container has it mounted.
	for _, d := range depots {
		sweep(engine.Found{Labels: d.Labels}, "volume "+d.Name, func(ctx context.Context, c engine.Found) error {
			return r.removeDepot(ctx, c.Labels[LabelRun])
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
		deadline, err := time.Parse(time.RFC3339, labels[LabelDeadline])
		if id := labels[LabelRun]; err == nil && deadline.After(lasts[id]) {
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

// sweepable decides about one container, or a volume, which has nothing but labels.
func sweepable(c engine.Found, opts SweepOptions, now time.Time) (remove bool, reason string) {
	if c.Labels[LabelManaged] != "true" {
		return false, "is not ours"
	}
	if c.Labels[LabelKeep] == "true" && !opts.Kept {
		return false, "was told to stay (--keep)"
	}
	by, err := owner.Parse(c.Labels[LabelOwner])
	if err != nil {
		return false, err.Error()
	}
	switch by.Fate() {
	case owner.Alive:
		if c.Labels[LabelKeep] == "true" && c.Ended {
			return true, "was told to stay, and has ended"
		}
		return false, fmt.Sprintf("its owner, process %d, lives", by.PID)
	case owner.Dead:
		return true, fmt.Sprintf("its owner, process %d, is gone", by.PID)
	case owner.Unknown:
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

// hasEnded reports whether the run of a container has its result: a controller needs
// a container that has ended for a while, and a courier, which never runs, to the
// last. Of a run whose record was removed nothing but its own container tells.
func (r *Runner) hasEnded(c engine.Found) bool {
	state, err := r.storeOf(c).State(c.Labels[LabelRun])
	if errors.Is(err, record.ErrNoRecord) {
		return c.Labels[LabelPart] == "" && c.Ended
	}
	return err == nil && state == record.Finished
}

// storeOf is the state folder of a container's controller, which may be another one
// and out of reach.
func (r *Runner) storeOf(c engine.Found) *record.Store {
	if dir := c.Labels[LabelState]; dir != "" && dir != r.store.Dir() {
		if store, err := record.Open(dir); err == nil {
			return store
		}
	}
	return r.store
}

// sweepOne removes a container and puts right what its owner left on disk.
func (r *Runner) sweepOne(ctx context.Context, c engine.Found) error {
	if err := r.engine.Remove(ctx, c.ID); err != nil {
		return err
	}
	if c.Labels[LabelPart] != "" {
		return nil // has nothing on our disk
	}
	// Its record says whose ./final was.
	return reclaim(r.storeOf(c), c.Labels[LabelRun])
}
