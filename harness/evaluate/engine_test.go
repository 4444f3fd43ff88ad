//go:build linux

package evaluate_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/harness/evaluate/submission"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/runnertest"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// These tests run on the real engine with the debian image. Without either they
// fail and say what to do: `make test` makes both.

var small = policy.Limits{Memory: 512 * policy.MiB, CPUs: 1}

// TestEngineExampleLeaderboard evaluates the solutions of examples/leaderboard as its
// README says.
func TestEngineExampleLeaderboard(t *testing.T) {
	if testing.Short() {
		t.Skip("it trains nine models: make test-all")
	}
	t.Parallel()
	const example = "../../examples/leaderboard"
	task, err := evaluate.LoadTask(filepath.Join(example, "task.yaml"))
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(example, "solutions", "*.py"))
	require.NoError(t, err)
	require.Len(t, files, 9)
	var listed []evaluate.ListedScript
	for _, file := range files {
		listed = append(listed, evaluate.ScriptNamed(file))
	}
	entries, err := evaluate.Entries(listed, nil, t.TempDir())
	require.NoError(t, err)
	grader := &evaluate.Grader{
		Script: filepath.Join(example, "grader.py"), Answers: filepath.Join(example, "answers"), Limits: small,
	}
	e, err := evaluate.New(runnertest.New(t), evaluate.Options{
		Request:    sandbox.Request{Limits: small},
		Submission: &submission.Rule{Sample: filepath.Join(example, "input", "sample_submission.csv")},
		Grader:     grader,
	})
	require.NoError(t, err)
	report, err := e.Batch(t.Context(), entries, evaluate.BatchOptions{Task: task, Timeout: time.Minute, Parallel: 2, KeepTexts: true})
	require.NoError(t, err)
	require.Empty(t, report.Errors)

	byName := map[string]evaluate.Result{}
	all := report.Complete(nil)
	for _, r := range all {
		byName[r.Name] = r
	}
	models := []string{"svm", "logistic", "neighbors", "forest", "tree", "bayes"}
	for _, name := range append([]string{"masked"}, models...) {
		e := byName[name]
		require.True(t, e.Valid(), "%s: %s", name, e.Stderr)
		require.True(t, e.Submission.OK, "%s: %q", name, e.Submission.Problems)
		require.Empty(t, e.Grading.Failure, name)
		t.Logf("%-10s printed %v, graded %v", name, *e.Score, *e.GradedScore)
	}
	for _, name := range models {
		require.True(t, evaluate.IsImprovement(*byName[name].GradedScore, *task.BaselineValue, task.MetricDirection), name)
	}
	require.InDelta(t, 0.9999, *byName["masked"].Score, 1e-9)
	require.InDelta(t, 0.3662, *byName["masked"].GradedScore, 1e-9)
	masked, err := evaluate.ReadScript(filepath.Join(example, "solutions", "masked.py"))
	require.NoError(t, err)
	require.NotEmpty(t, evaluate.DetectErrorMasking(masked))
	require.Contains(t, *byName["crash"].ErrorTraceback, "KeyError: 'malignant'")
	require.Equal(t, result.ErrorReasonTimedOut, byName["hang"].ErrorReason)
	require.InDelta(t, 0.6253, *byName["hang"].Score, 1e-9)

	ranked, err := evaluate.RankResults(all, task.MetricDirection)
	require.NoError(t, err)
	var order []string
	for _, e := range ranked {
		order = append(order, e.Name)
	}
	require.ElementsMatch(t, models, order[:6])
	require.Equal(t, []string{"masked", "crash", "hang"}, order[6:])
}

// newTask is a task with a directory of its own.
func newTask(t *testing.T) evaluate.TaskDescription {
	t.Helper()
	base := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(base, "input"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(base, "input", "data.txt"), []byte("secret\n"), 0o644))
	return evaluate.TaskDescription{CompetitionID: "test", MetricDirection: evaluate.Maximize, DataDir: base}
}

