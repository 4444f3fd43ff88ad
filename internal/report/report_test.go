package report

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	gatereport "github.com/evalbox/evalbox/harness/gate/report"
	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/harness/invoke/sweep"
	"github.com/evalbox/evalbox/internal/plot"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/metrics"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// evaluated is an evaluation with the run of a script.
func evaluated(name string, seed uint32, score, graded float64) evaluate.Result {
	r := evaluate.Result{Name: name, Seed: &seed, CompetitionID: "digits", MetricDirection: evaluate.Maximize, ScriptSHA256: strings.Repeat("ab", 32)}
	r.Score, r.GradedScore, r.Grading, r.DurationSeconds = &score, &graded, &evaluate.Grading{Score: &graded, Ended: true}, 10+float64(seed)
	r.Run = &evaluate.RunFacts{ID: fmt.Sprintf("20260101t000000-%s%d", name, seed), Status: result.StatusExited, Fault: result.FaultNone}
	return r
}

func failed(name, why string) evaluate.Result {
	r := evaluated(name, 1, 0, 0)
	r.Score, r.GradedScore, r.Grading, r.IsError, r.ErrorReason = nil, nil, nil, true, result.ErrorReason("exit_code")
	r.ErrorTraceback = new("Traceback (most recent call last):\n  File \"/work/solution.py\", line 1\n" + why)
	return r
}

// ran is the run of an evaluation, which began after this number of seconds.
func ran(r evaluate.Result, after int, gpus ...string) Run {
	start := time.Date(2026, 1, 1, 0, 0, after, 0, time.UTC)
	res := &result.Result{
		ID: r.Run.ID, Status: r.Run.Status, Fault: r.Run.Fault, StartedAt: start.Format(time.RFC3339), FinishedAt: start.Add(time.Duration(r.DurationSeconds) * time.Second).Format(time.RFC3339),
		DurationSeconds: r.DurationSeconds, Explanation: "The program exited with 0.", Image: result.Image{Name: "debian", ID: "sha256:1234", Locked: true},
		Resources: result.Resources{CPUSeconds: 5, PeakMemoryBytes: 100 << 20, Source: "cgroup v2"},
		Enforced:  result.Enforced{TimeoutSeconds: 60, MemoryBytes: 1 << 30, CPUs: 2, PIDs: 100, Network: "none", User: "1000:1000", ReadOnlyRoot: true, NoNewPrivileges: true, CapDrop: []string{"ALL"}, GPUs: gpus},
		Outputs:   []result.Output{{Path: "submission.csv", SizeBytes: 840, SHA256: strings.Repeat("cd", 32)}},
	}
	curves := []Curve{{Name: "loss", Custom: true, Steps: true, Points: []plot.Point{{X: 0, Y: 1}, {X: 1, Y: 0.5}}}, {Name: "memory", Unit: plot.Bytes, Points: []plot.Point{{X: 0, Y: 1 << 20}, {X: 1, Y: 2 << 20}}}}
	return Run{Record: record.Record{ID: r.Run.ID, State: record.Finished, Created: start, Result: res, Spec: spec.Spec{Job: spec.Job{Name: r.Name, Command: []string{"python3", "/work/solution.py"}}}}, Curves: curves}
}

func exampleBatch() Batch {
	b := Batch{Title: "results.jsonl", Direction: evaluate.Maximize, Runs: map[string]Run{}, Notes: []string{"Line 9 of the file was cut and is left out."}}
	b.Results = []evaluate.Result{
		evaluated("tree", 1, 0.8, 0.81), evaluated("tree", 2, 0.82, 0.83), evaluated("tree", 3, 0.85, 0.82), evaluated("boast", 1, 0.9999, 0.4), failed("crash", "KeyError: 'x|y'"), failed("crash2", "KeyError: 'x|y'"),
	}
	for i, r := range b.Results {
		b.Runs[r.Run.ID] = ran(r, 4*i)
	}
	return b
}

