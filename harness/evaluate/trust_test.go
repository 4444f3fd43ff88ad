package evaluate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/harness/evaluate/submission"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// TestWhatRunsIsTheSolution: nobody who writes solution.py meanwhile changes what runs.
func TestWhatRunsIsTheSolution(t *testing.T) {
	workspace := t.TempDir()
	var ran string
	runner := recording(t, func(run fakeRun) fakeEnd {
		ran = run.script
		return prints("0.1")
	})
	e := newEvaluator(t, runner, Options{Cache: t.TempDir()})
	// This is called between the writing of the script and the run.
	runner.before = func() { writeFile(t, filepath.Join(workspace, ScriptName), "score 0.9") }
	job := Job{Script: "score 0.1", Task: newTask(t), Timeout: time.Minute, Workspace: workspace}
	got, err := e.Run(t.Context(), job)
	require.NoError(t, err)
	require.Equal(t, "score 0.1", ran)
	require.Empty(t, got.Warnings)

	// A record that holds another program is never cached.
	runner.forge = "score 0.9"
	job.Script = "score 0.2"
	for range 2 {
		got, err = e.Run(t.Context(), job)
		require.NoError(t, err)
		require.False(t, got.Cached)
		require.Contains(t, strings.Join(got.Warnings, "\n"), "that the program which ran is the script cannot be shown")
	}
}

// TestOneEvaluationInAFolder: nothing of one can be taken for another's.
func TestOneEvaluationInAFolder(t *testing.T) {
	workspace, task := t.TempDir(), newTask(t)
	job := Job{Script: "x", Task: task, Timeout: time.Minute, Workspace: workspace}
	var e *Harness
	runner := &fakeRunner{program: func(run fakeRun) fakeEnd {
		second := job
		second.Script = "y"
		_, err := e.Run(run.ctx, second)
		if !errors.Is(err, sandbox.ErrBusy) {
			return fakeEnd{err: fmt.Errorf("not busy: %w", err)}
		}
		return fakeEnd{stderr: err.Error()}
	}}
	e = newEvaluator(t, runner, Options{})
	got, err := e.Run(t.Context(), job)
	require.NoError(t, err)
	require.Contains(t, got.Stderr, "is in use by another evaluation")
	require.Equal(t, "x", read(t, filepath.Join(workspace, ScriptName)))
}

func TestLockWorkspace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "work")
	release, err := LockWorkspace(dir)
	require.NoError(t, err)
	_, err = LockWorkspace(dir)
	require.ErrorIs(t, err, sandbox.ErrBusy)
	require.ErrorContains(t, err, "is in use by another batch")
	var workspace *FileError
	require.ErrorAs(t, err, &workspace)
	require.Contains(t, workspace.Hint(), "--output")
	require.NoError(t, release())
	release, err = LockWorkspace(dir)
	require.NoError(t, err)
	require.NoError(t, release())
}

// TestChangesDuringARunAreNotCached: also when they are taken back before its end.
func TestChangesDuringARunAreNotCached(t *testing.T) {
	for _, what := range []string{"data", "data and back", "answers", "sample"} {
		t.Run(what, func(t *testing.T) {
			task := newTask(t)
			grader, runner := newGrader(t, func(fakeRun) fakeEnd { return prints("0.5") })
			sample := filepath.Join(t.TempDir(), "sample.csv")
			writeFile(t, sample, "id,y\n1,0\n")
			file := map[string]string{
				"data": filepath.Join(task.DataDir, "train.csv"), "data and back": filepath.Join(task.DataDir, "train.csv"),
				"answers": filepath.Join(grader.Answers, "more.csv"), "sample": sample,
			}[what]
			writeFile(t, file, "id,y\n1,0\n")
			script := runner.program
			runner.program = func(run fakeRun) fakeEnd {
				if run.request.Name != "grader" {
					run.leave("submission.csv", "id,y\n1,0\n")
					treetest.Tick(t)
					writeFile(t, file, "id,y\n2,0\n")
					if what == "data and back" {
						writeFile(t, file, "id,y\n1,0\n")
					}
				}
				return script(run)
			}
			e := newEvaluator(t, runner, Options{Grader: grader, Submission: &submission.Rule{Sample: sample}, Cache: t.TempDir()})
			job := Job{Script: "x", Task: task, Timeout: time.Minute}
			got, err := e.Run(t.Context(), job)
			require.NoError(t, err)
			require.Contains(t, strings.Join(got.Warnings, "\n"), "changed during the run")
			writeFile(t, file, "id,y\n1,0\n")
			got, err = e.Run(t.Context(), job)
			require.NoError(t, err)
			require.False(t, got.Cached)
		})
	}
}

