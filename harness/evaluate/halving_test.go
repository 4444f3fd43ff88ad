package evaluate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

func TestParseHalving(t *testing.T) {
	for given, want := range map[string]Halving{"1:27:3": {1, 27, 3}, "2:100": {2, 100, 3}, "1:2:2": {1, 2, 2}} {
		got, err := ParseHalving(given)
		require.NoError(t, err)
		require.Equal(t, want, got)
		again, err := ParseHalving(got.String())
		require.NoError(t, err)
		require.Equal(t, got, again)
	}
	for given, want := range map[string]string{
		"":                       "must be MIN:MAX or MIN:MAX:ETA in whole numbers",
		"9":                      "must be MIN:MAX",
		"1:9:3:1":                "must be MIN:MAX",
		"1:9:":                   "must be MIN:MAX",
		"1:2.5":                  "must be MIN:MAX",
		"1:99999999999999999999": "must be MIN:MAX",
		"0:9":                    "the least resource must be at least 1",
		"-1:9":                   "the least resource must be at least 1",
		"9:3":                    "the full resource must be more than the least one",
		"3:3":                    "the full resource must be more than the least one",
		"1:9:1":                  "the factor must be at least 2",
		"1:9:-3":                 "the factor must be at least 2",
		"1:2":                    "the factor leaves one round: from 1 to 2 it must be at most 2",
		"1:2000000000":           "the full resource must be at most 1000000000",
		"\x1b[2J":                `\x1b[2J`,
	} {
		_, err := ParseHalving(given)
		require.ErrorContains(t, err, want, given)
		require.ErrorContains(t, err, "halving", given)
	}
}

// TestHalvingPlan: the sizes are those of the paper with floors, and a round that decides nothing is left
// out.
func TestHalvingPlan(t *testing.T) {
	for _, test := range []struct {
		halving string
		scripts int
		want    string // resource × scripts of each round
	}{
		{"1:27:3", 27, "1×27 3×9 9×3 27×1"},
		{"1:8:2", 8, "1×8 2×4 4×2 8×1"},
		{"1:27:3", 100, "1×100 3×33 9×11 27×3"},
		{"1:27:3", 26, "1×26 3×8 9×2 27×1"},
		{"1:27:3", 10, "1×10 3×3 27×1"},
		{"1:27:3", 2, "1×2 27×1"},
		{"1:27:3", 1, "27×1"},
		{"1:27:3", 0, ""},
		{"1:10:3", 9, "1×9 3×3 10×1"},
		{"1:20:3", 9, "2×9 6×3 20×1"},
		{"5:100:4", 16, "6×16 25×4 100×1"},
		{"1:1000000000:1000000000", 4, "1×4 1000000000×1"},
	} {
		halving, err := ParseHalving(test.halving)
		require.NoError(t, err)
		var got []string
		for _, r := range halving.Plan(test.scripts, 2) {
			require.Equal(t, 2*r.Scripts, r.Runs)
			require.Equal(t, halving.Resources()[r.Number-1], r.Resource)
			require.Len(t, halving.Resources(), r.Of)
			got = append(got, fmt.Sprintf("%d×%d", r.Resource, r.Scripts))
		}
		require.Equal(t, test.want, strings.Join(got, " "), "%s with %d", test.halving, test.scripts)
	}
}

