package evaluate

import (
	"context"

	"github.com/evalbox/evalbox/internal/schedule"
)

// Schedule steers the Run of many evaluations, several at once if Parallel says so. The
// zero value does one after the other.
type Schedule = schedule.Schedule[BatchItem]

// InOrder returns an Admit of [sandbox.Hooks] that admits the programs of a
// [Schedule] in the order of its indices: each one only when all before it were
// admitted once, or have ended. So programs start in their order although their
// containers are made at the same time. Whoever is admitted again, such as a grader, does
// not wait for others, and neither does a run outside of a schedule.
//
// It is not for runs that hold something while they wait for admission that another one
// needs first, such as GPUs.
func InOrder(admit func(ctx context.Context) (release func(), err error)) func(ctx context.Context) (release func(), err error) {
	return schedule.InOrder(admit)
}
