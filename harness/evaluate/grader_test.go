package evaluate

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// newGrader is a grader with answers, and a runner in which grade is what it does.
func newGrader(t *testing.T, grade func(run fakeRun) fakeEnd) (*Grader, *fakeRunner) {
	t.Helper()
	dir := t.TempDir()
	g := &Grader{Script: filepath.Join(dir, "grader.py"), Answers: filepath.Join(dir, "answers")}
	writeFile(t, g.Script, "grade")
	writeFile(t, filepath.Join(g.Answers, "deep", "answers.csv"), "id,x\n1,2\n")
	require.NoError(t, os.Chmod(filepath.Join(g.Answers, "deep", "answers.csv"), 0o600))
	require.NoError(t, os.Symlink("deep/answers.csv", filepath.Join(g.Answers, "link.csv")))
	return g, &fakeRunner{program: func(run fakeRun) fakeEnd {
		if run.script == "grade" {
			return grade(run)
		}
		run.leave("submission.csv", "id,x\n1,3\n")
		return prints("0.99")
	}}
}

func TestGrader(t *testing.T) {
	grader, runner := newGrader(t, func(run fakeRun) fakeEnd {
		// What a grader finds, and that anybody may read it.
		for path, want := range map[string]string{
			"submission/submission.csv": "id,x\n1,3\n", "answers/deep/answers.csv": "id,x\n1,2\n", "answers/link.csv": "id,x\n1,2\n",
		} {
			file := filepath.Join(run.request.Input, path)
			text, err := os.ReadFile(file)
			if err != nil || string(text) != want {
				return crashes("AssertionError: " + path)
			}
			for at := file; at != filepath.Dir(run.request.Input); at = filepath.Dir(at) {
				if info, err := os.Lstat(at); err != nil || info.Mode().Perm()&0o044 != 0o044 || info.Mode()&os.ModeSymlink != 0 {
					return crashes("AssertionError: mode of " + at)
				}
			}
		}
		return prints("0.5")
	})
	e := newEvaluator(t, runner, Options{Grader: grader, Request: sandbox.Request{
		Image: "python", User: "1:1", Network: "bridge", GPUs: "all", Env: map[string]string{"A": "b"}, Runtime: "runsc",
	}, Hooks: sandbox.Hooks{Waiting: func(string) {}, Started: func() {}}})
	got, err := e.Run(t.Context(), Job{Script: "x", Task: newTask(t), Timeout: time.Minute, Name: "first"})
	require.NoError(t, err)
	require.Empty(t, got.Grading.Failure)
	require.Equal(t, 0.5, *got.GradedScore)
	require.Equal(t, 0.99, *got.Score, "what the script printed is kept")
	require.True(t, got.SelfReported)
	require.Equal(t, 0.5, *got.BestScore())
	require.Equal(t, "run-2", got.Grading.Run.ID)

	req := runner.requests[1]
	require.Equal(t, "grader.py", filepath.Base(req.Script))
	require.Equal(t, sandbox.Request{
		Name: "grader", Script: req.Script, ScriptFrom: grader.Script, Input: req.Input, Image: "python", User: "1:1", Runtime: "runsc",
		Limits: policy.Limits{Timeout: DefaultGraderTimeout}, Labels: map[string]string{"graded": "first"},
	}, req, "nothing that was opened for scripts is open for a grader")
	require.Len(t, runner.options[1], 2, "the output of a grader is not shown")
	require.Equal(t, workOf(t, runner.options[0]).Key, workOf(t, runner.options[1]).Key, "the next call for this job ends both runs after a kill")
	hooks, _ := runner.options[1][0].(sandbox.Hooks)
	require.NotNil(t, hooks.Waiting)
	require.Nil(t, hooks.Started)
	require.NotContains(t, runner.requests[0].Input, filepath.Dir(grader.Answers), "no script sees the answers")
	require.Empty(t, tree(t, runner.Store().TempDir()), "the copies are gone")
}

func workOf(t *testing.T, options []sandbox.RunOption) sandbox.Work {
	t.Helper()
	for _, option := range options {
		if work, ok := option.(sandbox.Work); ok {
			return work
		}
	}
	t.Fatal("the run is for no job")
	return sandbox.Work{}
}

func TestGraderFailures(t *testing.T) {
	for name, test := range map[string]struct {
		grade   fakeEnd
		prepare func(g *Grader)
		want    string
		about   bool // the failure is about what the script left
	}{
		"crashes":         {about: true, grade: crashes("ValueError: x"), want: "the grader failed (exited, exit code 1): ValueError: x"},
		"dies":            {about: true, grade: fakeEnd{code: 139, status: result.StatusSignaled}, want: "the grader failed (signaled, exit code 139)"},
		"hangs":           {about: true, grade: fakeEnd{code: -1, timedOut: true, stdout: "Final Validation Performance: 1"}, want: "the grader failed (timed_out, exit code -1)"},
		"prints nothing":  {about: true, want: "the grader printed no score"},
		"not finite":      {about: true, grade: prints("1e999"), want: "the grader printed no score"},
		"cannot be run":   {grade: fakeEnd{err: errFake}, want: "running the grader: the engine is gone"},
		"out of memory":   {about: true, grade: fakeEnd{status: result.StatusOutOfMemory, stdout: "Final Validation Performance: 1"}, want: "the grader failed (out_of_memory"},
		"too much":        {prepare: func(g *Grader) { g.MaxBytes = 20 }, want: "more to copy for the grader than is permitted"},
		"a broken answer": {prepare: func(g *Grader) { _ = os.Symlink("nowhere", filepath.Join(g.Answers, "broken")) }, want: "broken"},
	} {
		t.Run(name, func(t *testing.T) {
			grader, runner := newGrader(t, func(fakeRun) fakeEnd { return test.grade })
			if test.prepare != nil {
				test.prepare(grader)
			}
			e := newEvaluator(t, runner, Options{Grader: grader})
			got, err := e.EvaluateSolution(t.Context(), mlestar.NewSolution("x", mlestar.PhaseInit), newTask(t), mlestar.DefaultPipelineConfig(), 0)
			require.NoError(t, err, "the solution's own result is kept")
			require.Equal(t, 0.99, *got.Score)
			require.True(t, got.Valid())
			require.Nil(t, got.GradedScore)
			require.Nil(t, got.BestScore())
			require.Contains(t, got.Grading.Failure, test.want)
			require.Equal(t, test.about, got.Conclusive())
			require.True(t, got.GradingFailed())
			require.Empty(t, tree(t, runner.Store().TempDir()))
		})
	}
}