func TestSurvivors(t *testing.T) {
	seeded := func(name string, scores ...any) (results []Result) {
		for i, score := range scores {
			r := Result{Name: name, Seed: new(uint32(i)), Run: facts("r", result.StatusExited)}
			switch score := score.(type) {
			case float64:
				r.Score = &score
			case string:
				r.IsError, r.Score = true, new(99.0)
			}
			results = append(results, r)
		}
		return results
	}
	all := func(groups ...[]Result) (results []Result) {
		for _, g := range groups {
			results = append(results, g...)
		}
		return results
	}
	graded := func(name string, score, graded *float64) []Result {
		return []Result{{Name: name, GradedScore: graded, Grading: &Grading{}, EvaluationResult: EvaluationResult{Score: score}}}
	}
	two := Halving{1, 2, 2}
	for name, test := range map[string]struct {
		halving   Halving
		direction MetricDirection
		results   []Result
		want      string
	}{
		"maximize":          {two, Maximize, all(seeded("a", 1.0), seeded("b", 3.0), seeded("c", 2.0), seeded("d", 0.0)), "b c"},
		"minimize":          {two, Minimize, all(seeded("a", 1.0), seeded("b", 3.0), seeded("c", 2.0), seeded("d", 0.0)), "d a"},
		"rounded down":      {two, Maximize, all(seeded("a", 1.0), seeded("b", 3.0), seeded("c", 2.0)), "b"},
		"at least one":      {Halving{1, 9, 3}, Maximize, all(seeded("a", 1.0), seeded("b", 3.0)), "b"},
		"one":               {two, Maximize, seeded("a", 1.0), "a"},
		"ties":              {two, Maximize, all(seeded("a", 1.0), seeded("b", 1.0), seeded("c", 1.0), seeded("d", 1.0)), "a b"},
		"all fail":          {two, Maximize, all(seeded("a", "x"), seeded("b", nil)), ""},
		"none":              {two, Maximize, nil, ""},
		"few have a score":  {two, Maximize, all(seeded("a", "x"), seeded("b", 0.0), seeded("c", "x"), seeded("d", nil)), "b"},
		"not finite":        {two, Maximize, all(seeded("a", math.NaN()), seeded("b", math.Inf(1)), seeded("c", -1.0), seeded("d", -2.0)), "c d"},
		"mean of seeds":     {two, Maximize, all(seeded("a", 1.0, 9.0), seeded("b", 4.0, 4.5), seeded("c", 6.0, 6.0), seeded("d", 0.0, 0.0)), "c a"},
		"a seed that fails": {two, Maximize, all(seeded("a", 9.0, "x"), seeded("b", 1.0, 1.0), seeded("c", 5.0, "x"), seeded("d", "x", "x")), "b a"},
		"huge scores":       {two, Minimize, all(seeded("a", 1.7e308, 1.7e308), seeded("b", -1.7e308, -1.7e308)), "b"},
		"graded scores": {two, Maximize, all(graded("a", new(0.9), new(0.1)), graded("b", new(0.2), new(0.2)), graded("broke its grading", new(1.0), nil),
			seeded("never graded", 1.0)), "b a"},
	} {
		got, err := test.halving.Survivors(test.results, test.direction)
		require.NoError(t, err)
		require.Equal(t, test.want, strings.Join(got, " "), name)
	}
	_, err := two.Survivors(nil, "up")
	require.ErrorContains(t, err, "metric_direction")
}

func TestHalvingCost(t *testing.T) {
	ran := func(resource int, seconds float64, gpus ...string) Result {
		r := Result{Resource: resource, Run: facts("r", result.StatusExited)}
		r.DurationSeconds, r.Run.GPUs = seconds, gpus
		return r
	}
	failed := ran(1, 2, "g")
	failed.IsError = true
	refused := Result{Resource: 1}
	winner, loser, first := ran(9, 30, "g"), ran(1, 4, "g"), ran(1, 5, "g")
	got := Halving{1, 9, 9}.Cost([]Result{first, loser, failed, refused, winner}, []Result{winner, loser, failed, refused})
	require.Equal(t, HalvingCost{Spent: 12, Full: 27, Seconds: 41, GPUSeconds: 41, FullSeconds: 62, FullGPUSeconds: 62}, got)
	require.InDelta(t, 15.0/27, got.Saved(), 1e-12)
	got = Halving{1, 9, 9}.Cost([]Result{loser}, []Result{loser})
	require.Equal(t, HalvingCost{Spent: 1, Full: 9, Seconds: 4, GPUSeconds: 4}, got, "nothing is known about the full resource")
	require.Zero(t, Halving{1, 9, 9}.Cost(nil, nil).Saved())
}