// TestGraderThatChanges: a grader whose directory changed after the evaluation began gives no score.
func TestGraderThatChanges(t *testing.T) {
	grader, runner := newGrader(t, func(fakeRun) fakeEnd { return prints("0.5") })
	grader.Script = filepath.Join(t.TempDir(), "grader")
	module := filepath.Join(grader.Script, "metric.py")
	writeFile(t, filepath.Join(grader.Script, "grade.py"), "grade")
	writeFile(t, module, "x")
	script := runner.program
	runner.program = func(run fakeRun) fakeEnd {
		if run.request.Name != "grader" {
			writeFile(t, module, "y")
		}
		return script(run)
	}
	got, err := newEvaluator(t, runner, Options{Grader: grader}).Run(t.Context(), Job{Script: "x", Task: newTask(t), Timeout: time.Minute})
	require.NoError(t, err)
	require.Nil(t, got.GradedScore)
	require.Contains(t, got.Why, "has changed since the evaluation began")
}

// TestChangesBetweenRunsAreSeen: what an evaluator has hashed once it looks at again.
func TestChangesBetweenRunsAreSeen(t *testing.T) {
	task := newTask(t)
	var grader string
	g, runner := newGrader(t, nil)
	runner.program = func(run fakeRun) fakeEnd {
		if run.request.Name == "grader" {
			grader = run.script
			return prints("0.5")
		}
		return prints(strings.TrimSpace(read(t, filepath.Join(run.request.Input, "v"))))
	}
	e := newEvaluator(t, runner, Options{Cache: t.TempDir(), Grader: g})
	for i, want := range []struct {
		score  float64
		cached bool
	}{{0.2, false}, {0.7, false}, {0.2, true}, {0.7, true}} {
		writeFile(t, filepath.Join(task.DataDir, "v"), fmt.Sprint(want.score))
		writeFile(t, g.Script, "another grader "+fmt.Sprint(i))
		got, err := e.Run(t.Context(), Job{Script: "x", Task: task, Timeout: time.Minute})
		require.NoError(t, err)
		require.Equal(t, want.score, *got.Score)
		require.Equal(t, want.cached, got.Cached, "%d", i)
		require.Equal(t, "grade", grader, "the grader is the one that the evaluator was made with")
	}
}

// TestRepeatWithACache makes every run, and finds each the next time.
func TestRepeatWithACache(t *testing.T) {
	runner := &fakeRunner{program: func(run fakeRun) fakeEnd { return prints(fmt.Sprint(run.n)) }}
	e := newEvaluator(t, runner, Options{Cache: t.TempDir()})
	base := t.TempDir()
	job := Job{Script: "x", Task: newTask(t), Timeout: time.Minute, Workspace: filepath.Join(base, "w")}
	for _, cached := range []bool{false, true} {
		got, err := e.Repeat(t.Context(), job, 3, RepeatOptions{})
		require.NoError(t, err)
		require.Equal(t, 2.0, *got.Statistics.Mean)
		require.Equal(t, 1.0, *got.Statistics.Deviation)
		for i, evaluation := range got.Results {
			require.Equal(t, cached, evaluation.Cached)
			require.Equal(t, i, evaluation.Repetition)
		}
		require.Equal(t, []string{filepath.Join(base, "w-run-1"), filepath.Join(base, "w-run-2"), filepath.Join(base, "w-run-3")}, got.Workspaces)
	}
	require.Len(t, runner.requests, 3)
	got, err := e.Repeat(t.Context(), job, 4, RepeatOptions{Seeds: []uint32{5, 6, 5, 5}})
	require.NoError(t, err)
	var names []string
	for i, evaluation := range got.Results {
		require.False(t, evaluation.Cached, "also with the same seed")
		names = append(names, filepath.Base(got.Workspaces[i]))
	}
	require.Equal(t, []string{"w-seed-5", "w-seed-6", "w-seed-5-run-2", "w-seed-5-run-3"}, names)
	one, err := e.Repeat(t.Context(), job, 1, RepeatOptions{})
	require.NoError(t, err)
	require.Equal(t, []string{job.Workspace}, one.Workspaces)
}

