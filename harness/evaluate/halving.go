package evaluate

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/policy"
)

// ResourceVariable is the environment variable from which a script reads its resource: epochs, steps,
// trees, whatever it takes more of for a better score. See [BatchOptions.Resource].
const ResourceVariable = "EVALBOX_RESOURCE"

const (
	// maxResource bounds a resource, so that no sum over a batch overflows.
	maxResource = 1_000_000_000
	// DefaultEta is the factor of a [Halving] that names none. Li et al., "Hyperband", JMLR 18 (2018),
	// recommend 3 or 4.
	DefaultEta = 3
)

// Halving is successive halving after Jamieson and Talwalkar, "Non-stochastic Best Arm Identification and
// Hyperparameter Optimization", AISTATS 2016, algorithm 1, with any factor in the place of 2. All scripts
// run with a small resource. The best of them, one of Eta, run again with Eta times the resource, and so
// on until Max. A run begins from nothing: it does not go on from the one of the round before.
type Halving struct {
	// Min is the least resource of the first round, Max that of the last.
	Min, Max int
	// Eta is the factor between rounds, and the share of the scripts that goes on: one of Eta.
	Eta int
}

// ParseHalving reads MIN:MAX or MIN:MAX:ETA, such as 1:27:3.
func ParseHalving(text string) (Halving, error) {
	parts := strings.Split(text, ":")
	numbers := []int{0, 0, DefaultEta}
	wrong := len(parts) < 2 || len(parts) > len(numbers)
	for i, part := range parts {
		if !wrong {
			n, err := strconv.Atoi(part)
			numbers[i], wrong = n, err != nil
		}
	}
	if wrong {
		return Halving{}, &policy.FieldError{Field: "halving", Value: shown(text), Rule: "must be MIN:MAX or MIN:MAX:ETA in whole numbers, as in 1:27:3"}
	}
	v := Halving{Min: numbers[0], Max: numbers[1], Eta: numbers[2]}
	return v, v.Check()
}

// String is the text that [ParseHalving] reads.
func (v Halving) String() string { return fmt.Sprintf("%d:%d:%d", v.Min, v.Max, v.Eta) }

// Check refuses a halving with a resource or a factor that makes no sense, and one of a single round.
func (v Halving) Check() error {
	var rule string
	switch {
	case v.Min < 1:
		rule = "the least resource must be at least 1"
	case v.Max > maxResource:
		rule = fmt.Sprintf("the full resource must be at most %d", maxResource)
	case v.Max <= v.Min:
		rule = "the full resource must be more than the least one"
	case v.Eta < 2:
		rule = "the factor must be at least 2"
	case v.Eta > v.Max/v.Min:
		rule = fmt.Sprintf("the factor leaves one round: from %d to %d it must be at most %d", v.Min, v.Max, v.Max/v.Min)
	default:
		return nil
	}
	return &policy.FieldError{Field: "halving", Value: v.String(), Rule: rule}
}

// Resources are those of the rounds: the last is Max, and each other the next one divided by Eta, rounded
// down, as long as it is at least Min.
func (v Halving) Resources() []int {
	var resources []int
	for divisor := 1; v.Max/divisor >= v.Min; divisor *= v.Eta {
		resources = append(resources, v.Max/divisor)
	}
	slices.Reverse(resources)
	return resources
}

// A Round is one round of a [Halving].
type Round struct {
	// Number counts the rounds from 1 to Of.
	Number int `json:"number"`
	Of     int `json:"of"`
	// Resource is that of each run.
	Resource int `json:"resource"`
	// Scripts take part, with Runs runs: one for each of their seeds.
	Scripts int `json:"scripts"`
	Runs    int `json:"runs"`
}

// Plan returns the rounds of a batch of scripts that all get a score, each with the same number of seeds,
// or with 1 for none. A round that decides nothing is left out: a single script has Max at once.
func (v Halving) Plan(scripts, seeds int) []Round {
	var rounds []Round
	resources := v.Resources()
	for i := v.next(-1, scripts); i < len(resources) && scripts > 0; i = v.next(i, scripts) {
		rounds = append(rounds, Round{Number: i + 1, Of: len(resources), Resource: resources[i], Scripts: scripts, Runs: scripts * seeds})
		scripts = v.kept(scripts)
	}
	return rounds
}