// A script of learner says how it learns: the score with a resource is best minus the rest divided by the
// resource, so that a script that is best at the end may be behind at the beginning. Words are those of
// echo; "late" fails with more than 3.
func learner(t *testing.T) *fakeRunner {
	t.Helper()
	return recording(t, func(run fakeRun) fakeEnd {
		resource, err := strconv.Atoi(run.request.Env[ResourceVariable])
		require.NoError(t, err)
		var best, rest float64
		switch _, err := fmt.Sscanf(run.script, "learn %g %g", &best, &rest); {
		case err == nil:
			return prints(fmt.Sprint(best - rest/float64(resource)))
		case strings.HasPrefix(run.script, "late") && resource > 3:
			return crashes("MemoryError")
		case strings.HasPrefix(run.script, "late"):
			return prints("1000")
		}
		return echo().program(run)
	})
}

// ranOf are the runs of a fake, as "script resource seed".
func ranOf(f *fakeRunner) map[string]int {
	ran := map[string]int{}
	for _, req := range f.requests {
		ran[strings.Join([]string{req.Name, req.Env[ResourceVariable], req.Env["SEED"]}, " ")]++
	}
	return ran
}

// table is a report as a reader sees it.
func table(t *testing.T, report HalvingReport, ended error) string {
	t.Helper()
	ranked, err := RankResults(report.Complete(ended), Maximize)
	require.NoError(t, err)
	text := ""
	for _, r := range ranked {
		score := "-"
		if s := r.BestScore(); s != nil {
			score = fmt.Sprintf("%.4g", *s)
		}
		text += fmt.Sprintf("%s %d %s %s\n", r.Name, r.Resource, score, r.Why)
	}
	return text
}

func TestHalve(t *testing.T) {
	runner := learner(t)
	var rounds []Round
	var started []Resumption
	var ended []string
	entries := entriesOf(t, "learn 1 0.65", "learn 0.9 0", "learn 0.5 0", "crash A: 1", "late", "learn 0.3 0", "exit()", "learn 0.2 0", "learn 0.1 0", "nothing")
	log, err := trial.OpenLog(t.TempDir())
	require.NoError(t, err)
	report, err := newEvaluator(t, runner, Options{}).Halve(t.Context(), entries, BatchOptions{
		Task: newTask(t), Timeout: time.Minute, Parallel: 2, Results: filepath.Join(t.TempDir(), "r.jsonl"), Workspace: t.TempDir(), Log: log,
		Round: func(r Round) { rounds = append(rounds, r) }, Resumed: func(r Resumption, _ int) { started = append(started, r) },
		Ended: func(r Result) { ended = append(ended, r.Name) },
	}, Halving{1, 9, 2})
	require.NoError(t, err)
	require.Equal(t, `s1 9 0.9`+" "+`
s0 2 0.675 out in round 2 of 4 (resource 2)
s2 2 0.5 out in round 2 of 4 (resource 2)
s5 2 0.3 out in round 2 of 4 (resource 2)
s7 1 0.2 out in round 1 of 4 (resource 1)
s8 1 0.1 out in round 1 of 4 (resource 1)
s9 1 - out in round 1 of 4 (resource 1): it printed no score
s4 4 - out in round 3 of 4 (resource 4): MemoryError
s3 1 - out in round 1 of 4 (resource 1): A: 1
s6 1 - out in round 1 of 4 (resource 1): line 1: calls exit(
`, table(t, report, nil))
	require.Equal(t, rounds, report.Rounds)
	require.Equal(t, []Round{{1, 4, 1, 10, 10}, {2, 4, 2, 5, 5}, {3, 4, 4, 2, 2}, {4, 4, 9, 1, 1}}, rounds)
	require.Len(t, started, 4)
	require.Equal(t, []int{10, 5, 2, 1}, []int{started[0].New, started[1].New, started[2].New, started[3].New})
	require.Len(t, ended, 18)
	require.Equal(t, 9*1+5*2+2*4+9, report.Cost.Spent, "what was refused spends nothing")
	require.Equal(t, 9*9, report.Cost.Full)
	require.Equal(t, 17*1.5, report.Cost.Seconds)
	require.Zero(t, report.Waiting)
	resources := 0
	for r, err := range log.List() {
		require.NoError(t, err)
		whole, err := log.Get(r.Job.ID)
		require.NoError(t, err)
		job, problems := decodeJob(whole.Job)
		require.Empty(t, problems)
		resources += job.Resource
	}
	require.Equal(t, 10+10+8+9, resources)
}