// TestUnusableOptionsAreToldBeforeAnythingRuns names each with its rule.
func TestUnusableOptionsAreToldBeforeAnythingRuns(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	writeFile(t, at("ok"), "id,y\n1,0\n")
	writeFile(t, at("empty"), "")
	writeFile(t, at("cr"), "id,y\r1,0\r")
	writeFile(t, at("blank.py"), "\n \n")
	for name, test := range map[string]struct {
		opts Options
		want string
	}{
		"no grader":          {Options{Grader: &Grader{Script: at("nope.py"), Answers: dir}}, fmt.Sprintf("grader %q: does not exist", at("nope.py"))},
		"grader a directory": {Options{Grader: &Grader{Script: dir, Answers: dir}}, fmt.Sprintf("grader %q: does not exist", at("grade.py"))},
		"empty grader":       {Options{Grader: &Grader{Script: at("blank.py"), Answers: dir}}, fmt.Sprintf("grader %q: is empty", at("blank.py"))},
		"no answers":         {Options{Grader: &Grader{Script: at("ok"), Answers: at("no")}}, fmt.Sprintf("answers %q: does not exist", at("no"))},
		"answers a file":     {Options{Grader: &Grader{Script: at("ok"), Answers: at("ok")}}, fmt.Sprintf("answers %q: is not a directory", at("ok"))},
		"no sample":          {Options{Submission: &submission.Rule{Sample: at("no.csv")}}, fmt.Sprintf("sample %q: does not exist", at("no.csv"))},
		"sample a directory": {Options{Submission: &submission.Rule{Sample: dir}}, fmt.Sprintf("sample %q: is not a regular file (a directory)", dir)},
		"empty sample":       {Options{Submission: &submission.Rule{Sample: at("empty")}}, fmt.Sprintf("sample %q: is empty", at("empty"))},
		"sample with CR":     {Options{Submission: &submission.Rule{Sample: at("cr")}}, fmt.Sprintf("sample %q: its lines end with CR alone; they must end with LF", at("cr"))},
		"no such column":     {Options{Submission: &submission.Rule{Sample: at("ok"), IDColumn: "zz"}}, fmt.Sprintf("sample %q: has no column \"zz\"", at("ok"))},
	} {
		_, err := New(echo(), test.opts)
		require.EqualError(t, err, test.want, name)
	}
}

// TestCheckThatFailsSaysNothingAboutTheSubmission: nor is it kept.
func TestCheckThatFailsSaysNothingAboutTheSubmission(t *testing.T) {
	sample := filepath.Join(t.TempDir(), "sample.csv")
	writeFile(t, sample, "id,y\n1,0\n")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	runner := &fakeRunner{program: func(run fakeRun) fakeEnd {
		run.leave("submission.csv", "id,y\n1,0\n")
		if run.n == 1 {
			cancel()
		}
		return prints("1")
	}}
	e := newEvaluator(t, runner, Options{Submission: &submission.Rule{Sample: sample}, Cache: t.TempDir()})
	job := Job{Script: "x", Task: newTask(t), Timeout: time.Minute}
	got, err := e.Run(ctx, job)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, got.Failure, "the run is what it is")
	require.Equal(t, "the check was canceled after line 1", got.Submission.Failure)
	require.False(t, got.Submission.OK)
	require.Empty(t, got.Submission.Problems)
	require.False(t, got.Conclusive())

	got, err = e.Run(t.Context(), job)
	require.NoError(t, err)
	require.False(t, got.Cached)
	require.True(t, got.Submission.OK)
	require.True(t, got.Conclusive())

	// A sample that breaks in the middle is not a fault of the submission either.
	writeFile(t, sample, "id,y\n1\n")
	check := submission.Rule{Sample: sample}.Check(t.Context(), filepath.Dir(job.Task.DataDir))
	require.Equal(t, "sample line 2: 1 fields, the header has 2", check.Failure)
	require.False(t, check.OK)
}

