package evaluate

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/harness/evaluate/submission"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/spec"
)

func TestCache(t *testing.T) {
	runner := echo()
	task := newTask(t)
	cache := filepath.Join(t.TempDir(), "cache")
	e := newEvaluator(t, runner, Options{Cache: cache})
	job := Job{Script: "score 0.5", Task: task, Timeout: time.Minute, Name: "first"}
	first, err := e.Run(t.Context(), job)
	require.NoError(t, err)
	require.False(t, first.Cached)

	job.Name, job.Workspace = "second", t.TempDir()
	second, err := e.Run(t.Context(), job)
	require.NoError(t, err)
	require.True(t, second.Cached)
	require.Len(t, runner.requests, 1, "nothing ran")
	want := first
	want.Cached, want.Name = true, "second"
	require.Equal(t, want, second)

	// Another process finds it as well.
	third, err := newEvaluator(t, runner, Options{Cache: cache}).Run(t.Context(), job)
	require.NoError(t, err)
	require.True(t, third.Cached)

	// A damaged entry is ignored, and is replaced.
	found, err := filepath.Glob(filepath.Join(cache, "jobs", "*", "result.json"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	require.NoError(t, os.WriteFile(found[0], []byte("{"), 0o600))
	fourth, err := e.Run(t.Context(), job)
	require.NoError(t, err)
	require.False(t, fourth.Cached)
	fifth, err := e.Run(t.Context(), job)
	require.NoError(t, err)
	require.True(t, fifth.Cached)
}

// Whatever an evaluation depends on makes another entry.
// TestCacheTooLong: a result that the cache cannot hold is not an entry that never works.
func TestCacheTooLong(t *testing.T) {
	runner := &fakeRunner{program: func(fakeRun) fakeEnd { return fakeEnd{stdout: strings.Repeat("x", 33<<20)} }}
	cache := t.TempDir()
	h := newEvaluator(t, runner, Options{Cache: cache})
	for range 2 {
		res, err := h.Run(t.Context(), Job{Script: "x", Task: newTask(t), Timeout: time.Minute})
		require.NoError(t, err)
		require.Len(t, res.Warnings, 1)
		require.Contains(t, res.Warnings[0], "is not written: the result is longer than")
	}
}

func TestCacheMisses(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, job *Job, opts *Options){
		"script":  func(_ *testing.T, job *Job, _ *Options) { job.Script = "score 0.6" },
		"timeout": func(_ *testing.T, job *Job, _ *Options) { job.Timeout = 2 * time.Minute },
		"seed":    func(_ *testing.T, job *Job, _ *Options) { job.Seed = new(uint32(0)) },
		"GPU":     func(_ *testing.T, _ *Job, opts *Options) { opts.GPUKind = "H200" },
		"args":    func(_ *testing.T, _ *Job, opts *Options) { opts.Request.Args = []string{"x"} },
		"data": func(t *testing.T, job *Job, _ *Options) {
			writeFile(t, filepath.Join(job.Task.DataDir, "more.csv"), "x")
		},
		"no rule":      func(_ *testing.T, _ *Job, opts *Options) { opts.Submission = nil },
		"rule":         func(_ *testing.T, _ *Job, opts *Options) { opts.Submission.SameOrder = true },
		"sample":       func(t *testing.T, _ *Job, opts *Options) { writeFile(t, opts.Submission.Sample, "y") },
		"no grader":    func(_ *testing.T, _ *Job, opts *Options) { opts.Grader = nil },
		"grader":       func(t *testing.T, _ *Job, opts *Options) { writeFile(t, opts.Grader.Script, "score 0.7") },
		"grader image": func(_ *testing.T, _ *Job, opts *Options) { opts.Grader.Image = "other" },
		"answers": func(t *testing.T, _ *Job, opts *Options) {
			writeFile(t, filepath.Join(opts.Grader.Answers, "more.csv"), "x")
		},
	} {
		t.Run(name, func(t *testing.T) {
			runner := echo()
			opts := Options{Cache: t.TempDir(), Submission: &submission.Rule{Sample: filepath.Join(t.TempDir(), "s.csv")}}
			writeFile(t, opts.Submission.Sample, "id,x")
			opts.Grader, _ = newGrader(t, nil)
			opts.Grader.Image = "graders"
			writeFile(t, opts.Grader.Script, "score 0.5")
			job := Job{Script: "score 0.5", Task: newTask(t), Timeout: time.Minute}
			_, err := newEvaluator(t, runner, opts).Run(t.Context(), job)
			require.NoError(t, err)
			change(t, &job, &opts)
			for _, want := range []bool{false, true} {
				got, err := newEvaluator(t, runner, opts).Run(t.Context(), job)
				require.NoError(t, err)
				require.Equal(t, want, got.Cached)
			}
		})
	}
}

// TestCacheKeepsOnlyWhatWouldEndTheSameWay: bad luck is not remembered.
func TestCacheKeepsOnlyWhatWouldEndTheSameWay(t *testing.T) {
	for name, test := range map[string]struct {
		end  fakeEnd
		kept bool
	}{
		"exit 0":        {prints("1"), true},
		"exit 1":        {crashes("A: 1"), true},
		"time":          {fakeEnd{code: -1, timedOut: true}, false},
		"memory":        {fakeEnd{code: 137, status: result.StatusOutOfMemory}, false},
		"memory inside": {fakeEnd{change: func(res *result.Result) { res.OOMKilled = true }}, false},
		"disk":          {fakeEnd{status: result.StatusDiskLimit}, false},
		"output":        {fakeEnd{status: result.StatusOutputLimit}, false},
		"signal":        {fakeEnd{code: 139, status: result.StatusSignaled}, false},
		"canceled":      {fakeEnd{status: result.StatusCanceled}, false},
		"start":         {fakeEnd{code: 127, status: result.StatusStartFailed}, false},
		"engine":        {fakeEnd{status: result.StatusEngineLost}, false},
		"output lost":   {fakeEnd{change: func(res *result.Result) { res.OutputComplete = false }}, false},
	} {
		t.Run(name, func(t *testing.T) {
			runner := &fakeRunner{program: func(fakeRun) fakeEnd { return test.end }}
			e := newEvaluator(t, runner, Options{Cache: t.TempDir()})
			job := Job{Script: "x", Task: newTask(t), Timeout: time.Minute}
			for _, cached := range []bool{false, test.kept} {
				got, err := e.Run(t.Context(), job)
				require.NoError(t, err)
				require.Equal(t, cached, got.Cached)
			}
		})
	}
}

func TestCacheKeepsNoFailedGrading(t *testing.T) {
	grader, runner := newGrader(t, func(fakeRun) fakeEnd { return fakeEnd{} })
	e := newEvaluator(t, runner, Options{Grader: grader, Cache: t.TempDir()})
	for range 2 {
		got, err := e.EvaluateSolution(t.Context(), mlestar.NewSolution("x", mlestar.PhaseInit), newTask(t), mlestar.DefaultPipelineConfig(), 0)
		require.NoError(t, err)
		require.False(t, got.Cached)
	}
}

// TestCacheKeepsFailedScripts: also where there is a grader, which has nothing to grade then.
func TestCacheKeepsFailedScripts(t *testing.T) {
	grader, runner := newGrader(t, func(fakeRun) fakeEnd { return fakeEnd{} })
	runner.program = func(fakeRun) fakeEnd { return crashes("A: 1") }
	e := newEvaluator(t, runner, Options{Grader: grader, Cache: t.TempDir()})
	job := Job{Script: "x", Task: newTask(t), Timeout: time.Minute}
	for _, cached := range []bool{false, true} {
		got, err := e.Run(t.Context(), job)
		require.NoError(t, err)
		require.Equal(t, cached, got.Cached)
		require.Equal(t, "the script failed", got.Grading.Failure)
		require.True(t, got.IsError)
	}
}

// TestCacheOfAnotherScript: an entry has to say which script it is of.
// TestCacheOfACorrectedTask: a result that is known is ranked by the task of today.
func TestCacheOfACorrectedTask(t *testing.T) {
	e := newEvaluator(t, echo(), Options{Cache: t.TempDir()})
	job := Job{Script: "score 0.5", Task: newTask(t), Timeout: time.Minute}
	for _, direction := range []MetricDirection{Maximize, Minimize} {
		job.Task.MetricDirection = direction
		got, err := e.Run(t.Context(), job)
		require.NoError(t, err)
		require.Equal(t, direction, got.MetricDirection)
		require.Equal(t, direction == Minimize, got.Cached)
	}
}

func TestCacheOfAnotherScript(t *testing.T) {
	dir := t.TempDir()
	e, job := newEvaluator(t, echo(), Options{Cache: dir}), Job{Script: "score 0.5", Task: newTask(t), Timeout: time.Minute}
	_, err := e.Run(t.Context(), job)
	require.NoError(t, err)
	entries, err := filepath.Glob(filepath.Join(dir, "jobs", "*", "result.json"))
	require.NoError(t, err)
	require.Len(t, entries, 1)
	text, err := os.ReadFile(entries[0])
	require.NoError(t, err)
	writeFile(t, entries[0], strings.ReplaceAll(string(text), hashText("score 0.5"), hashText("score 0.6")))
	got, err := e.Run(t.Context(), job)
	require.NoError(t, err)
	require.False(t, got.Cached)
	require.Contains(t, strings.Join(got.Warnings, "\n"), "is of another script")
}

func TestCacheThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "x")
	_, err := New(echo(), Options{Cache: file})
	require.EqualError(t, err, fmt.Sprintf("cache %q: is not a directory", file))

	dir := t.TempDir()
	e := newEvaluator(t, echo(), Options{Cache: dir})
	// The directory of the index and that of the jobs are in the way.
	require.NoError(t, os.Mkdir(filepath.Join(dir, "index.jsonl"), 0o755))
	require.NoError(t, os.Remove(filepath.Join(dir, "jobs")))
	writeFile(t, filepath.Join(dir, "jobs"), "x")
	got, err := e.EvaluateSolution(t.Context(), mlestar.NewSolution("score 1", mlestar.PhaseInit), newTask(t), mlestar.DefaultPipelineConfig(), 0)
	require.NoError(t, err, "the evaluation is good all the same")
	require.Equal(t, 1.0, *got.Score)
	require.Contains(t, strings.Join(got.Warnings, "\n"), " cannot be used: ")
	require.Contains(t, strings.Join(got.Warnings, "\n"), " is not written: not a directory")
}