// halved are scripts of which one wins that is behind at first, one fails late, and several fail at once.
func halved(t *testing.T) []Entry {
	t.Helper()
	return entriesOf(t, "learn 0.5 0", "learn 1 0.6", "late", "crash A: 1", "learn 0.4 0.1", "exit()", "learn 0.3 0", "learn 0.6 0.1", "nothing", "learn 0.39 0")
}

// TestHalveGoesOn after a kill at any moment: the table is the same, and nothing runs twice. What a kill
// leaves is a part of the results file, whose last line may be cut.
func TestHalveGoesOn(t *testing.T) {
	entries, halving := halved(t), Halving{1, 8, 2}
	opts := BatchOptions{Task: newTask(t), Timeout: time.Minute, MaxFailures: 99}
	halve := func(path string) (HalvingReport, *fakeRunner, int) {
		runner, opts, cut := learner(t), opts, 0
		opts.Results, opts.Resumed = path, func(_ Resumption, torn int) { cut += torn }
		report, err := newEvaluator(t, runner, Options{}).Halve(t.Context(), entries, opts, halving)
		require.NoError(t, err)
		return report, runner, cut
	}
	path := filepath.Join(t.TempDir(), "r.jsonl")
	whole, runner, _ := halve(path)
	want, all := table(t, whole, nil), ranOf(runner)
	require.Len(t, all, 9+5+2+1)
	lines := slices.Collect(strings.Lines(read(t, path)))
	require.Len(t, lines, 10+5+2+1)
	for n := range len(lines) + 1 {
		before := map[string]int{}
		for _, line := range lines[:n] {
			r, err := decodeResult([]byte(line))
			require.NoError(t, err)
			if r.Run != nil {
				before[fmt.Sprintf("%s %d ", r.Name, r.Resource)]++
			}
		}
		torn := ""
		if n < len(lines) {
			torn = lines[n][:len(lines[n])/2]
		}
		path := filepath.Join(t.TempDir(), "r.jsonl")
		writeFile(t, path, strings.Join(lines[:n], "")+torn)
		report, runner, cut := halve(path)
		require.Equal(t, want, table(t, report, nil), "after %d results", n)
		require.Equal(t, whole.Cost, report.Cost)
		require.Equal(t, torn != "", cut == n+1, "a torn line is reported once")
		ran := ranOf(runner)
		for key, times := range before {
			ran[key] += times
		}
		require.Equal(t, all, ran, "after %d results", n)
	}
}

// TestHalveIsInterrupted after each of its results, with several scripts at once.
func TestHalveIsInterrupted(t *testing.T) {
	entries, halving := halved(t), Halving{1, 8, 2}
	opts := BatchOptions{Task: newTask(t), Timeout: time.Minute, Parallel: 2}
	report, err := newEvaluator(t, learner(t), Options{}).Halve(t.Context(), entries, opts, halving)
	require.NoError(t, err)
	want := table(t, report, nil)
	for n := range 18 {
		runner := learner(t)
		h := newEvaluator(t, runner, Options{})
		ctx, cancel := context.WithCancel(t.Context())
		if n == 0 {
			cancel()
		}
		opts, ended := opts, 0
		opts.Results = filepath.Join(t.TempDir(), "r.jsonl")
		opts.Ended = func(Result) {
			if ended++; ended == n {
				cancel()
			}
		}
		first, err := h.Halve(ctx, entries, opts, halving)
		cancel()
		require.ErrorIs(t, err, context.Canceled)
		last := first.Rounds[len(first.Rounds)-1]
		for i, r := range first.Complete(err) {
			if r.Run != nil && r.Resource < last.Resource {
				require.Contains(t, r.Why, " round ", entries[i].Name)
			}
		}
		opts.Ended = nil
		report, err := h.Halve(t.Context(), entries, opts, halving)
		require.NoError(t, err)
		require.Equal(t, want, table(t, report, nil), "after %d results", n)
		for key, times := range ranOf(runner) {
			require.Equal(t, 1, times, key)
		}
	}
}

