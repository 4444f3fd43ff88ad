package evaluate

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
)

// Explain is [Result.Why], also of a result that has not got it yet.
func (r Result) Explain() string { return cmp.Or(r.Why, r.why()) }

// why is the line [Result.Why].
func (r Result) why() string {
	switch {
	case r.Failure != "":
		return text.Brief(strings.TrimPrefix(r.Failure, "not started: "))
	case r.ErrorReason == ErrorReasonRejected:
		return text.Brief(strings.TrimPrefix(r.ErrorSummary, refusedPrefix))
	case r.Run != nil && r.Run.Status != result.StatusExited:
		return text.Brief(r.Run.why())
	case r.IsError && r.ErrorTraceback != nil:
		return lastLine(*r.ErrorTraceback)
	case r.IsError && r.ErrorSummary != "":
		return lastLine(r.ErrorSummary)
	case r.IsError && r.Run != nil:
		return text.Brief(r.Run.Explanation)
	case r.IsError:
		return ""
	case r.Submission != nil && r.Submission.Failure != "":
		return text.Brief("submission not checked: " + r.Submission.Failure)
	case r.Submission != nil && len(r.Submission.Problems) > 0:
		return text.Brief("submission: " + r.Submission.Problems[0])
	case r.Grading != nil && r.Grading.Canceled:
		return "not graded: interrupted"
	case r.Grading != nil && r.Grading.Failure != "":
		return text.Brief("not graded: " + r.Grading.Failure)
	case r.DoubtfulScore():
		return scoreCut(*r.BestScore())
	case r.Overstated(r.MetricDirection):
		return overstated(r)
	case r.BestScore() == nil:
		return "it printed no score"
	}
	return ""
}

// DoubtfulScore reports whether the score to compare results by is a part of the number that the program
// printed; see [result.Result.ScoreCut].
func (r Result) DoubtfulScore() bool {
	if r.Grading != nil {
		return r.GradedScore != nil && r.Grading.ScoreCut
	}
	return r.Score != nil && r.ScoreCut
}

// scoreCut says that a score is cut.
func scoreCut(score float64) string {
	return fmt.Sprintf("the score %.6g is cut: a separator with a digit, or %%, follows it", score)
}

// why is the explanation; of a run that a stop rule ended only the facts behind the rule, because the
// status says the rest.
func (f RunFacts) why() string {
	_, facts, ok := strings.Cut(f.Explanation, "\": ")
	if f.Status == result.StatusStoppedByRule && ok {
		return facts
	}
	return f.Explanation
}

// lastLine is the last line of a text that is not blank, bounded.
func lastLine(all string) string {
	all = strings.TrimRight(all, " \t\r\n")
	line := all[strings.LastIndexByte(all, '\n')+1:]
	const most = 4 * text.Most // bytes; a line may have megabytes
	return text.Brief(text.Short(line, most))
}

// Overstated reports whether a script gave itself a score that is far better than its graded one:
// better by more than 10 % of the graded score and by more than 0.05. It is false without both
// scores, and for an unknown direction.
func (r Result) Overstated(direction MetricDirection) bool {
	if r.Score == nil || r.GradedScore == nil || !isFinite(*r.Score) || !isFinite(*r.GradedScore) {
		return false
	}
	const least, share = 0.05, 0.1
	margin := max(least, share*math.Abs(*r.GradedScore))
	return IsImprovement(*r.Score, *r.GradedScore, direction) && math.Abs(*r.Score-*r.GradedScore) > margin
}

// overstated says that a script is [Result.Overstated].
func overstated(r Result) string {
	return fmt.Sprintf("the self-reported score %.6g is far better than the graded %.6g", *r.Score, *r.GradedScore)
}
