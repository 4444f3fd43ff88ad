package sweep

import (
	"fmt"
)

// A FailuresError is a sweep of which runs failed.
type FailuresError struct {
	// Failed of All runs failed; Name is the first of them, in the order of the plan.
	Failed, All   int
	Name, Failure string
	// Stopped says that nothing more was begun for that.
	Stopped bool
}

func (e *FailuresError) Error() string {
	text := "run " + e.Name + " failed: " + e.Failure
	if e.Failed > 1 {
		text = fmt.Sprintf("%d of %d runs failed; the first is %s: %s", e.Failed, e.All, e.Name, e.Failure)
	}
	if e.Stopped {
		text += "; nothing more was started"
	}
	return text
}

// Hint says how to go on.
func (e *FailuresError) Hint() string {
	logs := RunsName + "/" + e.Name + "/" + StderrName + " has what it printed; "
	if e.Stopped {
		return logs + "go on with --resume once it is mended; --keep-going runs the others all the same"
	}
	return logs + "--resume runs again what failed"
}

// failures tells which runs failed; nil for none.
func (s *sweep) failures() *FailuresError {
	var failures *FailuresError
	for _, end := range s.report.Runs {
		if end.Status != StatusFailed {
			continue
		}
		if failures == nil {
			failures = &FailuresError{All: s.plan.Len(), Name: end.Name, Failure: end.Failure}
		}
		failures.Failed++
	}
	return failures
}
