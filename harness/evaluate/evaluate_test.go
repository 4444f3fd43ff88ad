package evaluate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/harness/evaluate/submission"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

func TestEvaluateSolution(t *testing.T) {
	runner := &fakeRunner{program: func(run fakeRun) fakeEnd {
		run.leave("submission.csv", "id,x\n1,2\n")
		return prints("0.75")
	}}
	e := newEvaluator(t, runner, Options{Request: sandbox.Request{Image: "python", Env: map[string]string{"A": "b"}, GPUs: "1"}})
	task := newTask(t)
	base := filepath.Dir(task.DataDir)
	solution := mlestar.NewSolution("print('é')", mlestar.PhaseInit)
	before := solution
	t.Setenv("SECRET", "hidden")

	got, err := e.EvaluateSolution(t.Context(), solution, task, mlestar.DefaultPipelineConfig(), 0)
	require.NoError(t, err)
	require.Equal(t, 0.75, *got.Score)
	require.True(t, got.SelfReported)
	require.False(t, got.IsError)
	require.True(t, got.Valid())
	require.True(t, got.Conclusive())
	require.Equal(t, "run-1", got.Run.ID)
	require.Equal(t, "test", got.CompetitionID)
	require.Equal(t, hashText(solution.Content), got.ScriptSHA256)
	require.Equal(t, before, solution, "the input does not change (EX-016)")

	req := runner.requests[0]
	require.Equal(t, "solution.py", filepath.Base(req.Script), "a copy of its own runs")
	require.NoFileExists(t, req.Script, "and is gone")
	require.Equal(t, solution.Content, read(t, filepath.Join(base, "solution.py")))
	require.Equal(t, task.DataDir, req.Input)
	require.Equal(t, filepath.Join(base, "final"), req.Final)
	require.Equal(t, 24*time.Hour, req.Limits.Timeout)
	require.Equal(t, map[string]string{"A": "b", "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0"}, req.Env)
	require.Equal(t, "python", req.Image)
	require.Equal(t, "1", req.GPUs)
	require.Empty(t, req.Command)
	info, err := submission.Info(base, "")
	require.NoError(t, err)
	require.EqualValues(t, 1, *info.RowCount)
}

func TestEvaluateSolutionTimeouts(t *testing.T) {
	runner := echo()
	e := newEvaluator(t, runner, Options{})
	config := mlestar.DefaultPipelineConfig()
	config.TimeLimitSeconds = 60
	for _, c := range []struct{ override, want time.Duration }{
		{0, time.Minute}, {time.Second, time.Second}, {2 * time.Hour, 2 * time.Hour},
	} {
		_, err := e.EvaluateSolution(t.Context(), mlestar.NewSolution("x", mlestar.PhaseInit), newTask(t), config, c.override)
		require.NoError(t, err)
		require.Equal(t, c.want, runner.requests[len(runner.requests)-1].Limits.Timeout)
	}
	var field *policy.FieldError
	_, err := e.EvaluateSolution(t.Context(), mlestar.NewSolution("x", mlestar.PhaseInit), newTask(t), config, -1)
	require.ErrorAs(t, err, &field)
	_, err = e.EvaluateSolution(t.Context(), mlestar.NewSolution("x", mlestar.PhaseInit), newTask(t), mlestar.PipelineConfig{}, 0)
	require.ErrorAs(t, err, &field)
	config.TimeLimitSeconds = 1 << 62
	_, err = e.EvaluateSolution(t.Context(), mlestar.NewSolution("x", mlestar.PhaseInit), newTask(t), config, 0)
	require.NoError(t, err)
	require.Greater(t, runner.requests[len(runner.requests)-1].Limits.Timeout, 200*365*24*time.Hour, "no overflow")
}

