package evaluate

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
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
	"github.com/evalbox/evalbox/harness/evaluate/submission"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/schematest"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

func TestEvaluateBatch(t *testing.T) {
	runner := echo()
	e := newEvaluator(t, runner, Options{})
	results, err := e.EvaluateBatch(t.Context(), scripts("score 1", "exit()", "lost", "crash A: 1", "score 5"), newTask(t), mlestar.DefaultPipelineConfig())
	require.NoError(t, err)
	require.Len(t, results, 5)
	require.Equal(t, 1, runner.most, "one after the other")
	require.Equal(t, "solution-1", results[0].Name)
	require.Equal(t, 1.0, *results[0].Score)
	require.ErrorAs(t, results[1].Err(), new(*ScriptError))
	require.Equal(t, errFake.Error(), results[2].Failure)
	require.True(t, results[3].IsError)
	require.Equal(t, 5.0, *results[4].Score)

	results, err = e.EvaluateBatch(t.Context(), nil, newTask(t), mlestar.DefaultPipelineConfig())
	require.NoError(t, err)
	require.Empty(t, results)
	_, err = e.EvaluateBatch(t.Context(), nil, newTask(t), mlestar.PipelineConfig{})
	require.ErrorContains(t, err, "time_limit_seconds")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	results, err = e.EvaluateBatch(ctx, scripts("score 1"), newTask(t), mlestar.DefaultPipelineConfig())
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, "not started: the batch ended", results[0].Failure)
}

// entriesOf are entries with working directories of their own.
func entriesOf(t *testing.T, texts ...string) []Entry {
	t.Helper()
	workspace := t.TempDir()
	var entries []Entry
	for i, text := range texts {
		name := "s" + strconv.Itoa(i)
		entries = append(entries, Entry{Name: name, Text: &text, SHA256: hashText(text), Workspace: filepath.Join(workspace, name)})
	}
	return entries
}

