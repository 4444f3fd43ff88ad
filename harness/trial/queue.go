package trial

import (
	"context"
	"iter"
	"time"
)

// A Queue runs jobs. The zero value runs one after the other, without a log.
type Queue struct {
	// Parallel is how many jobs run at the same time; 0 is 1.
	Parallel int
	Budget   Budget
	Retry    Retry
	// Log, if set, keeps every result, and every event but those of output.
	Log *Log
	// Known, if set, returns the earlier result of a job, which then does not run.
	// [Log.Conclusive] is one.
	Known func(Job) (Result, bool)
	// Emit, if set, gets every event, one call at a time. EventEnded comes after the result is in the log.
	// An error cancels what runs, and no more jobs start.
	Emit func(Event) error
}

// Budget bounds all jobs of a queue together. Zero fields do not bound.
type Budget struct {
	Wall       time.Duration
	Runs       int
	GPUSeconds float64
	// Failures ends the queue after so many failed jobs; FailuresInARow after so many
	// without one that passed between them. Known results do not count.
	Failures, FailuresInARow int
}

// Retry says which results are tried again, and how often.
type Retry struct {
	// Max is how often a job is tried again.
	Max int
	// If decides; nil is every inconclusive result that was not canceled by ctx.
	If func(Result) bool
	// Wait is the pause before a try: doubled each time, up to a minute.
	Wait time.Duration
}

// Summary counts the jobs of a queue by their verdicts. NotStarted is -1 if jobs were left that nobody counted.
type Summary struct {
	Jobs, Known                           int
	Passed, Failed, Refused, Inconclusive int
	Usage                                 Usage
}

// A BudgetError says which budget ended a queue.
type BudgetError struct {
	Budget string // "wall time", "runs", "GPU seconds", "failures"
	Limit  string
}

func (e *BudgetError) Error() string { return "the budget is used up: " + e.Budget + " " + e.Limit }

// Run runs jobs in their order and returns when all that started have ended. The error is nil
// if all ran; a [*BudgetError]; an error of Emit or of the harness; or the cause of ctx.
// Memory does not grow with the number of jobs. What runs when the wall time is used up is
// canceled; with every other budget it goes on to its end.
func (q Queue) Run(ctx context.Context, h Harness, jobs iter.Seq[Job]) (Summary, error) {
	panic("not yet")
}