func exampleGate() Gate {
	zero, one := 0, 1
	g := Gate{Report: gate.Report{Manifest: evidence.RunManifest{Name: "calc", GateCommands: []string{"pytest -q", "ruff check"}}}, Times: map[int]gatereport.Times{1: {Seconds: 2.5}}}
	g.Tests.Commands = []evidence.CommandTests{
		{Index: 1, Command: "pytest -q", Kind: evidence.KindTests, Started: true, Ending: "exited", ExitCode: &one, Counts: &evidence.Counts{Total: 2, Passed: 1, Failed: 1}, Cases: []evidence.Case{
			{ID: "tests/a.py::test_a", Outcome: evidence.Passed}, {ID: "tests/a.py::test_b[x|y]", Outcome: evidence.Failed, Message: "AssertionError: 1 != 2"},
		}},
		{Index: 2, Command: "ruff check", Kind: evidence.KindCheck, Started: true, Ending: "exited", ExitCode: &zero},
	}
	g.Verdict = evidence.Verdict{Status: evidence.Blocked, StopReason: "TESTS_FAILED", WishSHA256: strings.Repeat("ab", 32), Findings: []evidence.Finding{{Reason: "TESTS_FAILED", Gate: 1, Subject: "tests/a.py::test_b", Detail: "It failed."}}}
	g.Tails = map[int][]string{1: {"E   assert 1 == 2", "1 failed, 1 passed"}}
	g.Problems = []gate.Problem{{File: "evidence/tests.json", Detail: "is not the one of the manifest"}}
	return g
}

func exampleSweep() Sweep {
	s := Sweep{Title: "out"}
	s.Config = sweep.Config{Axes: []sweep.Axis{{Name: "mode", Values: []any{"fast", "exact"}}, {Name: "rate", Values: []any{0.1, 0.5}}}, Seeds: []invoke.Seed{invoke.NewSeed(1), invoke.NewSeed(2)}}
	for i, mode := range []string{"fast", "exact"} {
		for j, rate := range []float64{0.1, 0.5} {
			values := map[string]any{"mode": mode, "rate": rate}
			row := sweep.Row{Values: values, Runs: 2, Means: map[string]float64{"metrics.accuracy": float64(i) + rate}}
			for seed := range 2 {
				end := sweep.End{Point: sweep.Point{Values: values, Seed: invoke.NewSeed(seed + 1)}, Status: sweep.StatusSucceeded, ManifestHash: "1234"}
				numbers := map[string]float64{"metrics.accuracy": float64(i) + rate + float64(seed)/100}
				if i == 1 && j == 1 && seed == 1 {
					end.Status, end.ManifestHash, end.Failure, end.ExitCode, numbers = sweep.StatusFailed, "", "it exited with 3", new(3), nil
				}
				s.Runs, s.Numbers = append(s.Runs, end), append(s.Numbers, numbers)
			}
			s.Table = append(s.Table, row)
		}
	}
	s.Setup = map[string]string{"exec": "python3 tool.py", "root": "/home/ada/tool", "env.KEY": "12ab"}
	return s
}

func exampleRun() Run {
	r := ran(failed("crash", "KeyError: 'x'"), 0)
	r.Result.Status, r.Result.ExitCode, r.Result.IsError, r.Result.ErrorTraceback = result.StatusExited, 1, true, new("Traceback (most recent call last):\nKeyError: 'x'")
	r.Result.Stdout, r.Result.StdoutBytes, r.Result.Warnings = "427 rows\n", 9, []string{"the score is not finite"}
	r.Result.Metrics = &result.Metrics{MeanCPUs: 0.5, PeakCPUs: 1, Custom: []result.CustomMetric{{Name: "loss", Count: 2, Last: new(0.5), LastStep: new(1.0), Min: new(0.5), Max: new(1.0)}}}
	return r
}