// TestBatchInParallel holds every run until two are there.
func TestBatchInParallel(t *testing.T) {
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
	entries := entriesOf(t, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
	var ended []string
	jobs := map[trial.EventKind]int{}
	report, err := newEvaluator(t, runner, Options{}).Batch(t.Context(), entries, BatchOptions{
		Parallel: 2, MaxFailures: 100, Task: newTask(t), Timeout: time.Minute, Ended: func(r Result) { ended = append(ended, r.Name) },
		Events: func(e trial.Event) {
			if e.Role == "" { // not of a run
				jobs[e.Kind]++
			}
		},
	})
	require.NoError(t, err)
	require.Equal(t, map[trial.EventKind]int{trial.EventStarted: 10, trial.EventEnded: 10}, jobs)
	require.Equal(t, 2, runner.most)
	require.Len(t, ended, 10)
	for i, r := range report.Results {
		require.Equal(t, float64(i), *r.Score, "in the order of the scripts")
		require.FileExists(t, filepath.Join(entries[i].Workspace, "final", "out.txt"))
	}
	require.Equal(t, time.Minute, runner.requests[0].Limits.Timeout)
	_, err = newEvaluator(t, runner, Options{}).Batch(t.Context(), []Entry{{Name: "a"}, {Name: "b"}}, BatchOptions{Parallel: 2})
	require.ErrorContains(t, err, "workspace: scripts that run at once need one")
}

// Next to the programs that run some containers are created, unless that would cost.
func TestBatchInFlight(t *testing.T) {
	apart := []Entry{{Workspace: "a"}, {Workspace: "b"}}
	for want, b := range map[int]*batch{
		2: {BatchOptions: BatchOptions{Parallel: 1}, entries: apart}, 4: {BatchOptions: BatchOptions{Parallel: 2}, entries: apart},
		12: {BatchOptions: BatchOptions{Parallel: 8}, entries: apart}, 3: {BatchOptions: BatchOptions{Parallel: 3, MaxFailures: 1}, entries: apart},
		6: {BatchOptions: BatchOptions{Parallel: 6, Debug: func(_ context.Context, s mlestar.SolutionScript, _ Failure) (mlestar.SolutionScript, error) {
			return s, nil
		}}, entries: apart},
		1: {BatchOptions: BatchOptions{Parallel: 6}, entries: []Entry{{}}},
	} {
		require.Equal(t, want, b.inFlight(false))
	}
	require.Equal(t, 5, (&batch{BatchOptions: BatchOptions{Parallel: 5}, entries: apart}).inFlight(true))
}

// TestBatchGoesOn after a crash in the middle of a line, and gets the results that there are.
func TestBatchGoesOn(t *testing.T) {
	runner := echo()
	h := newEvaluator(t, runner, Options{})
	log, err := trial.OpenLog(t.TempDir())
	require.NoError(t, err)
	entries := entriesOf(t, "score 1", "lost", "exit()", "score 4")
	path := filepath.Join(t.TempDir(), "results.jsonl")
	var left Resumption
	cut := 0
	opts := BatchOptions{
		Task: newTask(t), Timeout: time.Minute, Results: path, Workspace: filepath.Join(t.TempDir(), "work"), Log: log,
		MaxFailures: 9, // so that one runs after the other: the last line is that of the last script
		Resumed:     func(r Resumption, torn int) { left, cut = r, torn },
	}
	report, err := h.Batch(t.Context(), entries, opts)
	require.NoError(t, err)
	require.Len(t, report.Errors, 1, "what we failed to run does not end the batch")
	require.ErrorIs(t, report.Errors[0], errFake)
	require.Zero(t, left.Done)
	var verdicts []trial.Verdict
	for r, err := range log.List() {
		require.NoError(t, err)
		verdicts = append(verdicts, r.Verdict)
	}
	require.ElementsMatch(t, []trial.Verdict{trial.Passed, trial.Inconclusive, trial.Refused, trial.Passed}, verdicts)

	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, info.Size()-10))
	ran := len(runner.requests)
	report, err = h.Batch(t.Context(), entries, opts)
	require.NoError(t, err)
	require.Equal(t, 4, cut)
	require.Equal(t, [2]int{2, 1}, [2]int{left.Done, left.Inconclusive})
	require.Len(t, runner.requests, ran+2, "the inconclusive one and the torn one")
	require.Equal(t, 4.0, *report.Results[3].Score)

	entries[0].SHA256 = "another"
	report, err = h.Batch(t.Context(), entries[:1], opts)
	require.NoError(t, err)
	require.Equal(t, 1, left.Changed)
	require.NotNil(t, report.Results[0])

	file, _, err := OpenResults(path, ReadOptions{})
	require.NoError(t, err)
	report, err = h.Batch(t.Context(), entries, opts)
	require.ErrorIs(t, err, sandbox.ErrBusy)
	require.Empty(t, report.Results)
	require.NoError(t, file.Close())
}