func TestEvaluateSolutionEnds(t *testing.T) {
	for name, test := range map[string]struct {
		end   fakeEnd
		valid bool
		check func(t *testing.T, e Result)
	}{
		"no score": {fakeEnd{}, true, func(t *testing.T, e Result) {
			require.Nil(t, e.Score)
			require.False(t, e.SelfReported)
		}},
		"crash": {crashes("ValueError: x"), false, func(t *testing.T, e Result) {
			require.Contains(t, *e.ErrorTraceback, "ValueError: x")
			require.Equal(t, 1, e.ExitCode)
		}},
		"time": {fakeEnd{code: -1, timedOut: true, stdout: "Final Validation Performance: 0.5"}, false, func(t *testing.T, e Result) {
			require.Equal(t, result.ErrorReasonTimedOut, e.ErrorReason)
			require.Equal(t, 0.5, *e.Score)
		}},
		"a limit, and exit code 0": {fakeEnd{status: result.StatusDiskLimit, stdout: "Final Validation Performance: 0.5"}, false, func(t *testing.T, e Result) {
			require.False(t, e.IsError, "the rule of EX-013, to the letter")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEvaluator(t, &fakeRunner{program: func(fakeRun) fakeEnd { return test.end }}, Options{})
			got, err := e.EvaluateSolution(t.Context(), mlestar.NewSolution("x", mlestar.PhaseInit), newTask(t), mlestar.DefaultPipelineConfig(), 0)
			require.NoError(t, err)
			require.Equal(t, test.valid, got.Valid())
			test.check(t, got)
		})
	}
}

func TestEvaluateSolutionFailures(t *testing.T) {
	e := newEvaluator(t, echo(), Options{})
	task := newTask(t)
	got, err := e.EvaluateSolution(t.Context(), mlestar.NewSolution("lost", mlestar.PhaseInit), task, mlestar.DefaultPipelineConfig(), 0)
	require.ErrorIs(t, err, errFake)
	require.Equal(t, errFake.Error(), got.Failure)
	require.False(t, got.Valid())
	require.False(t, got.Conclusive())

	got, err = e.EvaluateSolution(t.Context(), mlestar.NewSolution("exit()", mlestar.PhaseInit), task, mlestar.DefaultPipelineConfig(), 0)
	var refused *ScriptError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, ErrorReasonRejected, got.ErrorReason)
	require.Equal(t, "script refused: line 1: calls exit(", got.ErrorSummary)
	require.Equal(t, -1, got.ExitCode)
	require.Empty(t, got.Failure)
	require.True(t, got.Conclusive())

	_, err = e.Run(t.Context(), Job{Script: "x", Task: task, Timeout: time.Minute, Name: "../x"})
	require.ErrorContains(t, err, "name")
	_, err = e.Run(t.Context(), Job{Script: "x", Task: task})
	require.ErrorContains(t, err, "timeout 0s: must be more than 0")
}

// A run that its program did not end by itself or by its own fault is a result, but not one
// that says anything about the script.
func TestConclusiveIsThatOfTheRun(t *testing.T) {
	for _, status := range result.Statuses() {
		for _, fault := range result.Faults() {
			want := result.Result{Status: status, Fault: fault}.Conclusive()
			require.Equal(t, want, Result{Run: &RunFacts{Status: status, Fault: fault}}.Conclusive(), "%v %v", status, fault)
		}
	}
	ended := Result{Run: facts("r", result.StatusExited)}
	for name, test := range map[string]struct {
		change func(e *Result)
		want   bool
	}{
		"graded":            {func(e *Result) { e.Grading = &Grading{Score: new(1.0), Ended: true} }, true},
		"grader raised":     {func(e *Result) { e.Grading = &Grading{Failure: "x", Ended: true} }, true},
		"grading failed":    {func(e *Result) { e.Grading = &Grading{Failure: "x"} }, false},
		"grading canceled":  {func(e *Result) { e.Grading = &Grading{Failure: "x", Ended: true, Canceled: true} }, false},
		"nothing to grade":  {func(e *Result) { e.Grading, e.IsError = &Grading{Failure: "x"}, true }, true},
		"wrong submission":  {func(e *Result) { e.Submission = &submission.Check{Problems: []string{"x"}} }, true},
		"check was broken":  {func(e *Result) { e.Submission = &submission.Check{Failure: "canceled"} }, false},
		"what is our fault": {func(e *Result) { e.Failure = "x" }, false},
	} {
		e := ended
		test.change(&e)
		require.Equal(t, test.want, e.Conclusive(), name)
	}
}