func TestGolden(t *testing.T) {
	after := exampleBatch()
	after.Title, after.Results = "after.jsonl", after.Results[1:]
	after.Results[0].GradedScore = new(0.9)
	for name, d := range map[string]Document{
		"batch": BatchDocument(exampleBatch()), "comparison": CompareDocument(exampleBatch(), after), "gate": GateDocument(exampleGate()), "sweep": SweepDocument(exampleSweep()), "run": RunDocument(exampleRun()),
	} {
		requirePage(t, d.HTML())
		again := d.HTML()
		require.Equal(t, again, d.HTML(), "a document is always written in the same way")
		for file, text := range map[string][]byte{name + ".md": d.Markdown(), name + ".csv": d.CSV()} {
			treetest.Golden(t, filepath.Join("testdata", file), string(text))
		}
	}
}

// TestNoPathOfTheMachine: a report is for somebody else.
func TestNoPathOfTheMachine(t *testing.T) {
	r := exampleRun()
	r.Spec.Job.Script, r.Spec.Job.Input, r.Spec.Job.Final, r.Dir = "/home/ada/x.py", "/home/ada/in", "/home/ada/final", "/home/ada/record"
	b := exampleBatch()
	for id, run := range b.Runs {
		run.Spec.Job, run.Dir = r.Spec.Job, r.Dir
		b.Runs[id] = run
	}
	g := exampleGate()
	g.Dir, g.Manifest.Workspace = "/home/ada/gate", "/home/ada/project"
	for _, d := range []Document{RunDocument(r), BatchDocument(b), SweepDocument(exampleSweep()), GateDocument(g)} {
		for _, text := range [][]byte{d.HTML(), d.Markdown(), d.CSV()} {
			require.NotContains(t, string(text), "/home/ada")
		}
	}
}

func TestTimeline(t *testing.T) {
	b := exampleBatch()
	for i, r := range b.Results {
		b.Runs[r.Run.ID] = ran(r, 4*i, fmt.Sprint(i%2))
	}
	page := string(BatchDocument(b).HTML())
	require.Contains(t, page, ">GPU 0<")
	require.Contains(t, page, ">GPU 1<")
	require.NotContains(t, page, ">place 1<")
	page = string(BatchDocument(exampleBatch()).HTML())
	require.Contains(t, page, ">place 3<") // each run takes 11 s, and one begins every 4 s
	require.NotContains(t, page, ">place 5<")
}

func TestClass(t *testing.T) {
	timedOut := evaluated("a", 1, 1, 1)
	timedOut.Run.Status = result.StatusTimedOut
	ungraded := evaluated("a", 1, 1, 1)
	ungraded.GradedScore, ungraded.Grading.Failure = nil, "it printed no score"
	silent := evaluated("a", 1, 1, 1)
	silent.Score, silent.Grading, silent.GradedScore = nil, nil, nil
	exit := failed("a", "")
	exit.ErrorTraceback = nil
	for want, r := range map[string]evaluate.Result{
		"ended well": evaluated("a", 1, 1, 1), "KeyError": failed("a", "KeyError: 'x'\n"), "timed out": timedOut, "not graded": ungraded, "no score": silent, "exit code": exit,
		"not evaluated": {Failure: "the engine is gone"}, "refused": {EvaluationResult: evaluate.EvaluationResult{IsError: true, ErrorReason: evaluate.ErrorReasonRejected}},
	} {
		got, _ := class(r)
		require.Equal(t, want, got)
	}
}