// TestBatchEndsEarly for its budget of failures, for a lost engine and for its time.
func TestBatchEndsEarly(t *testing.T) {
	task, opts := newTask(t), func(o BatchOptions) BatchOptions { o.Timeout = time.Minute; return o }
	h := newEvaluator(t, echo(), Options{})
	report, err := h.Batch(t.Context(), entriesOf(t, "score 1", "crash A: 1", "score 3"), opts(BatchOptions{Task: task, MaxFailures: 1}))
	require.Equal(t, "a script failed: nothing more was started", err.Error())
	require.ErrorAs(t, err, new(*FailuresError))
	require.NotNil(t, report.Results[1])
	require.Nil(t, report.Results[2])
	require.Equal(t, "not started: "+err.Error(), report.Complete(err)[2].Failure)

	sample := filepath.Join(t.TempDir(), "s.csv")
	writeFile(t, sample, "id\n1\n")
	checked := newEvaluator(t, echo(), Options{Submission: &submission.Rule{Sample: sample}})
	report, err = checked.Batch(t.Context(), entriesOf(t, "score 1", "score 2"), opts(BatchOptions{Task: task, MaxFailures: 1}))
	require.NoError(t, err, "a wrong submission is not a failed script")
	require.False(t, report.Results[1].Submission.OK)

	gone := &fakeRunner{program: func(fakeRun) fakeEnd { return fakeEnd{err: fmt.Errorf("x: %w", sandbox.ErrEngineUnavailable)} }}
	report, err = newEvaluator(t, gone, Options{}).Batch(t.Context(), entriesOf(t, "a", "b", "c", "d"), opts(BatchOptions{Task: task, MaxFailures: 9}))
	require.ErrorIs(t, err, ErrEngine)
	require.Nil(t, report.Results[3])
	_, err = newEvaluator(t, gone, Options{}).Batch(t.Context(), entriesOf(t, "a", "b"), opts(BatchOptions{Task: task, MaxFailures: 1}))
	require.ErrorIs(t, err, ErrEngine, "not the fault of a script")
	require.NotErrorAs(t, err, new(*FailuresError))

	stopped := &fakeRunner{program: func(fakeRun) fakeEnd { return fakeEnd{status: result.StatusCanceled, code: 143} }}
	report, err = newEvaluator(t, stopped, Options{}).Batch(t.Context(), entriesOf(t, "a", "b"), opts(BatchOptions{Task: task, MaxFailures: 1}))
	require.NoError(t, err, "somebody else stopped the runs: the scripts did not fail")
	require.NotNil(t, report.Results[1])

	unchecked := newEvaluator(t, &fakeRunner{program: func(fakeRun) fakeEnd {
		_ = os.Remove(sample) // the second script finds none
		return prints("1")
	}}, Options{Submission: &submission.Rule{Sample: sample}})
	report, err = unchecked.Batch(t.Context(), entriesOf(t, "a", "b"), opts(BatchOptions{Task: task, MaxFailures: 1}))
	require.NoError(t, err, "we failed to check the submission: the scripts did not fail")
	require.False(t, report.Results[1].Conclusive())

	synctest.Test(t, func(t *testing.T) { // the budget is over when the first script runs, not before
		var cause error
		waits := &fakeRunner{program: func(run fakeRun) fakeEnd {
			<-run.ctx.Done()
			return fakeEnd{status: result.StatusCanceled, code: 143}
		}}
		report, err := newEvaluator(t, waits, Options{}).Batch(t.Context(), entriesOf(t, "a", "b"), opts(BatchOptions{
			Task: task, MaxFailures: 1, Budget: 10 * time.Millisecond, Ending: func(err error) { cause = err },
		}))
		require.ErrorIs(t, err, ErrBudget)
		require.NotErrorAs(t, err, new(*FailuresError), "the caller ended it")
		require.Equal(t, ErrBudget, cause)
		require.False(t, report.Results[0].Conclusive())
		require.Nil(t, report.Results[1])
	})
}

// TestBatchKeepsWhatItCannotWrite: also what ends after a line could not be written.
func TestBatchKeepsWhatItCannotWrite(t *testing.T) {
	runner := &fakeRunner{program: func(fakeRun) fakeEnd {
		return fakeEnd{stdout: "x", change: func(res *result.Result) { res.Score = new(math.Inf(1)) }}
	}}
	report, err := newEvaluator(t, runner, Options{}).Batch(t.Context(), entriesOf(t, "a"), BatchOptions{
		Task: newTask(t), Timeout: time.Minute, Results: filepath.Join(t.TempDir(), "r"), KeepTexts: true,
	})
	require.Error(t, err)
	require.Equal(t, "x", report.Results[0].Stdout)
}

// TestEntries reports everything that is wrong with the scripts at once.
// TestBatchLog: the log of trials has the same facts of a script as that of a single job.
func TestBatchLog(t *testing.T) {
	log, err := trial.OpenLog(t.TempDir())
	require.NoError(t, err)
	sample := filepath.Join(t.TempDir(), "s.csv")
	writeFile(t, sample, "id\n1\n")
	runner := &fakeRunner{program: func(run fakeRun) fakeEnd {
		if run.n == 1 {
			return crashes("A: 1")
		}
		run.leave("out.txt", "x")
		return prints("1")
	}}
	h := newEvaluator(t, runner, Options{Submission: &submission.Rule{Sample: sample}})
	_, err = h.Batch(t.Context(), []Entry{{Name: "a", Text: new("a"), SHA256: hashText("a")}}, BatchOptions{
		Task: newTask(t), Timeout: time.Minute, Log: log, MaxRetries: 1,
		Debug: func(context.Context, mlestar.SolutionScript, Failure) (mlestar.SolutionScript, error) {
			return mlestar.NewSolution("b", mlestar.PhaseRefined), nil
		},
	})
	require.NoError(t, err)
	for r, err := range log.List() {
		require.NoError(t, err)
		require.Equal(t, trial.Failed, r.Verdict, "there is no submission")
		require.Equal(t, []trial.RunRef{{ID: "run-1", Role: "program"}, {ID: "run-2", Role: "program"}}, r.Runs)
		require.Equal(t, trial.Usage{WallSeconds: 3, Runs: 2}, r.Usage)
		whole, err := log.Get(r.Job.ID)
		require.NoError(t, err)
		require.Len(t, whole.Files, 1)
		var d Document
		require.NoError(t, json.Unmarshal(whole.Job.Spec, &d))
		require.Equal(t, "a", d.Script)
		require.Empty(t, d.ScriptFile+d.Workspace)
		return
	}
	t.Fatal("nothing was recorded")
}

