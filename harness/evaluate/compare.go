package evaluate

import (
	"math"

	"github.com/evalbox/evalbox/result"
)

// MetricDirection says which scores are better (DM-006).
type MetricDirection string

// The two directions.
const (
	Maximize MetricDirection = "maximize"
	Minimize MetricDirection = "minimize"
)

// MetricDirections returns both directions.
func MetricDirections() []MetricDirection { return []MetricDirection{Maximize, Minimize} }

// UnmarshalText refuses a name that is no direction.
func (d *MetricDirection) UnmarshalText(text []byte) error {
	return readName(d, "metric_direction", MetricDirections(), text)
}

// Check refuses anything but the two directions.
func (d MetricDirection) Check() error {
	return new(MetricDirection).UnmarshalText([]byte(d))
}

// IsImprovement reports whether a new score is strictly better (DM-028). Any
// comparison with NaN is false, as in IEEE 754. A direction that is neither of the
// two is never better.
func IsImprovement(newScore, oldScore float64, direction MetricDirection) bool {
	switch direction {
	case Maximize:
		return newScore > oldScore
	case Minimize:
		return newScore < oldScore
	}
	return false
}

// IsImprovementOrEqual is [IsImprovement], or the same score (DM-029).
func IsImprovementOrEqual(newScore, oldScore float64, direction MetricDirection) bool {
	switch direction {
	case Maximize:
		return newScore >= oldScore
	case Minimize:
		return newScore <= oldScore
	}
	return false
}

// IsBetterSolution reports whether a result is worth keeping (EX-023): it is no
// error, it has a score, and that is strictly better than the old one. A score that is NaN
// or infinite is never better. The score is the one that the script printed: for a graded
// one use [IsImprovement] with [Evaluation.BestScore].
func IsBetterSolution(r result.EvaluationResult, oldScore float64, direction MetricDirection) bool {
	return !r.IsError && r.Score != nil && isFinite(*r.Score) && IsImprovement(*r.Score, oldScore, direction)
}

func isFinite(score float64) bool { return !math.IsNaN(score) && !math.IsInf(score, 0) }

// BeatsBaseline reports whether a score is strictly better than the baseline of a
// task. Without a baseline every score is.
func BeatsBaseline(score float64, baseline *float64, direction MetricDirection) bool {
	return baseline == nil || IsImprovement(score, *baseline, direction)
}
