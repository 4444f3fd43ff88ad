package evaluate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// HalvingReport is how [Harness.Halve] ended.
type HalvingReport struct {
	// BatchReport has of each entry the result of the last round that it reached. Why says in which round
	// it is out, or which round it waits for because the batch ended early.
	BatchReport
	// Rounds are those that began, and Cost is what they took.
	Rounds []Round
	Cost   HalvingCost
	// Waiting counts the entries that would be in a further round.
	Waiting int
}

// Halve is [Harness.Batch] in the rounds of a [Halving]: every script runs with the resource of the first
// round, those of [Halving.Survivors] with that of the second, and so on. The time limit is that of each
// run. The working directory of an entry has the outputs of its last round.
//
// Each result is a line of the results file, with its resource, so that an interrupted call goes on
// exactly where it was. Who goes on depends on nothing but the results. So a round begins only when each
// run of the one before has a conclusive result: a run that was disturbed twice ends the batch early,
// without an error, and the next call does it again.
//
// MaxFailures and Budget are for all rounds together. Scripts are not repaired: each round would have
// another repair.
func (h *Harness) Halve(ctx context.Context, entries []Entry, opts BatchOptions, halving Halving) (HalvingReport, error) {
	if err := h.checkHalving(opts, halving); err != nil {
		return HalvingReport{}, err
	}
	rounds := halving.Resources()
	opts.Resource = rounds[halving.next(-1, scriptsOf(entries))]
	opened, err := h.open(ctx, entries, opts)
	if err != nil {
		return HalvingReport{}, err
	}
	defer opened.close()
	ctx, done := opened.bounded(ctx)
	defer done()
	v := halvingRun{b: opened, halving: halving, entries: entries, rounds: rounds, reached: make([]int, len(entries))}
	v.report.Results = make([]*Result, len(entries))
	v.report.asked = func(i int) Result { return entries[i].asked(opts, opened.setup, opened.limits) }
	err = v.run(ctx, h)
	return v.end(), err
}

// checkHalving refuses what makes no sense in rounds.
func (h *Harness) checkHalving(opts BatchOptions, halving Halving) error {
	errs := []error{halving.Check(), opts.Task.MetricDirection.Check()}
	if opts.Debug != nil {
		errs = append(errs, &policy.FieldError{Field: "halving", Rule: "does not go together with repairs: each round would have another one"})
	}
	if _, given := h.opts.Request.Env[ResourceVariable]; given {
		errs = append(errs, &policy.FieldError{Field: "env", Value: ResourceVariable, Rule: "is decided by the halving", Hint: "leave this variable out"})
	}
	return errors.Join(errs...)
}

// halvingRun is a call of [Harness.Halve].
type halvingRun struct {
	b       *batch // of the current round
	halving Halving
	entries []Entry // of all rounds
	rounds  []int   // their resources
	current int     // the index of the round that runs, or that is next
	// alive are the entries that are not out, by their indices. reached has of each entry the number of its
	// last round with a result, or 0.
	alive   []int
	reached []int
	spent   []Result
	report  HalvingReport
}

// run runs the rounds. The error is the reason of an early end.
func (v *halvingRun) run(ctx context.Context, h *Harness) (err error) {
	for i := range v.entries {
		v.alive = append(v.alive, i)
	}
	most := v.b.MaxFailures
	for v.current = -1; len(v.alive) > 0; {
		v.current = v.halving.next(v.current, scriptsOf(v.taking()))
		if err != nil {
			return err
		}
		err = v.round(ctx, h)
		if failed, ok := errors.AsType[*FailuresError](err); ok {
			failed.Count = most
		}
		if !v.complete() || v.current == len(v.rounds)-1 {
			return err
		}
		err = errors.Join(err, v.choose())
	}
	return err
}

// taking are the entries that are not out.
func (v *halvingRun) taking() []Entry {
	entries := make([]Entry, len(v.alive))
	for at, i := range v.alive {
		entries[at] = v.entries[i]
	}
	return entries
}

// scriptsOf counts the scripts of entries.
func scriptsOf(entries []Entry) int {
	names := map[string]bool{}
	for _, e := range entries {
		names[e.Name] = true
	}
	return len(names)
}

// round runs a round, and takes over its results.
func (v *halvingRun) round(ctx context.Context, h *Harness) error {
	b := v.b
	b.entries, b.Resource = v.taking(), v.rounds[v.current]
	round := Round{Number: v.current + 1, Of: len(v.rounds), Resource: b.Resource, Scripts: scriptsOf(b.entries), Runs: len(b.entries)}
	v.report.Rounds = append(v.report.Rounds, round)
	if b.Round != nil {
		b.Round(round)
	}
	err := b.round(ctx, h)
	b.old.Torn = 0 // it is reported once
	failures := 0
	for _, at := range b.index { // what ran in this call
		if r := b.report.Results[at]; r != nil && r.countsAsFailure() {
			failures++
		}
	}
	b.MaxFailures = max(b.MaxFailures-failures, min(b.MaxFailures, 1)) // 0 would be no limit
	for at, i := range v.alive {
		if r := b.report.Results[at]; r != nil {
			v.report.Results[i], v.reached[i] = r, round.Number
			v.spent = append(v.spent, *r)
		}
	}
	v.report.Errors = append(v.report.Errors, b.report.Errors...)
	v.report.Errors = v.report.Errors[:min(len(v.report.Errors), maxErrors)]
	return err
}

// complete reports whether each entry of the current round has a conclusive result.
func (v *halvingRun) complete() bool {
	return !slices.ContainsFunc(v.alive, func(i int) bool { return v.reached[i] != v.current+1 || !v.report.Results[i].Conclusive() })
}

// choose leaves those alive that go on after the current round.
func (v *halvingRun) choose() error {
	var results []Result
	for _, i := range v.alive {
		results = append(results, *v.report.Results[i])
	}
	survivors, err := v.halving.Survivors(results, v.b.Task.MetricDirection)
	goesOn := map[string]bool{}
	for _, name := range survivors {
		goesOn[name] = true
	}
	v.alive = slices.DeleteFunc(v.alive, func(i int) bool { return !goesOn[v.entries[i].Name] })
	return err
}

// end completes the report.
func (v *halvingRun) end() HalvingReport {
	var last []Result
	alive := map[int]bool{}
	for _, i := range v.alive {
		alive[i] = true
	}
	for i, r := range v.report.Results {
		if r == nil {
			continue
		}
		last = append(last, *r)
		if n := v.reached[i]; !alive[i] {
			out := fmt.Sprintf("out in round %d of %d (resource %d)", n, len(v.rounds), v.rounds[n-1])
			if r.Why != "" {
				out += ": " + r.Why
			}
			r.Why = text.Brief(out)
		} else if n < v.current+1 {
			v.report.Waiting++
			r.Why = fmt.Sprintf("waits for round %d of %d (resource %d)", v.current+1, len(v.rounds), v.rounds[v.current])
		}
	}
	v.report.Cost = v.halving.Cost(v.spent, last)
	return v.report
}