func TestEntries(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	writeFile(t, at("a.py"), "a")
	writeFile(t, at("sub/a.py"), "b")
	entries, err := Entries([]ListedScript{{Script: at("a.py"), Name: "a", Source: "l:1"}}, []uint32{1, 4294967295}, "work")
	require.NoError(t, err)
	require.Equal(t, []Entry{
		{Name: "a", Path: at("a.py"), Seed: new(uint32(1)), SHA256: hashText("a"), Workspace: "work/a-seed-1"},
		{Name: "a", Path: at("a.py"), Seed: new(uint32(4294967295)), SHA256: hashText("a"), Workspace: "work/a-seed-4294967295"},
	}, entries)
	_, err = Entries([]ListedScript{ScriptNamed(at("a.py")), ScriptNamed(at("sub/a.py")), ScriptNamed(at("no.py")), {Script: at("a.py"), Name: "s", Seed: new(uint32(1)), Source: "l:4"}},
		[]uint32{1}, "work")
	for _, want := range []string{`the name "a" is that of `, "script " + at("no.py") + ": no such file", "l:4: has a seed of its own"} {
		require.ErrorContains(t, err, want)
	}
	changed := Entry{Path: at("a.py"), SHA256: "other"}
	_, err = changed.script()
	require.ErrorContains(t, err, "has changed since the batch began")
}

// TestTrial runs a job by its document, and refuses one that is wrong.
func TestTrial(t *testing.T) {
	runner := &fakeRunner{program: func(run fakeRun) fakeEnd { run.leave("out.txt", "x"); return prints("0.5") }}
	h := newEvaluator(t, runner, Options{}).Trial()
	task := newTask(t)
	spec := func(d Document) json.RawMessage {
		d.Schema = JobSchemaV1
		text, err := json.Marshal(d)
		require.NoError(t, err)
		schematest.Valid(t, schematest.Load(t, h.Schema()), text)
		return text
	}
	job := trial.Job{ID: "j1", Kind: Kind, Name: "n", Seed: new(uint64(7)), Spec: spec(Document{Script: "x", Task: &task, TimeoutSeconds: 1.5, Workspace: t.TempDir()})}
	plan, err := h.Plan(t.Context(), job)
	require.NoError(t, err)
	require.Len(t, plan.Key, 64)
	require.Empty(t, plan.Problems)
	require.Empty(t, runner.requests)
	var roles []string
	res, err := h.Run(t.Context(), job, func(e trial.Event) { roles = append(roles, e.Role) })
	require.NoError(t, err)
	require.Equal(t, trial.Passed, res.Verdict)
	require.Equal(t, 0.5, *res.Score)
	require.Equal(t, []trial.RunRef{{ID: "run-1", Role: "program"}}, res.Runs)
	require.Equal(t, "out.txt", res.Files[0].Path)
	require.Equal(t, "7", runner.requests[0].Env["SEED"])
	require.Equal(t, 1500*time.Millisecond, runner.requests[0].Limits.Timeout)
	require.Equal(t, map[string]string{"trial.id": "j1", "trial.kind": "evaluate", "trial.role": "program"}, runner.requests[0].Labels)
	detail, err := decodeResult(res.Detail)
	require.NoError(t, err)
	require.Equal(t, "n", detail.Name)

	for want, change := range map[string]func(*trial.Job){
		"calls exit(": func(j *trial.Job) { j.Spec = spec(Document{Script: "exit()", Task: &task, TimeoutSeconds: 1}) },
		"give script or script_file": func(j *trial.Job) {
			j.Spec = json.RawMessage(`{"schema":"evalbox/evaluation-job/v1","timeout_seconds":1,"task_file":"x"}`)
		},
		"must be more than 0": func(j *trial.Job) {
			j.Spec = json.RawMessage(`{"schema":"evalbox/evaluation-job/v1","script":"x","timeout_seconds":0}`)
		},
		"task: no such file": func(j *trial.Job) {
			j.Spec = spec(Document{Script: "x", TaskFile: filepath.Join(t.TempDir(), "task"), TimeoutSeconds: 1})
		},
		"must be from 0 to 4294967295": func(j *trial.Job) { j.Seed = new(uint64(1 << 32)) },
		`unknown key "more"`:           func(j *trial.Job) { j.Spec = json.RawMessage(`{"schema":"evalbox/evaluation-job/v1","more":1}`) },
	} {
		wrong := job
		change(&wrong)
		res, err := h.Run(t.Context(), wrong, func(trial.Event) {})
		require.NoError(t, err)
		require.Equal(t, trial.Refused, res.Verdict, want)
		require.Contains(t, fmt.Sprint(res.Problems), want)
		plan, err := h.Plan(t.Context(), wrong)
		require.NoError(t, err)
		require.Contains(t, fmt.Sprint(plan.Problems), want)
	}
	require.Len(t, runner.requests, 1, "nothing of them ran")
}

