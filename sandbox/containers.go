package sandbox

import (
	"time"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stage"
)

// ContainerFacts is what is known about the run of a container beside what the engine knows.
type ContainerFacts struct {
	// Image is the name by which the run asked for its image; empty without the record.
	Image string
	// OwnerPID is the process that owns the run, 0 if it is not known. Owner is "running", "gone", or
	// "unknown" for a process of another machine or PID namespace.
	OwnerPID int
	Owner    string
	// Until is when the time limit of the program ends, without the grace period; zero if no program
	// was started.
	Until time.Time
}

// Facts looks up the run of a container in its record, which may be of another state directory.
func (r *Runner) Facts(c engine.Found) ContainerFacts {
	facts := ContainerFacts{Owner: "gone"}
	store := r.recovery.StoreOf(c)
	by := c.Labels[spec.LabelOwner]
	note, err := store.Journal(c.Labels[spec.LabelRun])
	if err == nil {
		by = note.Owner // another process may have adopted the run
	}
	if o, err := owner.Parse(by); err == nil {
		facts.OwnerPID = o.PID
		switch o.Fate() {
		case owner.Alive:
			facts.Owner = "running"
		case owner.Unknown:
			facts.Owner = "unknown"
		case owner.Dead:
		}
	}
	found, loadErr := store.Load(c.Labels[spec.LabelRun])
	if err != nil || loadErr != nil {
		return facts
	}
	facts.Image = found.Spec.Class.Image.Reference
	if note.Ref.ID != "" && !note.Adopted {
		slack := deadlineSlack
		if note.Transfer == spec.TransferCopy {
			slack = stage.PartSlack
		}
		facts.Until = note.Deadline.Add(-slack - seconds(found.Spec.Job.GraceSeconds))
	}
	return facts
}