func TestEvaluateInAWorkspace(t *testing.T) {
	runner := echo()
	e := newEvaluator(t, runner, Options{Request: sandbox.Request{Env: map[string]string{"PYTHONHASHSEED": "random", "A": "b"}}})
	task, workspace := newTask(t), filepath.Join(t.TempDir(), "deep", "work")
	seed := uint32(7)
	_, err := e.Run(t.Context(), Job{
		Script: "x", Task: task, Timeout: time.Minute, Name: "first", Seed: &seed, Workspace: workspace,
	})
	require.NoError(t, err)
	req := runner.requests[0]
	require.Equal(t, "x", read(t, filepath.Join(workspace, "solution.py")))
	require.Equal(t, filepath.Join(workspace, "final"), req.Final)
	require.Equal(t, task.DataDir, req.Input)
	require.Equal(t, "first", req.Name)
	require.NoDirExists(t, filepath.Join(filepath.Dir(task.DataDir), "final"), "the task's own directory is left alone")
	require.Equal(t, "7", req.Env["SEED"])
	require.Equal(t, "7", req.Env["PYTHONHASHSEED"])
	require.Equal(t, "b", req.Env["A"])
	_, err = e.Run(t.Context(), Job{Script: "x", Task: task, Timeout: time.Minute})
	require.NoError(t, err)
	require.Equal(t, "random", runner.requests[1].Env["PYTHONHASHSEED"], "the caller's wins over ours")

	// The program that runs is a copy that is deleted: a record names the file of the caller, or the script that stays.
	require.Equal(t, filepath.Join(workspace, "solution.py"), req.ScriptFrom)
	require.NoFileExists(t, req.Script)
	_, err = e.Run(t.Context(), Job{Script: "x", File: "scripts/a.py", Task: task, Timeout: time.Minute})
	require.NoError(t, err)
	here, err := filepath.Abs("scripts/a.py")
	require.NoError(t, err)
	require.Equal(t, here, runner.requests[2].ScriptFrom)
}

func TestExecuteScript(t *testing.T) {
	runner := &fakeRunner{program: func(fakeRun) fakeEnd { return fakeEnd{stdout: "out", stderr: "err", code: 3} }}
	e := newEvaluator(t, runner, Options{})
	base, err := SetupWorkingDirectory(t.TempDir())
	require.NoError(t, err)
	script, err := WriteScript(mlestar.NewSolution("x", mlestar.PhaseInit), base, "")
	require.NoError(t, err)
	raw, err := e.ExecuteScript(t.Context(), script, base, time.Second, map[string]string{"A": "b"})
	require.NoError(t, err)
	require.Equal(t, result.ExecutionRawResult{Stdout: "out", Stderr: "err", ExitCode: 3, DurationSeconds: 1.5}, raw)
	require.Equal(t, map[string]string{"A": "b"}, runner.requests[0].Env)
	require.Equal(t, MaxRawOutput, runner.requests[0].Limits.CaptureStdout)
	require.Equal(t, MaxRawOutput, runner.requests[0].Limits.CaptureStderr)

	_, err = e.ExecuteScript(t.Context(), script, base, 0, nil)
	require.ErrorContains(t, err, "timeout")
	ran := len(runner.requests)
	_, err = e.ExecuteScript(t.Context(), filepath.Join(base, "nowhere.py"), base, time.Second, nil)
	require.ErrorIs(t, err, os.ErrNotExist, "a script that does not exist is an error, not exit code 2 of Python")
	require.Len(t, runner.requests, ran)
	runner.program = func(fakeRun) fakeEnd { return fakeEnd{err: errFake} }
	_, err = e.ExecuteScript(t.Context(), script, base, time.Second, nil)
	require.ErrorIs(t, err, errFake)
}