// scored is an evaluation that printed a score; nil when it printed nothing.
func scored(name string, score *float64) Result {
	return Result{Name: name, EvaluationResult: EvaluationResult{Score: score}}
}

func names(evaluations []Result) string {
	var all []string
	for _, e := range evaluations {
		all = append(all, e.Name)
	}
	return strings.Join(all, " ")
}

func TestRankResults(t *testing.T) {
	failed := func(e Result) Result { e.IsError = true; return e }
	graded := func(e Result, score *float64) Result {
		e.Grading, e.GradedScore = &Grading{}, score
		return e
	}
	for name, test := range map[string]struct {
		direction MetricDirection
		in        []Result
		want      string
	}{
		"largest first":  {Maximize, []Result{scored("a", new(1.0)), scored("b", new(3.0)), scored("c", new(2.0))}, "b c a"},
		"smallest first": {Minimize, []Result{scored("a", new(1.0)), scored("b", new(-3.0)), scored("c", new(2.0))}, "b a c"},
		"ties stay":      {Minimize, []Result{scored("a", new(1.0)), scored("b", new(0.5)), scored("c", new(1.0)), scored("d", new(0.5))}, "b d a c"},
		"three tiers": {Maximize, []Result{failed(scored("a", new(9.0))), scored("b", nil), failed(scored("c", nil)),
			scored("d", new(-1.0)), scored("e", nil)}, "d b e a c"},
		"not finite": {Maximize, []Result{scored("a", new(math.NaN())), scored("b", new(math.Inf(1))), scored("c", new(0.0)),
			scored("d", new(math.Inf(-1)))}, "c a b d"},
		"failures of ours": {Maximize, []Result{{Name: "a", Failure: "x", EvaluationResult: EvaluationResult{Score: new(9.0)}}, scored("b", nil)}, "b a"},
		"ended by a limit": {Maximize, []Result{{Name: "a", Run: &RunFacts{Status: result.StatusOutputLimit},
			EvaluationResult: EvaluationResult{Score: new(9.0)}}, scored("b", new(1.0))}, "b a"},
		"the graded score counts": {Maximize, []Result{graded(scored("a", new(0.9)), new(0.1)), graded(scored("b", new(0.2)), new(0.2)),
			graded(scored("broke its grading", new(1.0)), nil), scored("never graded", new(1.0))}, "b a broke its grading never graded"},
		"nothing": {Maximize, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			before := names(test.in)
			got, err := RankResults(test.in, test.direction)
			require.NoError(t, err)
			require.Equal(t, test.want, names(got))
			require.Equal(t, before, names(test.in))
		})
	}
	_, err := RankResults(nil, "up")
	require.ErrorContains(t, err, "metric_direction")
}

