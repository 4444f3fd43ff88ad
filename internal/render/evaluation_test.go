package render

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/result"
)

// evaluated is an evaluation of a run that exited with 0.
func evaluated(name string, change func(e *evaluate.Result)) evaluate.Result {
	e := evaluate.Result{Name: name, Run: &evaluate.RunFacts{ID: "run-" + name, Status: result.StatusExited, Fault: result.FaultNone},
		EvaluationResult: evaluate.EvaluationResult{DurationSeconds: 1}}
	if change != nil {
		change(&e)
	}
	return e
}

func TestStatisticsText(t *testing.T) {
	two := evaluate.Summarize([]float64{1, 3})
	require.Equal(t, "2 scores · mean 2 · deviation 1.41 · 95 % interval -10.7062 to 14.7062\n", Statistics(two, 2))
	require.Equal(t, "2 of 3 runs have a score · mean 2 · deviation 1.41 · 95 % interval -10.7062 to 14.7062\n", Statistics(two, 3))
	require.Equal(t, "1 of 2 runs has a score · 1\n", Statistics(evaluate.Summarize([]float64{1}), 2))
	require.Equal(t, "none of 2 runs has a score\n", Statistics(evaluate.Summarize(nil), 2))
	require.Equal(t, "2 scores · mean 2\n", Statistics(evaluate.Statistics{Count: 2, Mean: new(2.0)}, 2), "not finite")
}

func TestResumedText(t *testing.T) {
	require.Empty(t, Resumption(evaluate.Resumption{}, 5, "r"))
	require.Equal(t, "r has 3 of 5 results already", Resumption(evaluate.Resumption{Done: 3}, 5, "r"))
	require.Equal(t, "r has 0 of 6 results already; run again: 1 of changed scripts, 2 evaluated in another way before, 3 without a conclusive result",
		Resumption(evaluate.Resumption{Changed: 1, Setup: 2, Inconclusive: 3}, 6, "r"))
}

func TestTitles(t *testing.T) {
	task := evaluate.TaskDescription{CompetitionID: "c", EvaluationMetric: "accuracy", MetricDirection: evaluate.Maximize}
	require.Equal(t, "c · accuracy, maximize", TaskTitle(task))
	task.BaselineValue = new(0.6253)
	require.Equal(t, "c · accuracy, maximize · baseline 0.6253", TaskTitle(task))
	of := func(ids ...string) (all []evaluate.Result) {
		for _, id := range ids {
			all = append(all, evaluate.Result{CompetitionID: id})
		}
		return all
	}
	require.Equal(t, "minimize", ResultsTitle(of(""), evaluate.Minimize))
	require.Equal(t, "c · minimize", ResultsTitle(of("c", "c"), evaluate.Minimize))
	require.Equal(t, "2 competitions · minimize", ResultsTitle(of("c", "d"), evaluate.Minimize))
}

func TestReplacedText(t *testing.T) {
	require.Empty(t, Replaced(evaluate.Replaced{}))
	require.Equal(t, "1 evaluation is replaced by one that counts: evaluated in another way", Replaced(evaluate.Replaced{Setup: 1}))
	require.Equal(t, "4 evaluations are replaced by others that count: 1 of another version of the script, 3 of the same script",
		Replaced(evaluate.Replaced{Edited: 1, Repeated: 3}))
}

func TestEvaluationStatus(t *testing.T) {
	status := func(change func(e *evaluate.Result)) string { return evaluationStatus(evaluated("x", change)) }
	require.Equal(t, "exited 0", status(nil))
	require.Equal(t, "timed out", status(func(e *evaluate.Result) { e.Run.Status = result.StatusTimedOut }))
	require.Equal(t, "exited 0 (repaired)", status(func(e *evaluate.Result) { e.Repairs = 1 }))
	require.Equal(t, "exited 0 (cached, repaired 2 times)", status(func(e *evaluate.Result) { e.Repairs, e.Cached = 2, true }))
	require.Equal(t, "canceled before the end of retry 1 of 1", status(func(e *evaluate.Result) { e.Failure = "canceled before the end of retry 1 of 1" }))
	require.Equal(t, "failed: no", status(func(e *evaluate.Result) { e.Failure = "no" }))
	require.Equal(t, "refused", status(func(e *evaluate.Result) { e.ErrorReason = evaluate.ErrorReasonRejected }))
}