// next is the index of the round after another for a number of scripts.
func (v Halving) next(index, scripts int) int {
	if last := len(v.Resources()) - 1; scripts == 1 && index < last {
		return last
	}
	return index + 1
}

// kept is the number of scripts of a round that go on, if so many have a score.
func (v Halving) kept(scripts int) int { return max(scripts/v.Eta, 1) }

// Survivors returns the names of the scripts that go on after a round, best first: of n scripts n/Eta,
// rounded down, and at least one. results are all of the round. A script without a score that counts is
// out, so that there may be fewer, or none.
//
// Several results of one name are of one script with several seeds. Its score is their mean. A script of
// which a seed has no score comes after those whose seeds all have one. Which scores count, and which are
// better, is as in [RankResults]; of equal ones the script that comes first in results is better.
func (v Halving) Survivors(results []Result, direction MetricDirection) ([]string, error) {
	if err := direction.Check(); err != nil {
		return nil, fmt.Errorf("halving: %w", err)
	}
	type arm struct {
		name    string
		scores  []float64
		missing int
	}
	var arms []*arm
	named := map[string]*arm{}
	graded := anyGraded(results)
	for _, r := range results {
		a := named[r.Name]
		if a == nil {
			a = &arm{name: r.Name}
			named[r.Name], arms = a, append(arms, a)
		}
		if score := r.counting(graded); score != nil {
			a.scores = append(a.scores, *score)
		} else {
			a.missing++
		}
	}
	keep := v.kept(len(arms))
	arms = slices.DeleteFunc(arms, func(a *arm) bool { return len(a.scores) == 0 })
	slices.SortStableFunc(arms, func(a, b *arm) int {
		if a.missing != b.missing {
			return a.missing - b.missing
		}
		return direction.compare(*Summarize(a.scores).Mean, *Summarize(b.scores).Mean)
	})
	var survivors []string
	for _, a := range arms[:min(keep, len(arms))] {
		survivors = append(survivors, a.name)
	}
	return survivors, nil
}

// HalvingCost is what a halving took, beside what all runs with the full resource would have taken.
type HalvingCost struct {
	// Spent is the sum of the resources of all runs, and Full the full resource for each script and seed
	// that ran.
	Spent, Full int
	// Seconds and GPUSeconds are those of all runs; a GPU second is one of one GPU.
	Seconds, GPUSeconds float64
	// FullSeconds and FullGPUSeconds are estimated: a script that failed takes what its last run took, and
	// any other as long as those with the full resource did on average. They are 0 without such a run.
	FullSeconds, FullGPUSeconds float64
}

// Saved is the share of the resource that was not spent, from 0 to 1. It is negative if a halving took
// more, as that of a few scripts may.
func (c HalvingCost) Saved() float64 {
	if c.Full == 0 {
		return 0
	}
	return 1 - float64(c.Spent)/float64(c.Full)
}

// Cost returns what a halving took. all are the results of all rounds, and last has of each script and
// seed that of the last round that it reached; results without a run cost nothing.
func (v Halving) Cost(all, last []Result) HalvingCost {
	var c HalvingCost
	seconds := func(r Result) (float64, float64) {
		return r.DurationSeconds, r.DurationSeconds * float64(len(r.Run.GPUs))
	}
	for _, r := range all {
		if r.Run != nil {
			s, gpu := seconds(r)
			c.Spent, c.Seconds, c.GPUSeconds = c.Spent+r.Resource, c.Seconds+s, c.GPUSeconds+gpu
		}
	}
	var full, failed, fullGPU, failedGPU float64
	finished, others := 0, 0
	for _, r := range last {
		if r.Run == nil {
			continue
		}
		c.Full += v.Max
		s, gpu := seconds(r)
		switch {
		case !r.Valid():
			failed, failedGPU = failed+s, failedGPU+gpu
		case r.Resource == v.Max:
			full, fullGPU, finished = full+s, fullGPU+gpu, finished+1
		default:
			others++
		}
	}
	if finished > 0 {
		times := 1 + float64(others)/float64(finished)
		c.FullSeconds, c.FullGPUSeconds = failed+full*times, failedGPU+fullGPU*times
	}
	return c
}