// TestRankTrials: a log of trials ranks as the results themselves do.
func TestRankTrials(t *testing.T) {
	results := []Result{
		scored("worst", new(3.0)), scored("tie 1", new(2.0)), scored("none", nil), scored("tie 2", new(2.0)),
		{Name: "failed", EvaluationResult: EvaluationResult{Score: new(0.5), IsError: true}},
		{Name: "ended by a limit", Run: &RunFacts{Status: result.StatusTimedOut, Fault: result.FaultProgram}, EvaluationResult: EvaluationResult{Score: new(0.1)}},
		{Name: "ours", Failure: "x", EvaluationResult: EvaluationResult{Score: new(0.2)}},
		{Name: "wrong submission", Submission: &submission.Check{Problems: []string{"x"}}, EvaluationResult: EvaluationResult{Score: new(1.0)}},
		{Name: "a later round", Resource: 9, EvaluationResult: EvaluationResult{Score: new(8.0)}},
		{Name: "graded", Grading: &Grading{}, GradedScore: new(4.0), EvaluationResult: EvaluationResult{Score: new(0.1)}},
	}
	for _, results := range [][]Result{results[:9], results[9:]} {
		for _, direction := range []MetricDirection{Minimize, Maximize} {
			var trials []trial.Result
			for i, r := range results {
				r.CompetitionID, r.MetricDirection = "c", direction
				results[i] = r
				each, err := r.Trial(trial.Job{Name: r.Name})
				require.NoError(t, err)
				require.Equal(t, "c", each.Ranking.Task)
				trials = append(trials, each)
			}
			want, err := RankResults(results, direction)
			require.NoError(t, err)
			ranked, ranks := RankTrials(trials)
			var got []string
			for _, r := range ranked {
				got = append(got, r.Job.Name)
			}
			require.Equal(t, names(want), strings.Join(got, " "))
			require.Equal(t, Ranks(want), ranks)
		}
	}
	a, b := trial.Result{Job: trial.Job{Name: "a"}, Score: new(1.0)}, trial.Result{Job: trial.Job{Name: "b"}, Score: new(2.0)}
	for name, rankings := range map[string][2]*trial.Ranking{
		"of an older version":    {},
		"no direction":           {{Task: "t", Valid: true}, {Task: "t", Valid: true}},
		"of different tasks":     {{Task: "t", Direction: "maximize", Valid: true}, {Task: "u", Direction: "maximize", Valid: true}},
		"of different direction": {{Task: "t", Direction: "maximize", Valid: true}, {Task: "t", Direction: "minimize", Valid: true}},
	} {
		a.Ranking, b.Ranking = rankings[0], rankings[1]
		ranked, ranks := RankTrials([]trial.Result{a, b})
		require.Equal(t, []trial.Result{a, b}, ranked, name)
		require.Equal(t, []int{0, 0}, ranks, name)
	}
}

func TestRankSolutions(t *testing.T) {
	solutions := scripts("a", "b", "c")
	ranked, err := RankSolutions(solutions, []Result{scored("a", new(1.0)), scored("b", nil), scored("c", new(2.0))}, Maximize)
	require.NoError(t, err)
	require.Len(t, ranked, 3)
	for i, want := range []string{"c", "a", "b"} {
		require.Equal(t, want, ranked[i].Solution.Content)
		require.Equal(t, want, ranked[i].Result.Name)
	}
	_, err = RankSolutions(solutions, []Result{scored("a", nil)}, Maximize)
	require.EqualError(t, err, "ranking: 3 solutions but 1 evaluations")
}