// TestEngineRunsOfOneClass have containers that waited, from the second run on, or the third if the
// second one is a repair. No container is prepared for nobody.
func TestEngineRunsOfOneClass(t *testing.T) {
	t.Parallel()
	r := runnertest.New(t, sandbox.WithPool(sandbox.Pool{Size: 2}))
	e, err := evaluate.New(r, evaluate.Options{Request: sandbox.Request{Limits: small}})
	require.NoError(t, err)
	waited := func(taken int, id string, want bool) {
		t.Helper()
		record, err := r.Record(id)
		require.NoError(t, err)
		require.Equal(t, want, record.Result.Pool.Waited, record.Result.Pool.Reason)
		require.Equal(t, taken, r.PoolStatus().Taken)
	}
	job := evaluate.Job{
		Script: "print('Final Validation Performance: 0.5')\n", Task: newTask(t), Timeout: time.Minute, Workspace: filepath.Join(t.TempDir(), "w"),
	}
	repeated, err := e.Repeat(t.Context(), job, 3, evaluate.RepeatOptions{})
	require.NoError(t, err)
	for i, res := range repeated.Results {
		require.True(t, res.Valid(), res.Stderr)
		waited(2, res.Run.ID, i > 0)
	}
	require.Zero(t, r.PoolStatus().Waiting)

	entries := make([]evaluate.Entry, 3)
	for i := range entries {
		text := "def f(:\n"
		entries[i] = evaluate.Entry{Text: &text, Name: fmt.Sprint("s", i), Workspace: filepath.Join(t.TempDir(), "w")}
	}
	tries := 0
	report, err := e.Batch(t.Context(), entries, evaluate.BatchOptions{Task: job.Task, Timeout: time.Minute, MaxRetries: 3,
		Debug: func(_ context.Context, s mlestar.SolutionScript, _ evaluate.Failure) (mlestar.SolutionScript, error) {
			if tries++; tries%3 == 0 {
				s = mlestar.NewSolution(job.Script, mlestar.PhaseRefined)
			}
			return s, nil
		}})
	require.NoError(t, err)
	for _, res := range report.Results {
		require.True(t, res.Valid(), res.Stderr)
		require.Equal(t, 3, res.Repairs)
	}
	// The last run of the last script is the only one that nothing was prepared for but itself.
	require.GreaterOrEqual(t, r.PoolStatus().Taken, 2+10)
	require.Zero(t, r.PoolStatus().Waiting)
}

