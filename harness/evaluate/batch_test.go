package evaluate

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
)

func TestEvaluateBatch(t *testing.T) {
	runner := echo()
	e := newEvaluator(t, runner, Options{})
	items, err := e.EvaluateBatch(t.Context(), scripts("score 1", "exit()", "lost", "crash A: 1", "score 5"), newTask(t),
		DefaultPipelineConfig(), BatchOptions{})
	require.NoError(t, err)
	require.Len(t, items, 5)
	require.Equal(t, 1, runner.most, "one after the other")
	require.Equal(t, "solution-1", items[0].Name)
	require.Equal(t, 1.0, *items[0].Evaluation.Score)
	var refused *ScriptError
	require.ErrorAs(t, items[1].Err, &refused)
	require.ErrorIs(t, items[2].Err, errFake)
	require.NoError(t, items[3].Err)
	require.True(t, items[3].Evaluation.IsError)
	require.Equal(t, 5.0, *items[4].Evaluation.Score)

	items, err = e.EvaluateBatch(t.Context(), nil, newTask(t), DefaultPipelineConfig(), BatchOptions{})
	require.NoError(t, err)
	require.Empty(t, items)
}

// TestEvaluateBatchInParallel holds every run until two are there.
func TestEvaluateBatchInParallel(t *testing.T) {
	var both sync.WaitGroup
	both.Add(2)
	runner := &fakeRunner{program: func(run fakeRun) fakeEnd {
		if run.n <= 2 {
			both.Done()
			both.Wait()
		}
		run.leave("out.txt", run.script)
		return prints(run.script)
	}}
	var texts, names []string
	for i := range 10 {
		texts = append(texts, strconv.Itoa(i))
		names = append(names, "s"+strconv.Itoa(i))
	}
	workspace := t.TempDir()
	var done []int
	items, err := newEvaluator(t, runner, Options{}).EvaluateBatch(t.Context(), scripts(texts...), newTask(t), DefaultPipelineConfig(),
		BatchOptions{Parallel: 2, Workspace: workspace, Names: names, Timeout: time.Second, Done: func(i int, item BatchItem) error {
			done = append(done, i)
			require.Equal(t, names[i], item.Name)
			return nil
		}})
	require.NoError(t, err)
	require.Equal(t, 2, runner.most)
	require.Len(t, done, 10)
	for i, item := range items {
		require.NoError(t, item.Err)
		require.Equal(t, float64(i), *item.Evaluation.Score, "in the order of the scripts")
		require.FileExists(t, filepath.Join(workspace, names[i], "final", "out.txt"))
	}
	require.Equal(t, time.Second, runner.requests[0].Limits.Timeout)
}

func TestEvaluateBatchBrief(t *testing.T) {
	runner := &fakeRunner{program: func(fakeRun) fakeEnd { return fakeEnd{stdout: strings.Repeat("x", 1<<20)} }}
	seen := 0
	items, err := newEvaluator(t, runner, Options{}).EvaluateBatch(t.Context(), scripts("a", "b"), newTask(t), DefaultPipelineConfig(),
		BatchOptions{Brief: true, Done: func(_ int, item BatchItem) error {
			seen += len(item.Evaluation.Stdout)
			return nil
		}})
	require.NoError(t, err)
	require.Equal(t, 2<<20, seen, "Done gets all of it")
	for _, item := range items {
		require.Less(t, len(item.Evaluation.Stdout), 2*textLimit)
	}
}

func TestEvaluateBatchEndsEarly(t *testing.T) {
	runner := echo()
	items, err := newEvaluator(t, runner, Options{}).EvaluateBatch(t.Context(), scripts("score 1", "crash A: 1", "score 3", "score 4"),
		newTask(t), DefaultPipelineConfig(), BatchOptions{Done: func(_ int, item BatchItem) error {
			if item.Evaluation.IsError {
				return errFake
			}
			return nil
		}})
	require.ErrorIs(t, err, errFake)
	require.NoError(t, items[0].Err)
	require.NoError(t, items[1].Err)
	require.ErrorIs(t, items[3].Err, errFake, "what was never begun says why")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	items, err = newEvaluator(t, runner, Options{}).EvaluateBatch(ctx, scripts("score 1"), newTask(t), DefaultPipelineConfig(), BatchOptions{})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, items[0].Err, context.Canceled)
}

func TestEvaluateBatchRefuses(t *testing.T) {
	e := newEvaluator(t, echo(), Options{})
	for want, opts := range map[string]BatchOptions{
		"parallel -1":                            {Parallel: -1},
		"workspace:":                             {Parallel: 2},
		"2 solutions but 1":                      {Names: []string{"a"}},
		`name "a": is that of solutions 1 and 2`: {Names: []string{"a", "a"}},
		`name "../a"`:                            {Names: []string{"../a", "b"}},
		"timeout -1ns":                           {Timeout: -1},
	} {
		_, err := e.EvaluateBatch(t.Context(), scripts("x", "y"), newTask(t), DefaultPipelineConfig(), opts)
		require.ErrorContains(t, err, want)
	}
}