// TestAnswersInTheInputAreRefused: no script may run that could read them.
func TestAnswersInTheInputAreRefused(t *testing.T) {
	task := newTask(t)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(task.DataDir, link))
	require.NoError(t, os.Mkdir(filepath.Join(task.DataDir, "answers"), 0o755))
	for _, answers := range []string{task.DataDir, filepath.Join(task.DataDir, "answers"), filepath.Dir(task.DataDir), link, filepath.Join(link, "answers")} {
		grader, runner := newGrader(t, nil)
		grader.Answers = answers
		_, err := newEvaluator(t, runner, Options{Grader: grader}).EvaluateSolution(t.Context(), mlestar.NewSolution("x", mlestar.PhaseInit), task, mlestar.DefaultPipelineConfig(), 0)
		var path *sandbox.PathError
		require.ErrorAs(t, err, &path, answers)
		require.Equal(t, "answers", path.Field)
		require.Empty(t, runner.requests)
	}
}

// What is graded is what the run left, not what lies there later.
func TestGraderRefusesWhatChanged(t *testing.T) {
	for name, test := range map[string]struct {
		change func(final string) error
		want   string
	}{
		"other text": {func(f string) error {
			return os.WriteFile(filepath.Join(f, "submission.csv"), []byte("id,x\n1,2\n"), 0o600)
		}, "changed after the run"},
		"gone": {func(f string) error { return os.Remove(filepath.Join(f, "submission.csv")) }, "no such file"},
		"a link": {func(f string) error {
			if err := os.Rename(filepath.Join(f, "submission.csv"), filepath.Join(f, "real")); err != nil {
				return err
			}
			return os.Symlink("real", filepath.Join(f, "submission.csv"))
		}, "is not a regular file"},
		"a name that leads out": {nil, "is not below ./final"},
	} {
		t.Run(name, func(t *testing.T) {
			grader, runner := newGrader(t, func(fakeRun) fakeEnd { return prints("1") })
			inner := runner.program
			runner.program = func(run fakeRun) fakeEnd {
				end := inner(run)
				end.change = func(res *result.Result) {
					if test.change == nil {
						res.Outputs[0].Path = "../solution.py"
						return
					}
					require.NoError(t, test.change(run.request.Final))
				}
				return end
			}
			got, err := newEvaluator(t, runner, Options{Grader: grader}).EvaluateSolution(t.Context(), mlestar.NewSolution("x", mlestar.PhaseInit), newTask(t), mlestar.DefaultPipelineConfig(), 0)
			require.NoError(t, err)
			require.Contains(t, got.Grading.Failure, test.want)
			require.Len(t, runner.requests, 1, "no grader ran")
		})
	}
}

func TestGraderSeesOutputsWithOddNames(t *testing.T) {
	name := "a\xffb"
	seen := ""
	grader, runner := newGrader(t, func(run fakeRun) fakeEnd {
		text, _ := os.ReadFile(filepath.Join(run.request.Input, "submission", name))
		seen = string(text)
		return prints("1")
	})
	runner.program = func(inner func(fakeRun) fakeEnd) func(fakeRun) fakeEnd {
		return func(run fakeRun) fakeEnd {
			if run.script == "grade" {
				return inner(run)
			}
			run.leave(name, "odd")
			return fakeEnd{stdout: "Final Validation Performance: 1", change: func(res *result.Result) {
				res.Outputs = []result.Output{{Path: `a\xffb`, PathBase64: "Yf9i", SHA256: hashText("odd")}}
			}}
		}
	}(runner.program)
	got, err := newEvaluator(t, runner, Options{Grader: grader}).EvaluateSolution(t.Context(), mlestar.NewSolution("x", mlestar.PhaseInit), newTask(t), mlestar.DefaultPipelineConfig(), 0)
	require.NoError(t, err)
	require.Empty(t, got.Grading.Failure)
	require.Equal(t, "odd", seen)
}

func TestNothingToGrade(t *testing.T) {
	grader, _ := newGrader(t, nil)
	got, err := newEvaluator(t, echo(), Options{Grader: grader}).EvaluateSolution(t.Context(), mlestar.NewSolution("crash A: 1", mlestar.PhaseInit), newTask(t), mlestar.DefaultPipelineConfig(), 0)
	require.NoError(t, err)
	require.Contains(t, got.Grading.Failure, "the script failed")
	require.True(t, got.Conclusive(), "running it again would not help")
}