// TestExecuteScriptTellsWhatWasCut is EX-038: whatever is longer than the limit is
// cut, with a warning after it.
func TestExecuteScriptTellsWhatWasCut(t *testing.T) {
	runner := &fakeRunner{program: func(fakeRun) fakeEnd {
		return fakeEnd{stdout: "head…tail", stderr: "whole", change: func(res *result.Result) { res.StdoutTruncated = true }}
	}}
	e := newEvaluator(t, runner, Options{Request: sandbox.Request{Limits: policy.Limits{CaptureStdout: 9}}})
	base, err := SetupWorkingDirectory(t.TempDir())
	require.NoError(t, err)
	script, err := WriteScript(mlestar.NewSolution("x", mlestar.PhaseInit), base, "")
	require.NoError(t, err)
	raw, err := e.ExecuteScript(t.Context(), script, base, time.Second, nil)
	require.NoError(t, err)
	require.Equal(t, "head…tail"+result.TruncationWarning(9), raw.Stdout)
	require.Equal(t, "whole", raw.Stderr)
}

func TestScoreFunc(t *testing.T) {
	score := newEvaluator(t, echo(), Options{}).ScoreFunc(mlestar.DefaultPipelineConfig())
	got, err := score(t.Context(), mlestar.NewSolution("score 0.5", mlestar.PhaseInit), newTask(t))
	require.NoError(t, err)
	require.Equal(t, 0.5, *got.Score)
	_, err = score(t.Context(), mlestar.NewSolution("lost", mlestar.PhaseInit), newTask(t))
	require.ErrorIs(t, err, errFake)
}

func TestNewRefuses(t *testing.T) {
	_, err := New(nil, Options{})
	require.Error(t, err)
	_, err = New(echo(), Options{
		Request: sandbox.Request{
			ID: "x", Script: "x", Command: []string{"x"}, Input: "x", Final: "x", Stdin: true,
			Limits: policy.Limits{Timeout: time.Minute},
		},
		Submission: &submission.Rule{},
	})
	for _, field := range []string{"id:", "script:", "command:", "input:", "final:", "stdin:", "timeout:", "sample:"} {
		require.ErrorContains(t, err, field)
	}
}

// TestLogEvents: what happens to a script is logged, each thing at its level.
func TestLogEvents(t *testing.T) {
	var log bytes.Buffer
	e := newEvaluator(t, echo(), Options{Log: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	task := newTask(t)
	none := 1
	for _, script := range []string{"score 0.5", "crash ValueError: x", "hang"} {
		_, _, err := e.EvaluateWithRetry(t.Context(), mlestar.NewSolution(script, mlestar.PhaseInit), task, mlestar.DefaultPipelineConfig(),
			func(_ context.Context, s mlestar.SolutionScript, _ Failure) (mlestar.SolutionScript, error) {
				return mlestar.NewSolution("score 1", mlestar.PhaseInit), nil
			},
			RetryOptions{MaxRetries: &none})
		require.NoError(t, err)
	}
	events := map[string]map[string]any{}
	for line := range strings.Lines(log.String()) {
		var event map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &event))
		key := event["level"].(string) + " " + event["msg"].(string)
		if _, first := events[key]; !first {
			events[key] = event
		}
	}
	for key, fields := range map[string][]string{
		"DEBUG script written":                    {"path", "length"},
		"INFO script started":                     {"script", "cwd", "timeout"},
		"INFO script completed":                   {"exit_code", "duration_seconds", "score"},
		"WARN script timed out":                   {"timeout"},
		"WARN script failed":                      {"exit_code", "traceback", "exception"},
		"INFO script is repaired and tried again": {"retry", "max_retries"},
	} {
		require.Contains(t, events, key)
		for _, field := range fields {
			require.Contains(t, events[key], field, key)
		}
	}
	require.Equal(t, "Traceback (most recent call last):", events["WARN script failed"]["traceback"])
	require.Equal(t, "ValueError: x", events["WARN script failed"]["exception"])
	require.Equal(t, 0.5, events["INFO script completed"]["score"])
}