// TestEngineRetry repairs a script that does not parse, in the task's own directory.
func TestEngineRetry(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	e, err := evaluate.New(runnertest.New(t), evaluate.Options{
		Request: sandbox.Request{Limits: small}, Log: slog.New(slog.NewTextHandler(&log, nil)),
	})
	require.NoError(t, err)
	task := newTask(t)
	require.NoError(t, os.Mkdir(filepath.Join(task.DataDir, "final"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(task.DataDir, "final", "submission.csv"), []byte("stale\n"), 0o644))
	var told string
	repair := func(_ context.Context, _ mlestar.SolutionScript, f evaluate.Failure) (mlestar.SolutionScript, error) {
		told = f.Text()
		return mlestar.NewSolution("import os\nprint(open('input/data.txt').read(), os.environ['SEED'], os.environ['PYTHONHASHSEED'])\n"+
			"print(os.listdir('final'))\nprint('Final Validation Performance: 0.5')\n", mlestar.PhaseRefined), nil
	}
	seed := uint32(7)
	config := mlestar.DefaultPipelineConfig()
	config.TimeLimitSeconds = 60
	solution, evaluation, err := e.EvaluateWithRetry(t.Context(), mlestar.NewSolution("def f(:\n", mlestar.PhaseInit), task, config,
		repair, evaluate.RetryOptions{Seed: &seed})
	require.NoError(t, err)
	require.Contains(t, told, "SyntaxError")
	require.True(t, evaluation.Valid(), evaluation.Stderr)
	require.Equal(t, 0.5, *evaluation.Score)
	require.Equal(t, "secret\n 7 7\n[]\nFinal Validation Performance: 0.5\n", evaluation.Stdout, "nothing stale is in final")
	require.Equal(t, mlestar.PhaseRefined, solution.Phase)
	ok, err := submission.Verify(task.DataDir, "")
	require.NoError(t, err)
	require.False(t, ok)
	require.Contains(t, log.String(), "script is repaired and tried again")
	kept, err := filepath.Glob(filepath.Join(task.DataDir, "final.before-*", "submission.csv"))
	require.NoError(t, err)
	require.Len(t, kept, 1, "what no run left in final is not lost")
}

// TestEngineExecuteScript keeps what a script printed before its time was over, and
// nothing of what it had started.
func TestEngineExecuteScript(t *testing.T) {
	t.Parallel()
	runner := runnertest.New(t)
	e, err := evaluate.New(runner, evaluate.Options{Request: sandbox.Request{Limits: small}})
	require.NoError(t, err)
	base, err := evaluate.SetupWorkingDirectory(newTask(t).DataDir)
	require.NoError(t, err)
	script, err := evaluate.WriteScript(mlestar.NewSolution(
		"import subprocess, sys, time\nsubprocess.Popen(['sleep', '600'])\nprint('begun')\nprint('to stderr', file=sys.stderr)\ntime.sleep(600)\n",
		mlestar.PhaseInit), base, "main.py")
	require.NoError(t, err)
	raw, err := e.ExecuteScript(t.Context(), script, base, 4*time.Second, nil)
	require.NoError(t, err)
	require.True(t, raw.TimedOut)
	require.Equal(t, -1, raw.ExitCode)
	require.Equal(t, "begun\n", raw.Stdout)
	require.Equal(t, "to stderr\n", raw.Stderr)
	require.GreaterOrEqual(t, raw.DurationSeconds, 4.0, "it had its time")
	// With the container all of its processes are gone, the one in the background too.
	containers, err := runner.Containers(t.Context())
	require.NoError(t, err)
	for _, c := range containers {
		require.NotEqual(t, runner.Store().Dir(), c.Labels[spec.LabelState], "container %s outlives the run", c.Name)
	}
}

// TestEngineExecuteScriptKeepsAllOutput: a score between megabytes of other lines is
// in what ExecuteScript returns (EX-011, EX-038).
func TestEngineExecuteScriptKeepsAllOutput(t *testing.T) {
	t.Parallel()
	e, err := evaluate.New(runnertest.New(t), evaluate.Options{Request: sandbox.Request{Limits: small}})
	require.NoError(t, err)
	base, err := evaluate.SetupWorkingDirectory(newTask(t).DataDir)
	require.NoError(t, err)
	script, err := evaluate.WriteScript(mlestar.NewSolution(
		"noise = ('x' * 79 + '\\n') * 30000\nprint(noise)\nprint('Final Validation Performance: 0.625')\nprint(noise)\n",
		mlestar.PhaseInit), base, "")
	require.NoError(t, err)
	raw, err := e.ExecuteScript(t.Context(), script, base, time.Minute, nil)
	require.NoError(t, err)
	require.Len(t, raw.Stdout, 2*(30000*80+1)+len("Final Validation Performance: 0.625\n"))
	got := result.BuildEvaluation(raw)
	require.NotNil(t, got.Score)
	require.Equal(t, 0.625, *got.Score)
}

// TestEngineRunsShareNothing: whatever a script leaves behind, the next one in the same
// working directory sees nothing of it (EX-010, EX-042). And none of the runs takes two
// seconds of our own, the best of them at least (EX-035).
func TestEngineRunsShareNothing(t *testing.T) {
	t.Parallel()
	runner := runnertest.New(t)
	e, err := evaluate.New(runner, evaluate.Options{Request: sandbox.Request{Limits: small}})
	require.NoError(t, err)
	task := newTask(t)
	const script = `import os, sys, tempfile
places = [os.getcwd(), os.path.expanduser("~"), tempfile.gettempdir(), "/tmp", "/dev/shm", "final"]
print([p for p in places if os.path.exists(os.path.join(p, "left-behind"))], os.environ.get("LEFT"), "left" in dir(sys))
os.environ["LEFT"], sys.left = "1", 1
written = 0
for p in places:
    try:
        open(os.path.join(p, "left-behind"), "w").write("x")
        written += 1
    except OSError:
        pass
if os.fork() == 0:
    os.setsid()
    __import__("time").sleep(600)
print(written >= 4)
`
	for range 2 {
		got, err := e.EvaluateSolution(t.Context(), mlestar.NewSolution(script, mlestar.PhaseInit), task, mlestar.DefaultPipelineConfig(), time.Minute)
		require.NoError(t, err)
		require.Equal(t, "[] None False\nTrue\n", got.Stdout, got.Stderr)
	}
	records, err := runner.Store().List()
	require.NoError(t, err)
	require.Len(t, records, 2)
	best := min(records[0].Result.SetupSeconds+records[0].Result.TeardownSeconds, records[1].Result.SetupSeconds+records[1].Result.TeardownSeconds)
	require.Less(t, best, 60.0, "nothing waits for the process that it left behind")
}

// TestEngineGradingIsMadeUpFor from the record of a real run.
func TestEngineGradingIsMadeUpFor(t *testing.T) {
	t.Parallel()
	runner, dir := runnertest.New(t), t.TempDir()
	grader := evaluate.Grader{Script: filepath.Join(dir, "grader.py"), Answers: t.TempDir(), Limits: small}
	require.NoError(t, os.WriteFile(grader.Script, []byte("print('Final Validation Performance:', open('input/submission/out').read())\n"), 0o600))
	impossible := grader
	impossible.MaxBytes = 1 // nothing fits: our failure
	job := evaluate.Job{
		Script: "open('final/out', 'w').write('0.25')\n",
		Task:   newTask(t), Timeout: time.Minute, Name: "made-up-for", Workspace: filepath.Join(t.TempDir(), "w"),
	}
	evaluator := func(g evaluate.Grader) *evaluate.Harness {
		e, err := evaluate.New(runner, evaluate.Options{Request: sandbox.Request{Limits: small}, Grader: &g})
		require.NoError(t, err)
		return e
	}
	first, err := evaluator(impossible).Run(t.Context(), job)
	require.NoError(t, err)
	require.False(t, first.Conclusive())
	job.Earlier = &first
	second, err := evaluator(grader).Run(t.Context(), job)
	require.NoError(t, err)
	require.Equal(t, first.Run, second.Run, "the script did not run again")
	require.Equal(t, 0.25, *second.GradedScore)
	require.True(t, second.Conclusive())

	// A script that is refused leaves nothing of that run in final.
	job.Script, job.Earlier = "exit(1)", nil
	refused, err := evaluator(grader).Run(t.Context(), job)
	require.NoError(t, err)
	require.ErrorAs(t, refused.Err(), new(*evaluate.ScriptError))
	require.Empty(t, refused.Warnings)
	require.NoFileExists(t, filepath.Join(job.Workspace, "final", "out"))
}

// TestEngineCache runs a script once, and finds its evaluation the second time.
func TestEngineCache(t *testing.T) {
	t.Parallel()
	runner, cache := runnertest.New(t), filepath.Join(t.TempDir(), "cache")
	e, err := evaluate.New(runner, evaluate.Options{
		Request: sandbox.Request{Limits: small}, Cache: cache,
	})
	require.NoError(t, err)
	job := evaluate.Job{
		Script: "print('Final Validation Performance: 0.5')",
		Task:   newTask(t), Timeout: time.Minute,
	}
	first, err := e.Run(t.Context(), job)
	require.NoError(t, err)
	plan, err := e.Plan(t.Context(), job)
	require.NoError(t, err)
	log, err := trial.OpenLog(cache)
	require.NoError(t, err)
	_, found, err := log.Conclusive(plan.Key)
	require.NoError(t, err)
	require.True(t, found, "a plan has the key of the run")
	job.Name = "again"
	second, err := e.Run(t.Context(), job)
	require.NoError(t, err)
	require.False(t, first.Cached)
	require.True(t, second.Cached)
	require.Equal(t, first.Run, second.Run)
	records, err := runner.Store().List()
	require.NoError(t, err)
	require.Len(t, records, 1)
}