func BenchmarkRank10000(b *testing.B) {
	evaluations := make([]Result, 10_000)
	for i := range evaluations {
		evaluations[i] = scored("x", new(float64(i*7919%10_000)))
	}
	for b.Loop() {
		if _, err := RankResults(evaluations, Maximize); err != nil {
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
	job := Job{Script: "x", Task: newTask(t), Timeout: time.Minute}
	r, err := e.Repeat(t.Context(), job, 4, RepeatOptions{Seeds: []uint32{11, 12, 13, 14}})
	require.NoError(t, err)
	require.Len(t, r.Results, 4)
	require.Equal(t, 3, r.Statistics.Count, "an error has no score")
	require.InDelta(t, 7.0/3, *r.Statistics.Mean, 1e-12)
	for i, seed := range []string{"11", "12", "13", "14"} {
		require.Equal(t, seed, runner.requests[i].Env["SEED"])
		require.Equal(t, seed, runner.requests[i].Env["PYTHONHASHSEED"])
	}
	require.EqualValues(t, 12, *r.Results[1].Seed)

	_, err = e.Repeat(t.Context(), job, 2, RepeatOptions{})
	require.NoError(t, err)
	require.NotContains(t, runner.requests[5].Env, "SEED", "seeds only when asked for")
	require.Equal(t, "0", runner.requests[5].Env["PYTHONHASHSEED"])

	for _, runs := range []int{0, -1, maxRepeats + 1} {
		_, err = e.Repeat(t.Context(), job, runs, RepeatOptions{})
		require.ErrorContains(t, err, "repeat")
	}
	_, err = e.Repeat(t.Context(), job, 2, RepeatOptions{Seeds: []uint32{1}})
	require.ErrorContains(t, err, "seeds: there are 1 for 2 runs")

	runner.program = func(run fakeRun) fakeEnd { return fakeEnd{err: errFake} }
	r, err = e.Repeat(t.Context(), job, 5, RepeatOptions{})
	require.ErrorIs(t, err, errFake)
	require.Len(t, r.Results, 1, "no further run after a failure of ours")
}

// A script whose run was disturbed runs once more when all others have ended: one of them may
// have filled the disk.
func TestBatchRunsTheNeighboursOfAHogAgain(t *testing.T) {
	var mu sync.Mutex
	var ran []string
	full := make(chan struct{})
	runner := &fakeRunner{program: func(run fakeRun) fakeEnd {
		mu.Lock()
		ran = append(ran, run.script)
		again := len(ran) > 2
		mu.Unlock()
		environment := func(res *result.Result) { res.Fault = result.FaultEnvironment }
		switch {
		case run.script == "hog":
			close(full)
			return fakeEnd{status: result.StatusDiskLimit, code: 143}
		case again:
			return prints("0.5")
		}
		<-full
		return fakeEnd{status: result.StatusDiskLimit, code: 143, change: environment}
	}}
	results := filepath.Join(t.TempDir(), "results.jsonl")
	var ended []string
	report, err := newEvaluator(t, runner, Options{}).Batch(t.Context(), entriesOf(t, "honest", "hog"), BatchOptions{
		Task: newTask(t), Timeout: time.Minute, Parallel: 2, Results: results, Ended: func(r Result) { ended = append(ended, r.Name) },
	})
	require.NoError(t, err)
	require.Equal(t, []string{"hog", "honest", "honest"}, append(slices.Sorted(slices.Values(ran[:2])), ran[2:]...))
	require.Equal(t, 0.5, *report.Results[0].Score)
	require.True(t, report.Results[0].Conclusive())
	require.Equal(t, result.StatusDiskLimit, report.Results[1].Run.Status)
	require.Len(t, ended, 2, "each ends once")
	old, err := ReadResults(results, ReadOptions{})
	require.NoError(t, err)
	require.Len(t, old.Results, 2)
}

// A repair is for scripts that failed, not for runs that were disturbed.
func TestADisturbedRunIsNotRepaired(t *testing.T) {
	runner := &fakeRunner{program: func(fakeRun) fakeEnd {
		return fakeEnd{status: result.StatusSignaled, code: 143, change: func(res *result.Result) { res.Fault = result.FaultOperator }}
	}}
	_, got, err := newEvaluator(t, runner, Options{}).EvaluateWithRetry(t.Context(), scripts("x")[0], newTask(t), mlestar.DefaultPipelineConfig(),
		func(context.Context, mlestar.SolutionScript, Failure) (mlestar.SolutionScript, error) {
			require.Fail(t, "repaired")
			return mlestar.SolutionScript{}, nil
		}, RetryOptions{})
	require.NoError(t, err)
	require.False(t, got.Conclusive())
}