// scored is an evaluation that printed a score; nil is none.
func scored(name string, score *float64) Evaluation {
	return Evaluation{Name: name, EvaluationResult: EvaluationResult{Score: score}}
}

func names(evaluations []Evaluation) string {
	var all []string
	for _, e := range evaluations {
		all = append(all, e.Name)
	}
	return strings.Join(all, " ")
}

func TestRankEvaluations(t *testing.T) {
	failed := func(e Evaluation) Evaluation { e.IsError = true; return e }
	graded := func(e Evaluation, score *float64) Evaluation {
		e.Grading, e.GradedScore = &Grading{}, score
		return e
	}
	for name, test := range map[string]struct {
		direction MetricDirection
		in        []Evaluation
		want      string
	}{
		"largest first":  {Maximize, []Evaluation{scored("a", new(1.0)), scored("b", new(3.0)), scored("c", new(2.0))}, "b c a"},
		"smallest first": {Minimize, []Evaluation{scored("a", new(1.0)), scored("b", new(-3.0)), scored("c", new(2.0))}, "b a c"},
		"ties stay":      {Minimize, []Evaluation{scored("a", new(1.0)), scored("b", new(0.5)), scored("c", new(1.0)), scored("d", new(0.5))}, "b d a c"},
		"three tiers": {Maximize, []Evaluation{failed(scored("a", new(9.0))), scored("b", nil), failed(scored("c", nil)),
			scored("d", new(-1.0)), scored("e", nil)}, "d b e a c"},
		"not finite": {Maximize, []Evaluation{scored("a", new(math.NaN())), scored("b", new(math.Inf(1))), scored("c", new(0.0)),
			scored("d", new(math.Inf(-1)))}, "c a b d"},
		"failures of ours": {Maximize, []Evaluation{{Name: "a", Failure: "x", EvaluationResult: EvaluationResult{Score: new(9.0)}}, scored("b", nil)}, "b a"},
		"ended by a limit": {Maximize, []Evaluation{{Name: "a", Run: &RunFacts{Status: result.StatusOutputLimit},
			EvaluationResult: EvaluationResult{Score: new(9.0)}}, scored("b", new(1.0))}, "b a"},
		"the graded score counts": {Maximize, []Evaluation{graded(scored("a", new(0.9)), new(0.1)), graded(scored("b", new(0.2)), new(0.2)),
			graded(scored("broke its grading", new(1.0)), nil), scored("never graded", new(1.0))}, "b a broke its grading never graded"},
		"nothing": {Maximize, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := names(test.in)
			got, err := RankEvaluations(test.in, test.direction)
			require.NoError(t, err)
			require.Equal(t, test.want, names(got))
			require.Equal(t, before, names(test.in))
		})
	}
	_, err := RankEvaluations(nil, "up")
	require.ErrorContains(t, err, "metric_direction")
}

func TestRankSolutions(t *testing.T) {
	solutions := scripts("a", "b", "c")
	ranked, err := RankSolutions(solutions, []Evaluation{scored("a", new(1.0)), scored("b", nil), scored("c", new(2.0))}, Maximize)
	require.NoError(t, err)
	require.Len(t, ranked, 3)
	for i, want := range []string{"c", "a", "b"} {
		require.Equal(t, want, ranked[i].Solution.Content)
		require.Equal(t, want, ranked[i].Evaluation.Name)
	}
	_, err = RankSolutions(solutions, []Evaluation{scored("a", nil)}, Maximize)
	require.EqualError(t, err, "ranking: 3 solutions but 1 evaluations")
}

func BenchmarkRank10000(b *testing.B) {
	evaluations := make([]Evaluation, 10_000)
	for i := range evaluations {
		evaluations[i] = scored("x", new(float64(i*7919%10_000)))
	}
	for b.Loop() {
		if _, err := RankEvaluations(evaluations, Maximize); err != nil {
			b.Fatal(err)
		}
	}
}

// The quantiles are those of the NIST/SEMATECH e-Handbook of Statistical Methods,
// 1.3.6.7.2, probability 0.975.
func TestStudentT975(t *testing.T) {
	for df, want := range map[int]float64{
		1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228,
		15: 2.131, 20: 2.086, 29: 2.045, 30: 2.042, 60: 2.000, 100: 1.984, 9999: 1.960,
	} {
		require.InDelta(t, want, studentT975(df), 0.0005, "%d degrees of freedom", df)
	}
}