// TestHalveWaits for a conclusive result of each run: what was disturbed could change who goes on.
func TestHalveWaits(t *testing.T) {
	broken := true
	runner := learner(t)
	learn := runner.program
	runner.program = func(run fakeRun) fakeEnd {
		if broken && run.request.Name == "s1" && run.request.Env[ResourceVariable] == "2" {
			return fakeEnd{err: errFake}
		}
		return learn(run)
	}
	entries := entriesOf(t, "learn 0.1 0", "learn 0.2 0", "learn 0.3 0", "learn 0.4 0", "learn 0 0", "learn 0 0", "learn 0 0", "learn 0 0")
	opts := BatchOptions{Task: newTask(t), Timeout: time.Minute, Results: filepath.Join(t.TempDir(), "r.jsonl")}
	h := newEvaluator(t, runner, Options{})
	report, err := h.Halve(t.Context(), entries, opts, Halving{1, 8, 2})
	require.NoError(t, err)
	require.Len(t, report.Errors, 1)
	require.ErrorIs(t, report.Errors[0], errFake)
	require.Len(t, report.Rounds, 2)
	require.False(t, report.Results[1].Conclusive())
	require.Zero(t, report.Waiting)
	require.Zero(t, report.Cost.FullSeconds)
	broken = false
	report, err = h.Halve(t.Context(), entries, opts, Halving{1, 8, 2})
	require.NoError(t, err)
	require.Len(t, report.Rounds, 4)
	require.Equal(t, 8, report.Results[3].Resource)
	require.Len(t, runner.requests, 8+4+2+1+1, "one ran again")

	// Another schedule shares what it can; a script that is new joins from the first round.
	more := append(entries, entriesOf(t, "learn 0.5 0")...)
	more[8].Name = "new"
	runner = learner(t)
	report, err = newEvaluator(t, runner, Options{}).Halve(t.Context(), more, opts, Halving{1, 4, 4})
	require.NoError(t, err)
	require.Equal(t, map[string]int{"new 1 ": 1, "new 4 ": 1}, ranOf(runner))
	require.Equal(t, "out in round 1 of 2 (resource 1)", report.Results[7].Why)
	ranked, replaced := Latest(mustRead(t, opts.Results))
	require.Zero(t, replaced.All())
	require.Len(t, ranked, 9)
	ranked, err = RankResults(ranked, Maximize)
	require.NoError(t, err)
	require.Equal(t, []string{"s3", "new"}, []string{ranked[0].Name, ranked[1].Name}, "resource 8, then 4")
}

func mustRead(t *testing.T, path string) []Result {
	t.Helper()
	report, err := ReadResults(path, ReadOptions{})
	require.NoError(t, err)
	return report.Results
}