// TestInterruptedRepairIsNotConclusive: the next batch repairs it.
func TestInterruptedRepairIsNotConclusive(t *testing.T) {
	task := newTask(t)
	e := newEvaluator(t, echo(), Options{})
	for name, test := range map[string]struct {
		retries    int
		conclusive bool
	}{"retries are left": {2, false}, "the last one": {1, false}, "none": {0, true}} {
		ctx, cancel := context.WithCancel(t.Context())
		debug := func(ctx context.Context, s mlestar.SolutionScript, _ Failure) (mlestar.SolutionScript, error) {
			cancel()
			return s, ctx.Err()
		}
		_, got, err := e.EvaluateWithRetry(ctx, mlestar.NewSolution("crash A: 1", mlestar.PhaseInit), task, mlestar.DefaultPipelineConfig(), debug, RetryOptions{MaxRetries: &test.retries})
		if test.conclusive {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, context.Canceled)
			require.Equal(t, fmt.Sprintf("canceled before the end of retry 1 of %d", test.retries), got.Failure)
		}
		require.Equal(t, test.conclusive, got.Conclusive(), name)
		cancel()
	}

	// The last repair was tried: there is nothing left to repair.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	runner := &fakeRunner{program: func(run fakeRun) fakeEnd {
		if run.n == 2 {
			cancel()
		}
		return crashes("A: 1")
	}}
	again := func(_ context.Context, s mlestar.SolutionScript, _ Failure) (mlestar.SolutionScript, error) {
		return mlestar.NewSolution(s.Content+"\n#", mlestar.PhaseRefined), nil
	}
	_, got, err := newEvaluator(t, runner, Options{}).EvaluateWithRetry(ctx, mlestar.NewSolution("x", mlestar.PhaseInit), task, mlestar.DefaultPipelineConfig(), again, RetryOptions{MaxRetries: new(1)})
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, got.Conclusive())
	require.Equal(t, 1, got.Repairs)
}

// TestGradingIsMadeUpFor without running the script again, as long as its outputs are there.
func TestGradingIsMadeUpFor(t *testing.T) {
	runs, grade := 0, fakeEnd{status: result.StatusCanceled, code: -1}
	runner := recording(t, func(run fakeRun) fakeEnd {
		if run.request.Name == "grader" {
			return grade
		}
		runs++
		run.leave("submission.csv", "id,y\n1,0\n")
		if strings.HasPrefix(run.script, "bad") {
			return crashes("A: 1")
		}
		return fakeEnd{stdout: "Final Validation Performance: 0.9\n"}
	})
	g, _ := newGrader(t, nil)
	told := 0
	e := newEvaluator(t, runner, Options{Grader: g, Grading: func(name string) {
		require.Equal(t, "a", name)
		told++
	}})
	task := newTask(t)
	repair := func(context.Context, mlestar.SolutionScript, Failure) (mlestar.SolutionScript, error) {
		return mlestar.NewSolution("good", mlestar.PhaseRefined), nil
	}
	evaluate := func(earlier *Result) (mlestar.SolutionScript, Result) {
		t.Helper()
		s, got, err := e.repair(t.Context(), mlestar.NewSolution("bad", mlestar.PhaseInit),
			Job{Script: "bad", Task: task, Timeout: time.Minute, Name: "a", Setup: "s", Earlier: earlier}, repair, 1)
		require.NoError(t, err)
		return s, got
	}
	_, first := evaluate(nil)
	require.False(t, first.Conclusive())
	require.Equal(t, 2, runs)
	require.Equal(t, 1, first.Repairs)
	require.Equal(t, 1, told)

	grade = prints("0.5")
	earlier := first.Bounded()
	earlier.Stdout = "" // as a file that was read briefly has it
	solution, second := evaluate(&earlier)
	require.Equal(t, 2, runs, "it did not run again")
	require.Equal(t, 0.5, *second.GradedScore)
	require.Equal(t, first.Run, second.Run)
	require.Equal(t, first.Stdout, second.Stdout)
	require.Equal(t, 1, second.Repairs)
	require.True(t, second.Conclusive())
	require.Equal(t, "good", solution.Content)
	require.Equal(t, first.ScriptSHA256, second.ScriptSHA256)
	require.Equal(t, first.OriginalSHA256, second.OriginalSHA256)

	// Another setup, or other outputs, are another matter.
	other := first
	other.SetupSHA256 = "t"
	evaluate(&other)
	require.Equal(t, 4, runs)
	writeFile(t, filepath.Join(filepath.Dir(task.DataDir), "final", "submission.csv"), "id,y\n1,1\n")
	evaluate(&first)
	require.Equal(t, 6, runs)
	_, err := os.Stat(filepath.Join(filepath.Dir(task.DataDir), "final", "submission.csv"))
	require.NoError(t, err)
}

