package evaluate

import (
	"context"
	"fmt"

	"github.com/evalbox/evalbox/policy"
)

// maxRepeats bounds the runs of one script.
const maxRepeats = 10_000

// Repetition is one script, run several times.
type Repetition struct {
	// Evaluations are in the order of the runs.
	Evaluations []Evaluation `json:"evaluations"`
	// Workspaces are their working folders.
	Workspaces []string `json:"workspaces"`
	// Statistics are those of [Evaluation.BestScore] of the valid ones.
	Statistics Statistics `json:"statistics"`
}

// Repeat evaluates one job runs times, one after the other. seeds is nil, and then
// every run is alike, or has one seed for each run, which reaches the script as SEED
// and as PYTHONHASHSEED. Runs of the same seed have different [Job.Repetition], so that
// a cache answers none of them with another. If the job has a Workspace, and there is more
// than one run, each gets a folder beside it: NAME-seed-S, or NAME-run-N, from 1, for runs
// without a seed. After an error no further run is made; what was done until then comes
// with it.
func (e *Evaluator) Repeat(ctx context.Context, job Job, runs int, seeds []uint32) (Repetition, error) {
	if runs < 1 || runs > maxRepeats {
		return Repetition{}, &policy.FieldError{Field: "repeat", Value: fmt.Sprint(runs), Rule: fmt.Sprintf("must be between 1 and %d", maxRepeats)}
	}
	if seeds != nil && len(seeds) != runs {
		return Repetition{}, &policy.FieldError{Field: "seeds", Rule: fmt.Sprintf("there are %d for %d runs", len(seeds), runs)}
	}
	var r Repetition
	var scores []float64
	var err error
	workspace := job.Workspace
	times := map[uint32]int{}
	for i := range runs {
		job.Repetition = i
		if seeds != nil {
			job.Seed = &seeds[i] //nolint:gosec // one for each run: checked above
			job.Repetition = times[*job.Seed]
			times[*job.Seed]++
		}
		if workspace != "" && runs > 1 {
			job.Workspace = workspace + repetitionSuffix(job.Seed, job.Repetition)
		}
		r.Workspaces = append(r.Workspaces, job.Workspace)
		var evaluation Evaluation
		evaluation, err = e.Evaluate(ctx, job)
		r.Evaluations = append(r.Evaluations, evaluation)
		if score := evaluation.BestScore(); score != nil && evaluation.Valid() {
			scores = append(scores, *score)
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			break
		}
	}
	r.Statistics = Summarize(scores)
	return r, err
}

// repetitionSuffix tells the working folders of repeated runs apart.
func repetitionSuffix(seed *uint32, repetition int) string {
	run := fmt.Sprintf("-run-%d", repetition+1)
	switch {
	case seed == nil:
		return run
	case repetition == 0:
		return fmt.Sprintf("-seed-%d", *seed)
	}
	return fmt.Sprintf("-seed-%d%s", *seed, run)
}