// TestHalveSeeds: a script is one arm with all its seeds, and a cache distinguishes resources.
func TestHalveSeeds(t *testing.T) {
	var mu sync.Mutex
	runner := recording(t, func(run fakeRun) fakeEnd {
		mu.Lock()
		defer mu.Unlock()
		word, score, _ := strings.Cut(run.script, " ")
		if word == "moody" && run.request.Env["SEED"] == "2" {
			return prints("0")
		}
		return prints(score)
	})
	var entries []Entry
	for _, e := range entriesOf(t, "moody 0.9", "steady 0.5", "steady 0.4", "moody 0.7") {
		for seed := range uint32(2) {
			e := e
			e.Seed, e.Workspace = new(seed+1), fmt.Sprintf("%s-%d", e.Workspace, seed)
			entries = append(entries, e)
		}
	}
	opts := BatchOptions{Task: newTask(t), Timeout: time.Minute, Parallel: 3}
	cache := t.TempDir()
	report, err := newEvaluator(t, runner, Options{Cache: cache}).Halve(t.Context(), entries, opts, Halving{1, 4, 2})
	require.NoError(t, err)
	require.Equal(t, []Round{{1, 3, 1, 4, 8}, {2, 3, 2, 2, 4}, {3, 3, 4, 1, 2}}, report.Rounds)
	require.Len(t, runner.requests, 14)
	require.Equal(t, 4, report.Results[2].Resource, "0.5 is the best mean")
	require.Equal(t, 4, report.Results[3].Resource)
	opts.Results = filepath.Join(t.TempDir(), "r.jsonl")
	report, err = newEvaluator(t, runner, Options{Cache: cache}).Halve(t.Context(), entries, opts, Halving{1, 4, 2})
	require.NoError(t, err)
	require.Len(t, runner.requests, 14, "all known")
	require.True(t, report.Results[2].Cached)
	require.Equal(t, 4, report.Results[2].Resource)
}

func TestHalveEnds(t *testing.T) {
	task := newTask(t)
	entries := entriesOf(t, "crash A: 1", "learn 0.4 0", "learn 0.3 0", "late", "learn 0.2 0", "crash A: 1", "learn 0.1 0", "learn 0 0")
	h := func() *Harness { return newEvaluator(t, learner(t), Options{}) }
	opts := BatchOptions{Task: task, Timeout: time.Minute, MaxFailures: 3}
	report, err := h().Halve(t.Context(), entries, opts, Halving{1, 8, 2})
	failures, ok := errors.AsType[*FailuresError](err)
	require.True(t, ok)
	require.Equal(t, 3, failures.Count, "those of all rounds")
	require.Len(t, report.Rounds, 3)
	require.Equal(t, "waits for round 4 of 4 (resource 8)", report.Results[1].Why)
	require.Equal(t, 1, report.Waiting)
	opts.MaxFailures = 4
	report, err = h().Halve(t.Context(), entries, opts, Halving{1, 8, 2})
	require.NoError(t, err)
	require.Equal(t, 8, report.Results[1].Resource)

	// Nothing is left, and nothing was there.
	report, err = h().Halve(t.Context(), entriesOf(t, "crash A: 1", "nothing", "hang"), BatchOptions{Task: task, Timeout: time.Minute}, Halving{1, 8, 2})
	require.NoError(t, err)
	require.Len(t, report.Rounds, 1)
	require.Equal(t, "out in round 1 of 4 (resource 1): The program ended.", report.Results[2].Why)
	report, err = h().Halve(t.Context(), nil, BatchOptions{Task: task, Timeout: time.Minute}, Halving{1, 8, 2})
	require.NoError(t, err)
	require.Empty(t, report.Rounds)
	report, err = h().Halve(t.Context(), entriesOf(t, "crash A: 1"), BatchOptions{Task: task, Timeout: time.Minute}, Halving{1, 8, 2})
	require.NoError(t, err)
	require.Equal(t, []Round{{4, 4, 8, 1, 1}}, report.Rounds, "a single script has the full resource at once")
	require.Equal(t, "A: 1", report.Results[0].Why)

	gone := &fakeRunner{program: func(fakeRun) fakeEnd { return fakeEnd{err: fmt.Errorf("x: %w", sandbox.ErrEngineUnavailable)} }}
	report, err = newEvaluator(t, gone, Options{}).Halve(t.Context(), entries, BatchOptions{Task: task, Timeout: time.Minute}, Halving{1, 8, 2})
	require.ErrorIs(t, err, ErrEngine)
	require.LessOrEqual(t, len(report.Errors), maxErrors)

	synctest.Test(t, func(t *testing.T) { // the budget is for all rounds
		slow := recording(t, func(run fakeRun) fakeEnd {
			select {
			case <-run.ctx.Done():
				return fakeEnd{status: result.StatusCanceled, code: 143}
			case <-time.After(time.Second):
				return prints("1")
			}
		})
		var cause error
		report, err := newEvaluator(t, slow, Options{}).Halve(t.Context(), entriesOf(t, "a", "b", "c", "d"), BatchOptions{
			Task: task, Timeout: time.Minute, Budget: 5500 * time.Millisecond, MaxFailures: 9, Ending: func(err error) { cause = err },
		}, Halving{1, 4, 2})
		require.ErrorIs(t, err, ErrBudget)
		require.Equal(t, ErrBudget, cause)
		require.Len(t, report.Rounds, 2)
		require.False(t, report.Results[1].Conclusive())
		require.Equal(t, "out in round 1 of 3 (resource 1)", report.Results[2].Why)
	})
}

