package render

import (
	"strings"
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

// TestDigitsOfScores: a line of a batch has the digits that readers compare, the evaluation of one script all.
func TestDigitsOfScores(t *testing.T) {
	e := evaluated("a", func(e *evaluate.Result) {
		e.Score, e.ScoreUnfinished, e.GradedScore = new(0.1234567890123), true, new(0.9876543210987)
		e.Grading = &evaluate.Grading{Score: e.GradedScore, Ended: true}
	})
	require.Contains(t, EvaluationEnd(e), "graded 0.987654 · unfinished score 0.123457 · ")
	require.Contains(t, Evaluation(e, "work", true), "graded 0.9876543210987 · unfinished score 0.1234567890123 (self-reported)")
}

func TestResumedText(t *testing.T) {
	require.Empty(t, Resumption(evaluate.Resumption{New: 5}, 5))
	require.Equal(t, "3 of 5 done; 2 new", Resumption(evaluate.Resumption{Done: 3, New: 2}, 5))
	require.Equal(t, "5 of 5 done", Resumption(evaluate.Resumption{Done: 5}, 5))
	require.Equal(t, "23 of 30 done; re-running 2 that were interrupted, 5 new", Resumption(evaluate.Resumption{Done: 23, Inconclusive: 2, New: 5}, 30))
	require.Equal(t, "0 of 7 done; re-running 1 that was interrupted, 1 that changed, 2 that were evaluated in another way, 1 that a lower limit may have ended, 2 as --rerun says",
		Resumption(evaluate.Resumption{Changed: 1, Setup: 2, Inconclusive: 1, Limited: 1, Asked: 2}, 7))
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
	require.Equal(t, "minimize", ResultsTitle(of(""), evaluate.Minimize, nil))
	require.Equal(t, "c · minimize", ResultsTitle(of("c", "c"), evaluate.Minimize, nil))
	require.Equal(t, "2 competitions · minimize · baseline 0.5", ResultsTitle(of("c", "d"), evaluate.Minimize, new(0.5)))
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
	require.Equal(t, "failed", tableStatus(evaluated("x", func(e *evaluate.Result) { e.Failure = "no" })))
	require.Equal(t, "not started", tableStatus(evaluate.Result{Failure: "not started: the batch ended"}))
	require.Equal(t, "failed: no", status(func(e *evaluate.Result) { e.Failure = "no" }))
	require.Equal(t, "refused", status(func(e *evaluate.Result) { e.ErrorReason = evaluate.ErrorReasonRejected }))
}

func TestLeaderboardTable(t *testing.T) {
	score := func(name string, self, graded float64) evaluate.Result {
		return evaluated(name, func(e *evaluate.Result) {
			e.Score, e.GradedScore, e.Grading = &self, &graded, &evaluate.Grading{Score: &graded}
		})
	}
	board := Board{Direction: evaluate.Maximize, Baseline: new(0.6), Ranked: []evaluate.Result{
		score("a", 0.9, 0.9), score("b", 0.92, 0.8), score("c", 0.8, 0.8), score("cheat", 0.9999, 0.3662),
		evaluated("crash", func(e *evaluate.Result) {
			e.IsError, e.ExitCode, e.ErrorTraceback = true, 1, new("Traceback (most recent call last):\nKeyError: \"['benignn'] not found in axis\"\x1b[2J"+strings.Repeat(" very", 100))
		}),
	}}
	require.Equal(t, []int{1, 2, 2, 4, 0}, evaluate.Ranks(board.Ranked))
	header, rows, notes := board.Table()
	require.Equal(t, []string{"RANK", "NAME", "GRADED", "   SCORE", "STATUS", "DURATION", "RUN", "WHY"}, header)
	require.Equal(t, []string{"-", "baseline", "   0.6", "       -", "-", "       -", "-", "-"}, rows[3])
	require.Equal(t, []string{"! the self-reported score is far better than the graded one: b, cheat"}, notes)
	require.Equal(t, "! 0.9999", rows[4][3])
	require.NotContains(t, rows[5][7], "\x1b")
	require.Len(t, []rune(rows[5][7]), 200+1, "nothing is cut for a pipe; ESC becomes ^[")

	for _, width := range []int{80, 100, 200} {
		board.Width = width
		header, rows, _ = board.Table()
		for _, row := range append(rows, header) {
			sum := 2 * (len(row) - 1)
			for i := range row {
				widest := 0
				for _, other := range append(rows, header) {
					widest = max(widest, cellWidth(other[i]))
				}
				sum += widest
			}
			require.LessOrEqual(t, sum, width)
		}
		require.Equal(t, "WHY", header[len(header)-1])
		require.Contains(t, rows[5][len(header)-1], "KeyError: \"['benign")
	}

	board.Width, board.Top = 0, 2
	_, rows, notes = board.Table()
	require.Len(t, rows, 2)
	require.Equal(t, []string{"! the self-reported score is far better than the graded one: b", "and 3 more"}, notes)
	board.Top, board.Ranked[1].Grading.ScoreCut, board.Ranked[1].Why = 0, true, ""
	_, rows, notes = board.Table()
	require.Equal(t, "the score 0.8 is cut: a separator with a digit, or %, follows it", rows[1][7])
	require.Equal(t, []string{"! the self-reported score is far better than the graded one: b, cheat", "a separator or % follows the number of the score, which may be cut: b"}, notes)
	none := Board{Ranked: []evaluate.Result{evaluated("n", nil)}, Direction: evaluate.Maximize}
	_, rows, _ = none.Table()
	require.Equal(t, []string{"-", "n", "-", "exited 0", "1.00s", "run-n", "it printed no score"}, []string{rows[0][0], rows[0][1], strings.TrimSpace(rows[0][2]), rows[0][3], strings.TrimSpace(rows[0][4]), rows[0][5], rows[0][6]})
}

// TestHalvingBoard: scores with different resources are not equal, and their resource is shown.
func TestHalvingBoard(t *testing.T) {
	with := func(name string, resource int) evaluate.Result {
		return evaluated(name, func(e *evaluate.Result) { e.Resource, e.Score = resource, new(0.5) })
	}
	board := Board{Direction: evaluate.Maximize, Baseline: new(0.1), Ranked: []evaluate.Result{with("a", 27), with("b", 27), with("c", 9)}}
	require.Equal(t, []int{1, 1, 3}, evaluate.Ranks(board.Ranked))
	header, rows, _ := board.Table()
	require.Equal(t, []string{"RANK", "NAME", "RESOURCE", "SCORE"}, header[:4])
	require.Equal(t, "       9", rows[2][2])
	require.Equal(t, []string{"baseline", "       -"}, rows[3][1:3])
}

func TestHalvingText(t *testing.T) {
	require.Equal(t, "round 1 of 4: 27 scripts with resource 1", Round(evaluate.Round{Number: 1, Of: 4, Resource: 1, Scripts: 27, Runs: 27}))
	require.Equal(t, "round 4 of 4: 1 script with resource 27, 3 runs", Round(evaluate.Round{Number: 4, Of: 4, Resource: 27, Scripts: 1, Runs: 3}))
	cost := evaluate.HalvingCost{Spent: 108, Full: 729, Seconds: 20, FullSeconds: 76}
	require.Equal(t, "halving: resource 108 of 729 spent (85 % saved) · runs took 20.0s, all with the full resource about 1m16s",
		Halving(evaluate.HalvingReport{Cost: cost}))
	cost.GPUSeconds, cost.FullGPUSeconds = 40, 152
	require.Contains(t, Halving(evaluate.HalvingReport{Cost: cost}), " · GPU time 40.0s instead of about 2m32s")
	require.Equal(t, "halving: resource 5 of 45 spent (89 % saved) · runs took 7.00s · not complete: the same command continues from there",
		Halving(evaluate.HalvingReport{Cost: evaluate.HalvingCost{Spent: 5, Full: 45, Seconds: 7}, Waiting: 2}))
}
