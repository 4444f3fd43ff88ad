package evaluate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/evalbox/evalbox/internal/schedule"
	"github.com/evalbox/evalbox/policy"
)

// BatchOptions steer [Evaluator.EvaluateBatch]. The zero value is the sequential
// batch of EX-026.
type BatchOptions struct {
	// Parallel is how many scripts run at once; 0 and 1 are one after the other.
	// More than one needs a Workspace.
	Parallel int
	// Workspace is a folder in which every script gets a working folder of its
	// own, named like the script. Empty is the working folder of the task, where
	// each script's outputs take the place of the one's before.
	Workspace string
	// Names are the names of the scripts, all different; see [policy.CheckName].
	// Nil is solution-1 and so on.
	Names []string
	// Timeout, unless 0, is the time limit of each run instead of the config's.
	Timeout time.Duration
	// Brief keeps in the items what [Evaluation.Bounded] does, so that thousands of
	// talkative scripts fit into memory. Done gets all of it.
	Brief bool
	// Done, if set, is called as each evaluation ends, in the order of their ends
	// and one call at a time. An error ends the batch: what runs is canceled, and
	// nothing more is started.
	Done func(index int, item BatchItem) error
}

// BatchItem is what became of one script of a batch.
type BatchItem struct {
	Name       string
	Evaluation Evaluation
	// Err is that of [Evaluator.Evaluate]; for a script that was never begun, the
	// reason why the batch ended.
	Err error
}

// EvaluateBatch evaluates solutions and returns what became of each, in the order of
// its argument (EX-026). A script that is refused, or that we fail to run, does not
// end the batch: the item says so. The error is for a batch that makes no sense and
// for one that ended early, because of ctx or of Done; the items are complete then,
// too.
func (e *Evaluator) EvaluateBatch(ctx context.Context, solutions []SolutionScript, task TaskDescription, config PipelineConfig,
	opts BatchOptions,
) ([]BatchItem, error) {
	timeout, err := effectiveTimeout(config, opts.Timeout)
	if err != nil {
		return nil, err
	}
	names, err := opts.names(len(solutions))
	if err != nil {
		return nil, err
	}
	items := make([]BatchItem, len(solutions))
	for i := range items {
		items[i].Name = names[i]
	}
	begun := make([]bool, len(solutions))
	schedule := Schedule{Parallel: opts.Parallel, Done: opts.Done, Ended: func(i int, item BatchItem) {
		items[i], begun[i] = item, true
		if opts.Brief {
			items[i].Evaluation = item.Evaluation.Bounded()
		}
	}}
	err = schedule.Run(ctx, len(solutions), func(ctx context.Context, i int) BatchItem {
		job := Job{Solution: solutions[i], Task: task, Timeout: timeout, Name: names[i]}
		if opts.Workspace != "" {
			job.Workspace = filepath.Join(opts.Workspace, names[i])
		}
		item := BatchItem{Name: names[i]}
		item.Evaluation, item.Err = e.Evaluate(ctx, job)
		return item
	})
	for i := range items {
		if !begun[i] {
			items[i].Err = err
		}
	}
	return items, err
}

// names checks the options and completes the names.
func (o BatchOptions) names(n int) ([]string, error) {
	if o.Parallel < 0 {
		return nil, &policy.FieldError{Field: "parallel", Value: strconv.Itoa(o.Parallel), Rule: "must not be negative"}
	}
	if o.Parallel > 1 && o.Workspace == "" {
		return nil, &policy.FieldError{Field: "workspace", Rule: "scripts that run at once need one, so that each has its own ./final"}
	}
	if o.Names == nil {
		names := make([]string, n)
		for i := range names {
			names[i] = "solution-" + strconv.Itoa(i+1)
		}
		return names, nil
	}
	if len(o.Names) != n {
		return nil, fmt.Errorf("batch: %d solutions but %d names", n, len(o.Names))
	}
	var errs []error
	first := map[string]int{}
	for i, name := range o.Names {
		if err := policy.CheckName("name", name); err != nil {
			errs = append(errs, err)
		}
		if at, twice := first[name]; twice {
			errs = append(errs, &policy.FieldError{Field: "name", Value: shown(name),
				Rule: fmt.Sprintf("is that of solutions %d and %d; names must differ", at+1, i+1)})
			continue
		}
		first[name] = i
	}
	return o.Names, errors.Join(errs...)
}

// Schedule runs many evaluations, several at a time if Parallel is above 1. The zero value
// runs one after the other.
type Schedule = schedule.Schedule[BatchItem]

// InOrder returns an Admit of [sandbox.Hooks] that admits the programs of a [Schedule]
// in the order of its indices, although their containers are made at the same time. It is
// not for runs that hold a resource while they wait that another run needs first, such as
// GPUs.
func InOrder(admit func(ctx context.Context) (release func(), err error)) func(ctx context.Context) (release func(), err error) {
	return schedule.InOrder(admit)
}
