package sandbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/evalbox/evalbox/internal/owner"
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
	var report SweepReport
	var errs []error
	sweep := func(c Container, name string, removeIt func(context.Context, Container) error) {
		swept := Swept{Container: name, RunID: c.Labels[LabelRun]}
		var remove bool
		remove, swept.Reason = sweepable(c, opts, time.Now())
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
	depots, err := r.engine.Depots(ctx)
	errs = append(errs, err)
	for _, d := range depots {
		sweep(Container{Labels: d.Labels}, "volume "+d.Name, func(ctx context.Context, c Container) error {
			return r.engine.RemoveDepot(ctx, c.Labels[LabelRun])
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

// sweepable decides about one container.
func sweepable(c Container, opts SweepOptions, now time.Time) (remove bool, reason string) {
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
		if c.Labels[LabelKeep] == "true" && !c.Running {
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

// sweepOne removes a container and puts right what its owner left on disk.
func (r *Runner) sweepOne(ctx context.Context, c Container) error {
	if err := r.engine.Remove(ctx, c.ID); err != nil {
		return err
	}
	if c.Labels[LabelPart] != "" {
		return nil // has nothing on our disk
	}
	store, id := r.store, c.Labels[LabelRun]
	if dir := c.Labels[LabelState]; dir != "" && dir != store.dir {
		// A controller with another state folder left it. Its record, if it can
		// be reached from here, says whose ./final was.
		store = &Store{dir: dir}
	}
	return store.reclaim(id)
}