func TestEvaluationWireNames(t *testing.T) {
	text, err := json.Marshal(Result{MetricDirection: Maximize}.Bounded())
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(text, &fields))
	var want []string
	for typ := range reflect.TypeFor[result.EvaluationResult]().Fields() {
		want = append(want, typ.Tag.Get("json"))
	}
	want = append(want, "schema", "name", "competition_id", "script_sha256", "original_sha256", "setup_sha256", "seed", "repetition", "resource", "repairs", "run", "self_reported", "score_unfinished", "graded_score",
		"grading", "submission", "cached", "failure", "why", "metric_direction", "baseline_value", "limits")
	var got []string
	for name := range fields {
		got = append(got, name)
	}
	require.ElementsMatch(t, want, got)
	require.Equal(t, "evalbox/evaluation/v1", fields["schema"])
	require.True(t, bytes.HasPrefix(text, []byte(resultLines.Start)))
}

func TestEvaluateWithRetry(t *testing.T) {
	repairs := func(texts ...string) (DebugFunc, *[]string) {
		var told []string
		n := 0
		return func(_ context.Context, s mlestar.SolutionScript, f Failure) (mlestar.SolutionScript, error) {
			told = append(told, s.Content+": "+f.Text())
			n++
			if texts[n-1] == "fail" {
				return mlestar.SolutionScript{}, errors.New("no idea")
			}
			return mlestar.NewSolution(texts[n-1], mlestar.PhaseRefined), nil
		}, &told
	}
	tb := func(text string) string { return strings.TrimSpace(crashes(text).stderr) }
	for name, test := range map[string]struct {
		first   string
		repairs []string
		max     *int
		ran     int
		told    []string
		last    string
		valid   bool
	}{
		"good at once":          {"score 1", nil, nil, 1, nil, "score 1", true},
		"good after two":        {"crash A: 1", []string{"crash B: 2", "score 1"}, nil, 3, []string{"crash A: 1: " + tb("A: 1"), "crash B: 2: " + tb("B: 2")}, "score 1", true},
		"never good":            {"crash A: 1", []string{"crash A: 1", "crash A: 1", "crash C: 3"}, nil, 4, nil, "crash C: 3", false},
		"one repair":            {"crash A: 1", []string{"crash B: 2"}, new(1), 2, nil, "crash B: 2", false},
		"no repair":             {"crash A: 1", nil, new(0), 1, nil, "crash A: 1", false},
		"more than the config":  {"crash A: 1", []string{"hang", "hang", "hang", "hang", "score 1"}, new(5), 6, nil, "score 1", true},
		"without traceback":     {"hang", []string{"score 1"}, nil, 2, []string{"hang: The program ended."}, "score 1", true},
		"a repair is refused":   {"crash A: 1", []string{"exit()", "score 1"}, nil, 2, []string{"crash A: 1: " + tb("A: 1"), "exit(): script refused: line 1: calls exit("}, "score 1", true},
		"the last is refused":   {"crash A: 1", []string{"exit()"}, new(1), 1, nil, "exit()", false},
		"the first is refused":  {"quit()", []string{"score 1"}, nil, 1, []string{"quit(): script refused: line 1: calls quit("}, "score 1", true},
		"the debugger fails":    {"crash A: 1", []string{"fail", "score 1"}, nil, 2, nil, "score 1", true},
		"the debugger fails on": {"crash A: 1", []string{"fail", "fail", "fail"}, nil, 1, nil, "crash A: 1", false},
	} {
		t.Run(name, func(t *testing.T) {
			runner := echo()
			debug, told := repairs(test.repairs...)
			solution, evaluation, err := newEvaluator(t, runner, Options{}).EvaluateWithRetry(t.Context(),
				mlestar.NewSolution(test.first, mlestar.PhaseInit), newTask(t), mlestar.DefaultPipelineConfig(), debug, RetryOptions{MaxRetries: test.max})
			require.NoError(t, err)
			require.Len(t, runner.requests, test.ran)
			require.Equal(t, test.last, solution.Content)
			require.Equal(t, hashText(test.last), evaluation.ScriptSHA256, "the pair belongs together")
			require.Equal(t, test.valid, evaluation.Valid())
			require.Equal(t, !test.valid, evaluation.IsError)
			require.Len(t, *told, len(test.repairs))
			if test.told != nil {
				require.Equal(t, test.told, *told)
			}
		})
	}
}

