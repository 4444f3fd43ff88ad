package evaluate

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/harness/trial"
)

// MetricDirection says which scores are better (DM-006).
type MetricDirection string

const (
	Maximize MetricDirection = "maximize"
	Minimize MetricDirection = "minimize"
)

// UnmarshalText refuses a name that is not a direction.
func (d *MetricDirection) UnmarshalText(text []byte) error {
	return readName(d, "metric_direction", string(text), Maximize, Minimize)
}

// Check refuses everything but the two directions.
func (d MetricDirection) Check() error { return new(MetricDirection).UnmarshalText([]byte(d)) }

// IsImprovement reports whether a new score is strictly better (DM-028). A comparison with NaN is
// false, as in IEEE 754, and so is one with an unknown direction.
func IsImprovement(newScore, oldScore float64, direction MetricDirection) bool {
	return direction == Maximize && newScore > oldScore || direction == Minimize && newScore < oldScore
}

// IsImprovementOrEqual is [IsImprovement], or the same score (DM-029).
func IsImprovementOrEqual(newScore, oldScore float64, direction MetricDirection) bool {
	return IsImprovement(newScore, oldScore, direction) || newScore == oldScore && direction.Check() == nil
}

// IsBetterSolution reports whether a result is worth keeping (EX-023): it is not an error, and its
// score is finite and strictly better than the old one. The score is the one that the script
// printed; for a graded one use [IsImprovement] with [Result.BestScore].
func IsBetterSolution(r EvaluationResult, oldScore float64, direction MetricDirection) bool {
	return !r.IsError && r.Score != nil && isFinite(*r.Score) && IsImprovement(*r.Score, oldScore, direction)
}

func isFinite(score float64) bool { return !math.IsNaN(score) && !math.IsInf(score, 0) }

// Ranked is a solution with its result.
type Ranked struct {
	Solution mlestar.SolutionScript
	Result   Result
}

// RankSolutions orders solutions by their results (EX-027): valid scores first, best first; then
// those without a score; then errors, whatever score they printed. Equal ones stay in their
// order. Lists of unequal length and an unknown direction are errors. Of results with a
// [Result.Resource] those with more of it come first: their scripts reached a later round.
//
// The score is [Result.BestScore]: where any result was graded, only graded scores count, so that
// a script gains nothing by breaking its grading. A score that is NaN or infinite counts as none.
func RankSolutions(solutions []mlestar.SolutionScript, results []Result, direction MetricDirection) ([]Ranked, error) {
	if len(solutions) != len(results) {
		return nil, fmt.Errorf("ranking: %d solutions but %d evaluations", len(solutions), len(results))
	}
	order, err := rank(results, direction)
	ranked := make([]Ranked, 0, len(order))
	for _, at := range order {
		ranked = append(ranked, Ranked{solutions[at], results[at]})
	}
	return ranked, err
}

// RankResults is [RankSolutions] for results alone. Its argument does not change.
func RankResults(results []Result, direction MetricDirection) ([]Result, error) {
	order, err := rank(results, direction)
	ranked := make([]Result, 0, len(order))
	for _, at := range order {
		ranked = append(ranked, results[at])
	}
	return ranked, err
}

// rank returns the indices of the results, best first.
func rank(results []Result, direction MetricDirection) ([]int, error) {
	if err := direction.Check(); err != nil {
		return nil, fmt.Errorf("ranking: %w", err)
	}
	return order(standings(results), direction), nil
}

// Ranks returns the rank of each of the results that [RankResults] has ordered: the number of better
// ones, and one. Equal scores with the same resource have the same rank. A result without a score that
// counts has rank 0.
func Ranks(ranked []Result) []int { return ranks(standings(ranked)) }

// Counting returns the score of each result that ranks it among these results; nil for none.
func Counting(results []Result) []*float64 {
	scores := make([]*float64, len(results))
	for i, s := range standings(results) {
		scores[i] = s.score
	}
	return scores
}

// RankTrials is [RankResults] and [Ranks] for the results of one batch in a log of trials. Without a known
// direction, and for results of several tasks, all ranks are 0 and the order stays.
func RankTrials(results []trial.Result) (ranked []trial.Result, places []int) {
	all := make([]standing, len(results))
	var scale trial.Ranking // of the first result that has one
	comparable := true
	for i, r := range results {
		if r.Ranking == nil {
			continue
		}
		all[i] = standing{r.Score, r.Ranking.Valid, r.Ranking.Resource}.counted()
		if scale.Direction == "" {
			scale = *r.Ranking
		}
		comparable = comparable && r.Ranking.Task == scale.Task && r.Ranking.Direction == scale.Direction
	}
	direction := MetricDirection(scale.Direction)
	if !comparable || direction.Check() != nil {
		return slices.Clone(results), make([]int, len(results))
	}
	ordered := make([]standing, 0, len(all))
	for _, at := range order(all, direction) {
		ranked, ordered = append(ranked, results[at]), append(ordered, all[at])
	}
	return ranked, ranks(ordered)
}

// standing is what ranks a result.
type standing struct {
	score    *float64 // nil if none counts
	valid    bool
	resource int
}