func TestHalveRefuses(t *testing.T) {
	opts := BatchOptions{Task: newTask(t), Timeout: time.Minute}
	opts.Debug = func(_ context.Context, s mlestar.SolutionScript, _ Failure) (mlestar.SolutionScript, error) {
		return s, nil
	}
	opts.Task.MetricDirection = ""
	h := newEvaluator(t, echo(), Options{Request: sandbox.Request{Env: map[string]string{ResourceVariable: "1"}}})
	_, err := h.Halve(t.Context(), entriesOf(t, "a"), opts, Halving{})
	for _, want := range []string{
		"halving 0:0:0: the least resource must be at least 1", "each round would have another one",
		"env EVALBOX_RESOURCE: is decided by the halving", "metric_direction",
	} {
		require.ErrorContains(t, err, want)
	}
	opts.Debug, opts.Task.MetricDirection, opts.Parallel = nil, Maximize, 2
	_, err = newEvaluator(t, echo(), Options{}).Halve(t.Context(), []Entry{{Name: "a"}, {Name: "b"}}, opts, Halving{1, 2, 2})
	require.ErrorContains(t, err, "workspace: scripts that run at once need one")
	file, _, err := OpenResults(filepath.Join(t.TempDir(), "r"), ReadOptions{})
	require.NoError(t, err)
	opts.Results = file.path
	_, err = newEvaluator(t, echo(), Options{}).Halve(t.Context(), entriesOf(t, "a"), opts, Halving{1, 2, 2})
	require.ErrorIs(t, err, sandbox.ErrBusy)
	require.NoError(t, file.Close())
}

// TestResultsOfRounds: a resource is a part of what a result is of.
func TestResultsOfRounds(t *testing.T) {
	of := func(resource int) Result {
		return Result{Name: "a", OriginalSHA256: "1", SetupSHA256: "s", Resource: resource, Run: facts("r", result.StatusExited)}
	}
	left := Resume([]Result{of(3), of(0), of(9)}, []Result{of(1), of(3)}, nil)
	require.Equal(t, 1, left.Done)
	require.Equal(t, 2, left.New)
	require.NotNil(t, left.Known[0])
	latest, _ := Latest([]Result{of(1), of(3)})
	require.Equal(t, []Result{of(3)}, latest)
}

func ExampleHalving_Plan() {
	halving, err := ParseHalving("1:27:3")
	if err != nil {
		fmt.Println(err)
		return
	}
	spent := 0
	for _, r := range halving.Plan(27, 1) {
		fmt.Printf("round %d of %d: resource %d, scripts %d\n", r.Number, r.Of, r.Resource, r.Scripts)
		spent += r.Runs * r.Resource
	}
	fmt.Println(spent, "instead of", 27*27)
	// Output:
	// round 1 of 4: resource 1, scripts 27
	// round 2 of 4: resource 3, scripts 9
	// round 3 of 4: resource 9, scripts 3
	// round 4 of 4: resource 27, scripts 1
	// 108 instead of 729
}