func TestCacheKey(t *testing.T) {
	base := func() keyParts {
		return keyParts{ProgramSHA256: "p", InputSHA256: "i", GPUKind: "k", Judges: map[string]string{"grader": "g"}, Spec: spec.Spec{
			Class: spec.Class{Image: spec.Image{ID: "id"}, GPUs: spec.GPURequest{IDs: []string{"0"}}, Env: []string{"A=b"}},
			Job:   spec.Job{Command: []string{"python3"}, TimeoutSeconds: 1},
		}}
	}
	want := base().key()
	require.Len(t, want, 64)
	for name, change := range map[string]func(p *keyParts){
		"run":       func(p *keyParts) { p.Spec.Job.RunID, p.Spec.Job.Name = "r", "n" },
		"label":     func(p *keyParts) { p.Spec.Job.Labels = map[string]string{"a": "b"} },
		"places":    func(p *keyParts) { p.Spec.Job.Script, p.Spec.Job.Input, p.Spec.Job.Final = "s", "i", "f" },
		"name":      func(p *keyParts) { p.Spec.Job.ScriptFrom = "/home/ada/a.py" },
		"reference": func(p *keyParts) { p.Spec.Class.Image.Reference = "python" },
		"which GPU": func(p *keyParts) { p.Spec.Class.GPUs.IDs = []string{"1"} },
	} {
		p := base()
		change(&p)
		require.Equal(t, want, p.key(), name)
	}
	seen := map[string]string{want: "nothing"}
	for name, change := range map[string]func(p *keyParts){
		"image":    func(p *keyParts) { p.Spec.Class.Image.ID = "other" },
		"memory":   func(p *keyParts) { p.Spec.Class.Cgroup.MemoryBytes = 1 },
		"network":  func(p *keyParts) { p.Spec.Class.Network = "bridge" },
		"user":     func(p *keyParts) { p.Spec.Class.User = "1:1" },
		"class":    func(p *keyParts) { p.Spec.Class.Env = nil },
		"GPUs":     func(p *keyParts) { p.Spec.Class.GPUs.IDs = []string{"0", "1"} },
		"env":      func(p *keyParts) { p.Spec.Job.Env = []string{"A=b"} },
		"args":     func(p *keyParts) { p.Spec.Job.Command = []string{"python3", "x"} },
		"time":     func(p *keyParts) { p.Spec.Job.TimeoutSeconds = 2 },
		"program":  func(p *keyParts) { p.ProgramSHA256 = "x" },
		"input":    func(p *keyParts) { p.InputSHA256 = "x" },
		"GPU kind": func(p *keyParts) { p.GPUKind = "x" },
		"seed":     func(p *keyParts) { p.Seed = new(uint32(1)) },
		"repeated": func(p *keyParts) { p.Repetition = 1 },
		"judges":   func(p *keyParts) { p.Judges["answers"] = "x" },
	} {
		p := base()
		change(&p)
		key := p.key()
		require.Empty(t, seen[key], "%s gives the key of %s", name, seen[key])
		seen[key] = name
	}
}