func TestEvaluateWithRetryFailures(t *testing.T) {
	e := newEvaluator(t, echo(), Options{})
	fine := func(_ context.Context, s mlestar.SolutionScript, _ Failure) (mlestar.SolutionScript, error) {
		return s, nil
	}
	negative := -1
	_, _, err := e.EvaluateWithRetry(t.Context(), mlestar.NewSolution("x", mlestar.PhaseInit), newTask(t), mlestar.DefaultPipelineConfig(), fine, RetryOptions{MaxRetries: &negative})
	require.EqualError(t, err, "max_retries -1: must not be negative")
	_, evaluation, err := e.EvaluateWithRetry(t.Context(), mlestar.NewSolution("lost", mlestar.PhaseInit), newTask(t), mlestar.DefaultPipelineConfig(), fine, RetryOptions{})
	require.ErrorIs(t, err, errFake)
	require.NotEmpty(t, evaluation.Failure)

	// Whoever gives up gets the last pair.
	ctx, cancel := context.WithCancelCause(t.Context())
	solution, evaluation, err := e.EvaluateWithRetry(ctx, mlestar.NewSolution("crash A: 1", mlestar.PhaseInit), newTask(t), mlestar.DefaultPipelineConfig(),
		func(context.Context, mlestar.SolutionScript, Failure) (mlestar.SolutionScript, error) {
			cancel(errFake)
			return mlestar.NewSolution("other", mlestar.PhaseInit), nil
		}, RetryOptions{})
	require.ErrorIs(t, err, errFake)
	require.Equal(t, "crash A: 1", solution.Content)
	require.True(t, evaluation.IsError)
}

func TestFailureTextIsNeverEmpty(t *testing.T) {
	traceback, empty := "Traceback", ""
	for want, f := range map[string]Failure{
		"Traceback": {Traceback: &traceback, Result: Result{EvaluationResult: EvaluationResult{ErrorSummary: "tail"}}},
		"tail":      {Traceback: &empty, Result: Result{EvaluationResult: EvaluationResult{ErrorSummary: "tail"}}},
		"It ended.": {Result: Result{Run: &RunFacts{Explanation: "It ended."}}},
		"The script ended with exit code 3 and printed no error.": {Result: Result{EvaluationResult: EvaluationResult{ExitCode: 3}}},
	} {
		require.Equal(t, want, f.Text())
	}
}

func TestNothingOfTheTaskIsWrittenForARefusedScript(t *testing.T) {
	task := newTask(t)
	_, err := newEvaluator(t, echo(), Options{}).EvaluateSolution(t.Context(), mlestar.NewSolution(" ", mlestar.PhaseInit), task, mlestar.DefaultPipelineConfig(), 0)
	require.Error(t, err)
	_, err = os.Stat(filepath.Join(filepath.Dir(task.DataDir), "solution.py"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestEvaluateChecksTheSubmission(t *testing.T) {
	task := newTask(t)
	sample := filepath.Join(task.DataDir, "sample.csv")
	writeFile(t, sample, "id,x\n1,0\n")
	runner := &fakeRunner{program: func(run fakeRun) fakeEnd {
		run.leave("submission.csv", "id,x\n2,0\n")
		if run.script == "bad" {
			return crashes("A: 1")
		}
		return prints("1")
	}}
	e := newEvaluator(t, runner, Options{Submission: &submission.Rule{Sample: sample}})
	got, err := e.EvaluateSolution(t.Context(), mlestar.NewSolution("good", mlestar.PhaseInit), task, mlestar.DefaultPipelineConfig(), 0)
	require.NoError(t, err)
	require.False(t, got.Submission.OK)
	require.Contains(t, got.Submission.Problems[0], "the IDs are not the sample's")
	got, err = e.EvaluateSolution(t.Context(), mlestar.NewSolution("bad", mlestar.PhaseInit), task, mlestar.DefaultPipelineConfig(), 0)
	require.NoError(t, err)
	require.Nil(t, got.Submission)
}