// counted returns the standing without a score that does not count.
func (s standing) counted() standing {
	if !s.valid || s.score != nil && !isFinite(*s.score) {
		s.score = nil
	}
	return s
}

// tier is 0 for a score, 1 without one and 2 after an error.
func (s standing) tier() int {
	switch {
	case s.score != nil:
		return 0
	case s.valid:
		return 1
	}
	return 2
}

func standings(results []Result) []standing {
	graded := anyGraded(results)
	all := make([]standing, len(results))
	for i, r := range results {
		all[i] = standing{r.counting(graded), r.Valid(), r.Resource}
	}
	return all
}

// order returns the indices of the standings, best first.
func order(all []standing, direction MetricDirection) []int {
	indices := make([]int, len(all))
	for i := range all {
		indices[i] = i
	}
	slices.SortStableFunc(indices, func(i, j int) int {
		a, b := all[i], all[j]
		if before := cmp.Or(a.tier()-b.tier(), b.resource-a.resource); before != 0 || a.score == nil {
			return before
		}
		return direction.compare(*a.score, *b.score)
	})
	return indices
}

// ranks returns the ranks of ordered standings.
func ranks(ordered []standing) []int {
	places := make([]int, len(ordered))
	for i, s := range ordered {
		if s.score == nil {
			continue
		}
		places[i] = i + 1
		if i > 0 && ordered[i-1].resource == s.resource && *ordered[i-1].score == *s.score {
			places[i] = places[i-1]
		}
	}
	return places
}

// compare orders numbers, the better one first.
func (d MetricDirection) compare(a, b float64) int {
	if d == Maximize {
		a, b = b, a
	}
	return cmp.Compare(a, b)
}

// anyGraded reports whether only graded scores count in a ranking.
func anyGraded(results []Result) bool {
	return slices.ContainsFunc(results, func(r Result) bool { return r.Grading != nil })
}

// counting is the score that ranks a result, among results of which some are graded or none is; nil for
// one without.
func (r Result) counting(graded bool) *float64 {
	score := r.BestScore()
	if graded {
		score = r.GradedScore
	}
	return standing{score: score, valid: r.Valid()}.counted().score
}

// Statistics sum up the scores of repeated runs.
type Statistics struct {
	// Count is the number of scores; runs without a finite one do not count.
	Count int `json:"count"`
	// Mean is their arithmetic mean; nil without a score.
	Mean *float64 `json:"mean"`
	// Deviation is their sample standard deviation, with Count-1 in the denominator; nil below two
	// scores, and when it or a bound of the interval is not finite.
	Deviation *float64 `json:"deviation"`
	// Low and High are the 95 % confidence interval of the mean after Student's t distribution; nil
	// when Deviation is.
	Low  *float64 `json:"low"`
	High *float64 `json:"high"`
}

// Summarize computes the statistics of scores. Values that are NaN or infinite are left out.
func Summarize(scores []float64) Statistics {
	finite := slices.DeleteFunc(slices.Clone(scores), func(score float64) bool { return !isFinite(score) })
	s := Statistics{Count: len(finite)}
	if s.Count == 0 {
		return s
	}
	// Scaled to at most 1, no step leaves the range of finite numbers.
	n, scale := float64(s.Count), 0.0
	for _, score := range finite {
		scale = max(scale, math.Abs(score))
	}
	if scale == 0 {
		scale = 1
	}
	mean := 0.0
	for i, score := range finite {
		mean += (score/scale - mean) / float64(i+1)
	}
	// Rounding may move the mean past the smallest or the largest score.
	s.Mean = new(min(max(mean*scale, slices.Min(finite)), slices.Max(finite)))
	if s.Count == 1 {
		return s
	}
	sum := 0.0
	for _, score := range finite {
		part := score/scale - mean
		sum += part * part
	}
	deviation := scale * math.Sqrt(sum/(n-1))
	half := studentT975(s.Count-1) * deviation / math.Sqrt(n)
	low, high := *s.Mean-half, *s.Mean+half
	if isFinite(deviation) && isFinite(low) && isFinite(high) {
		s.Deviation, s.Low, s.High = &deviation, &low, &high
	}
	return s
}

// StatisticsOf are the statistics of [Result.BestScore] of the valid results.
func StatisticsOf(results []Result) Statistics {
	var scores []float64
	for _, r := range results {
		if score := r.BestScore(); score != nil && r.Valid() {
			scores = append(scores, *score)
		}
	}
	return Summarize(scores)
}

// studentT975 is the t below which 97.5 % of Student's t distribution with df degrees of freedom
// lie. It is from the NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2, and for many
// degrees the series of Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5.
func studentT975(df int) float64 {
	few := []float64{12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139}
	if df <= len(few) {
		return few[df-1]
	}
	const z = 1.959964 // of the normal distribution
	const z3 = z * z * z
	const z5 = z3 * z * z
	const z7 = z5 * z * z
	n := 1 / float64(df)
	return z + n*((z3+z)/4+n*((5*z5+16*z3+3*z)/96+n*((3*z7+19*z5+17*z3-15*z)/384+
		n*(79*z7*z*z+776*z7+1482*z5-1920*z3-945*z)/92160)))
}
