package evaluate

import (
	"fmt"
	"slices"
)

// Ranked is a solution with what it came to.
type Ranked struct {
	Solution   SolutionScript
	Evaluation Evaluation
}

// RankSolutions orders solutions by their evaluations (EX-027): those with a valid
// score first, best first; then those without a score; then those that ended in an
// error, whatever score they printed. Solutions that compare equal stay in the order
// in which they came. Lists of unequal length and an unknown direction are errors.
//
// The score is [Evaluation.BestScore]: where any of the evaluations was graded, only
// graded scores count, so that a script gains nothing by breaking its grading. A
// score that is NaN or infinite counts as none: it never ranks above a real one.
func RankSolutions(solutions []SolutionScript, evaluations []Evaluation, direction MetricDirection) ([]Ranked, error) {
	if len(solutions) != len(evaluations) {
		return nil, fmt.Errorf("ranking: %d solutions but %d evaluations", len(solutions), len(evaluations))
	}
	order, err := rank(evaluations, direction)
	if err != nil {
		return nil, err
	}
	ranked := make([]Ranked, len(order))
	for i, at := range order {
		ranked[i] = Ranked{solutions[at], evaluations[at]}
	}
	return ranked, nil
}

// RankEvaluations is [RankSolutions] for evaluations alone. Its argument does not
// change.
func RankEvaluations(evaluations []Evaluation, direction MetricDirection) ([]Evaluation, error) {
	order, err := rank(evaluations, direction)
	if err != nil {
		return nil, err
	}
	ranked := make([]Evaluation, len(order))
	for i, at := range order {
		ranked[i] = evaluations[at]
	}
	return ranked, nil
}

// Tiers of a ranking.
const (
	tierScored = iota
	tierUnscored
	tierError
)

// rank returns the indices of the evaluations, best first.
func rank(evaluations []Evaluation, direction MetricDirection) ([]int, error) {
	if err := direction.Check(); err != nil {
		return nil, fmt.Errorf("ranking: %w", err)
	}
	graded := slices.ContainsFunc(evaluations, func(e Evaluation) bool { return e.Grading != nil })
	type place struct {
		index, tier int
		score       float64
	}
	places := make([]place, len(evaluations))
	for i, e := range evaluations {
		score := e.BestScore()
		if graded {
			score = e.GradedScore
		}
		p := place{index: i, tier: tierUnscored}
		switch {
		case !e.Valid():
			p.tier = tierError
		case score != nil && isFinite(*score):
			p.tier, p.score = tierScored, *score
		}
		places[i] = p
	}
	slices.SortStableFunc(places, func(a, b place) int {
		switch {
		case a.tier != b.tier:
			return a.tier - b.tier
		case IsImprovement(a.score, b.score, direction):
			return -1
		case IsImprovement(b.score, a.score, direction):
			return 1
		}
		return 0
	})
	order := make([]int, len(places))
	for i, p := range places {
		order[i] = p.index
	}
	return order, nil
}