// TestCanceledGrading: a canceled grading is reported as canceled by the caller.
func TestCanceledGrading(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g, runner := newGrader(t, func(fakeRun) fakeEnd {
		cancel()
		return fakeEnd{status: result.StatusCanceled, code: 143}
	})
	got, err := newEvaluator(t, runner, Options{Grader: g}).Run(ctx, Job{Script: "x", Task: newTask(t), Timeout: time.Minute})
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, got.Grading.Canceled)
	require.Equal(t, "the grading was canceled", got.Grading.Failure)
	require.Empty(t, got.Failure)
	require.False(t, got.GradingFailed(), "nobody failed")
	require.False(t, got.Conclusive())
}

// TestGraderRequest: what is asked for all runs holds for the grader's, too, and what was
// opened for scripts does not.
func TestGraderRequest(t *testing.T) {
	pattern := sandbox.Request{
		Image: "python", User: "1:1", Runtime: "runsc", AllowUnlocked: true, Transfer: spec.TransferCopy,
		GPUs: "1", Network: "bridge", Env: map[string]string{"A": "b"}, Args: []string{"x"},
	}
	got := Grader{Script: "g.py", Limits: policy.Limits{Timeout: time.Minute}}.request(pattern, "in", "")
	require.Equal(t, sandbox.Request{
		Name: "grader", Script: "g.py", Input: "in", Image: "python", User: "1:1", Runtime: "runsc", AllowUnlocked: true,
		Transfer: spec.TransferCopy, Limits: policy.Limits{Timeout: time.Minute}, Labels: map[string]string{},
	}, got)
}

// TestNothingOldLooksNew: what an earlier run left in final/ is not there when nothing ran.
func TestNothingOldLooksNew(t *testing.T) {
	runner := recording(t, func(run fakeRun) fakeEnd {
		run.leave("submission.csv", run.script)
		return prints("1")
	})
	e := newEvaluator(t, runner, Options{Cache: t.TempDir()})
	workspace := filepath.Join(t.TempDir(), "w")
	left := filepath.Join(workspace, "final", "submission.csv")
	job := func(text string) Job {
		return Job{Script: text, Timeout: time.Minute, Workspace: workspace}
	}
	task := newTask(t)
	evaluate := func(text string) Result {
		j := job(text)
		j.Task = task
		got, err := e.Run(t.Context(), j)
		if !errors.As(err, new(*ScriptError)) {
			require.NoError(t, err)
		}
		return got
	}
	evaluate("one")
	require.Equal(t, "one", read(t, left))
	require.True(t, evaluate("one").Cached)
	require.Equal(t, "one", read(t, left), "it is the run that is cached")
	evaluate("two")
	require.True(t, evaluate("one").Cached)
	require.NoFileExists(t, left, "a hit leaves no outputs of another run")
	evaluate("three")
	require.Equal(t, ErrorReasonRejected, evaluate("exit(0)").ErrorReason)
	require.NoFileExists(t, left, "nor does a script that is refused")
}

// TestScriptOfAnEvaluationIsReplaced, and somebody else's is not.
func TestScriptOfAnEvaluationIsReplaced(t *testing.T) {
	e := newEvaluator(t, echo(), Options{})
	workspace, task := filepath.Join(t.TempDir(), "w"), newTask(t)
	evaluate := func(text string) error {
		_, err := e.Run(t.Context(), Job{Script: text, Task: task, Timeout: time.Minute, Workspace: workspace})
		return err
	}
	require.NoError(t, evaluate("one"))
	require.NoError(t, os.RemoveAll(filepath.Join(workspace, "final")))
	require.NoError(t, evaluate("two"))
	require.Equal(t, "two", read(t, filepath.Join(workspace, ScriptName)))

	require.NoError(t, os.RemoveAll(filepath.Join(workspace, "final")))
	writeFile(t, filepath.Join(workspace, ScriptName), "mine")
	err := evaluate("three")
	require.ErrorContains(t, err, "solution.py is there without the final/ of an evaluation, so it may be yours")
	var workspaceError *FileError
	require.ErrorAs(t, err, &workspaceError)
	require.Contains(t, workspaceError.Hint(), "remove or move what is there")
	require.Equal(t, "mine", read(t, filepath.Join(workspace, ScriptName)))
}