func TestCurves(t *testing.T) {
	cpus, memory := 1.5, int64(1<<20)
	points := func(n int, last error) iter.Seq2[metrics.Point, error] {
		return func(yield func(metrics.Point, error) bool) {
			for i := range n {
				step := float64(10 * i)
				if !yield(metrics.Point{Seconds: float64(i), Usage: &metrics.Usage{CPUs: &cpus, MemoryBytes: &memory, GPUs: []metrics.GPU{{ID: "0", Utilization: 0.5}}}}, nil) ||
					!yield(metrics.Point{Seconds: float64(i), Step: &step, Values: map[string]metrics.Number{"loss": metrics.Number(1 / float64(i+1)), "memory": 3}}, nil) ||
					!yield(metrics.Point{Seconds: float64(i), Values: map[string]metrics.Number{"rate": metrics.Number(math.NaN())}}, nil) {
					return
				}
			}
			if last != nil {
				yield(metrics.Point{}, last)
			}
		}
	}
	curves, left, err := Curves(points(1000, nil), 100)
	require.NoError(t, err)
	require.Zero(t, left)
	var names []string
	for _, c := range curves {
		require.LessOrEqual(t, len(c.Points), 100)
		names = append(names, fmt.Sprintf("%s%t%t", c.Name, c.Custom, c.Steps))
	}
	require.Equal(t, []string{"processorsfalsefalse", "memoryfalsefalse", "GPU 0 utilizationfalsefalse", "GPU 0 memoryfalsefalse", "losstruetrue", "memorytruetrue", "ratetruefalse"}, names)
	require.InDelta(t, 9990, curves[4].Points[len(curves[4].Points)-1].X, 0)
	_, _, err = Curves(points(1, errors.New("damaged")), 100)
	require.EqualError(t, err, "damaged")
	many := func(yield func(metrics.Point, error) bool) {
		for i := range 1000 {
			if !yield(metrics.Point{Values: map[string]metrics.Number{fmt.Sprint("m", i): 1}}, nil) {
				return
			}
		}
	}
	curves, left, err = Curves(many, 100)
	require.NoError(t, err)
	require.Len(t, curves, maxCurves)
	require.Equal(t, 10*maxCurves, left)
}

// TestManyScripts: the report of 300 scripts with all that can be in a record is of a sensible size.
func TestManyScripts(t *testing.T) {
	b := Batch{Title: "results.jsonl", Direction: evaluate.Maximize, Runs: map[string]Run{}}
	for i := range 300 {
		r := evaluated(fmt.Sprintf("script-%03d", i), uint32(i), float64(i), float64(i))
		if i%3 == 0 {
			r = failed(fmt.Sprintf("script-%03d", i), fmt.Sprintf("KeyError: %d\n", i))
			r.ErrorTraceback = new(strings.Repeat("a line of a traceback\n", 1000) + *r.ErrorTraceback)
		}
		run := ran(r, i)
		run.Curves = nil
		for j := range maxCurves {
			c := Curve{Name: fmt.Sprint("metric ", j), Custom: j < 5}
			for k := range 150 {
				c.Points = append(c.Points, plot.Point{X: float64(k), Y: math.Sin(float64(i * k * j))})
			}
			run.Curves = append(run.Curves, c)
		}
		for j := range 10 {
			run.Result.Outputs = append(run.Result.Outputs, result.Output{Path: fmt.Sprint(j), SHA256: strings.Repeat("cd", 32)})
		}
		b.Results, b.Runs[r.Run.ID] = append(b.Results, r), run
	}
	began := time.Now()
	page := BatchDocument(b).HTML()
	t.Logf("%d bytes in %v", len(page), time.Since(began))
	require.Less(t, len(page), 5<<20)
	require.Contains(t, string(page), "Left out: 2300 further rows.")
	require.Contains(t, string(page), "Left out: 60 further texts.")
}

func TestBounds(t *testing.T) {
	long := strings.Repeat("x", 5000) + "\n" + strings.Repeat("y\n", 50_000) + "the end"
	short := block(long)
	require.LessOrEqual(t, len(short), maxBlock+100)
	require.Contains(t, short, "bytes are left out …]\n")
	require.True(t, strings.HasSuffix(short, "y\nthe end"))
	require.Equal(t, "a\nb", block("\na\nb\n"))
	require.Len(t, []rune(line(strings.Repeat("ä", 10_000))), maxCell)
}

func TestNothing(t *testing.T) {
	for _, d := range []Document{BatchDocument(Batch{}), CompareDocument(Batch{}, Batch{}), SweepDocument(Sweep{}), GateDocument(Gate{}), RunDocument(Run{}), {}} {
		requirePage(t, d.HTML())
		requireMarkdown(t, d.Markdown())
		require.NotPanics(t, func() { d.CSV() })
	}
}