func TestSummarize(t *testing.T) {
	s := Summarize([]float64{2, 4, 4, 4, 5, 5, 7, 9})
	require.Equal(t, 8, s.Count)
	require.InDelta(t, 5, *s.Mean, 1e-12)
	require.InDelta(t, 2.13809, *s.Deviation, 1e-5)
	require.InDelta(t, 5-2.364624*2.13809/math.Sqrt(8), *s.Low, 1e-5)
	require.InDelta(t, 5+2.364624*2.13809/math.Sqrt(8), *s.High, 1e-5)

	s = Summarize([]float64{3, math.NaN(), 3, math.Inf(1)})
	require.Equal(t, 2, s.Count)
	require.Equal(t, 3.0, *s.Mean)
	require.Zero(t, *s.Deviation)
	require.Equal(t, *s.Low, *s.High)

	s = Summarize([]float64{0.5})
	require.Equal(t, 0.5, *s.Mean)
	require.Nil(t, s.Deviation)
	require.Nil(t, s.Low)
	require.Equal(t, Statistics{}, Summarize(nil))

	s = Summarize([]float64{6e307, 6.1e307, 6.2e307, 5.9e307})
	require.InEpsilon(t, 6.05e307, *s.Mean, 1e-12, "no overflow on the way")
	require.InEpsilon(t, 1.290994e306, *s.Deviation, 1e-5)
	s = Summarize([]float64{1.7e308, -1.7e308, -1.7e308})
	require.InEpsilon(t, -5.666667e307, *s.Mean, 1e-6)
	require.Nil(t, s.Deviation, "it is no finite number")
	require.Nil(t, s.Low)
	require.Nil(t, s.High)
}

// TestStatisticsAreFinite: whatever scripts print, statistics can be written as JSON, and
// the mean lies among the scores.
func TestStatisticsAreFinite(t *testing.T) {
	extremes := []float64{0, 1, -1, 0.1, 1e-300, math.SmallestNonzeroFloat64, -math.SmallestNonzeroFloat64, 1e300, -1e300, math.MaxFloat64, -math.MaxFloat64}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		scores := make([]float64, 1+random.IntN(6))
		for i := range scores {
			if scores[i] = math.Float64frombits(random.Uint64()); random.IntN(2) == 0 {
				scores[i] = extremes[random.IntN(len(extremes))]
			}
		}
		s := Summarize(scores)
		_, err := json.Marshal(s)
		require.NoError(t, err, "%v", scores)
		require.Equal(t, s.Deviation == nil, s.Low == nil)
		require.Equal(t, s.Deviation == nil, s.High == nil)
		if s.Deviation != nil {
			require.GreaterOrEqual(t, *s.Deviation, 0.0, "%v", scores)
			require.LessOrEqual(t, *s.Low, *s.Mean, "%v", scores)
			require.GreaterOrEqual(t, *s.High, *s.Mean, "%v", scores)
		}
		scores = slices.DeleteFunc(scores, func(score float64) bool { return !isFinite(score) })
		if len(scores) > 0 {
			require.GreaterOrEqual(t, *s.Mean, slices.Min(scores), "%v", scores)
			require.LessOrEqual(t, *s.Mean, slices.Max(scores), "%v", scores)
		}
	}
}

func TestRepeat(t *testing.T) {
	runner := &fakeRunner{program: func(run fakeRun) fakeEnd {
		if run.n == 3 {
			return crashes("A: 1")
		}
		return prints(strconv.Itoa(run.n))
	}}
	e := newEvaluator(t, runner, Options{})
	job := Job{Solution: NewSolution("x", PhaseInit), Task: newTask(t), Timeout: time.Second}
	r, err := e.Repeat(t.Context(), job, 4, []uint32{11, 12, 13, 14})
	require.NoError(t, err)
	require.Len(t, r.Evaluations, 4)
	require.Equal(t, 3, r.Statistics.Count, "an error has no score")
	require.InDelta(t, 7.0/3, *r.Statistics.Mean, 1e-12)
	for i, seed := range []string{"11", "12", "13", "14"} {
		require.Equal(t, seed, runner.requests[i].Env["SEED"])
		require.Equal(t, seed, runner.requests[i].Env["PYTHONHASHSEED"])
	}
	require.EqualValues(t, 12, *r.Evaluations[1].Seed)

	_, err = e.Repeat(t.Context(), job, 2, nil)
	require.NoError(t, err)
	require.NotContains(t, runner.requests[5].Env, "SEED", "seeds only when asked for")
	require.Equal(t, "0", runner.requests[5].Env["PYTHONHASHSEED"])

	for _, runs := range []int{0, -1, maxRepeats + 1} {
		_, err = e.Repeat(t.Context(), job, runs, nil)
		require.ErrorContains(t, err, "repeat")
	}
	_, err = e.Repeat(t.Context(), job, 2, []uint32{1})
	require.ErrorContains(t, err, "seeds: there are 1 for 2 runs")

	runner.program = func(run fakeRun) fakeEnd { return fakeEnd{err: errFake} }
	r, err = e.Repeat(t.Context(), job, 5, nil)
	require.ErrorIs(t, err, errFake)
	require.Len(t, r.Evaluations, 1, "no further run after a failure of ours")
}
