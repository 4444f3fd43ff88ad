package sweep

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/invoke"
	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/sandbox"
)

// tool stands in for the harness of a tool. It leaves right artifacts, one of them listed,
// or does what do says, fails for the names in fail, and remembers its runs.
type tool struct {
	trial.Harness
	demands invoke.VerifyOptions
	do      func(ctx context.Context, name string, inv invoke.Invocation) error

	mu   sync.Mutex
	ran  []string
	jobs []trial.Job
	fail map[string]bool
	err  map[string]error
	// disturbed are names of runs of which the first one is disturbed.
	disturbed map[string]bool
}

func (o *tool) Run(ctx context.Context, job trial.Job, _ func(trial.Event)) (trial.Result, error) {
	o.mu.Lock()
	o.ran, o.jobs = append(o.ran, job.Name), append(o.jobs, job)
	o.mu.Unlock()
	var inv struct {
		Config, Adapter string
		OutputDir       string `json:"output_dir"`
		Seed            *invoke.Seed
	}
	if err := json.Unmarshal(job.Spec, &inv); err != nil {
		return trial.Result{}, err
	}
	if _, err := os.Stat(inv.Config); err != nil {
		return trial.Result{}, err
	}
	if err := o.err[job.Name]; err != nil {
		return trial.Result{Verdict: trial.Inconclusive}, err
	}
	res := invoke.Result{Schema: invoke.ResultSchemaV1, RunID: "run-" + job.ID, Stdout: "done " + inv.Adapter, ExitCode: new(0)}
	if o.fail[job.Name] {
		res.Stdout, res.Stderr, res.ExitCode, res.Reason, res.Error = "so far", "oh", new(3), invoke.ReasonNonzeroExit, "the tool exited with code 3"
		return res.Trial(job)
	}
	o.mu.Lock()
	disturbed := o.disturbed[job.Name]
	delete(o.disturbed, job.Name)
	o.mu.Unlock()
	if disturbed {
		res.Reason, res.Error = invoke.ReasonDisturbed, "the disk was full"
		t, err := res.Trial(job)
		return t, errors.Join(err, &invoke.InvocationError{Result: res})
	}
	do := o.do
	if do == nil {
		do = leave
	}
	if err := do(ctx, job.Name, invoke.Invocation{Config: inv.Config, OutputDir: inv.OutputDir, Seed: inv.Seed}); err != nil {
		return trial.Result{Verdict: trial.Inconclusive}, err
	}
	report, err := invoke.Verify(ctx, inv.OutputDir, o.demands)
	if err != nil {
		return trial.Result{Verdict: trial.Inconclusive}, err
	}
	res.Verification, res.OK = &report, report.OK
	return res.Trial(job)
}

func (*tool) Kind() string { return "invoke" }

// leave leaves right artifacts, for both modes.
func leave(_ context.Context, name string, inv invoke.Invocation) error {
	write := func(file, text string) error {
		return os.WriteFile(filepath.Join(inv.OutputDir, file), []byte(text), 0o644)
	}
	return errors.Join(
		write(invoke.ManifestName, `{"run_id": "`+name+`", "timestamp": "t", "seed": `+inv.Seed.String()+`, "artifacts": ["d/model.bin"]}`),
		write(invoke.TracePackName, "{\"step\": 1}\n"),
		os.Mkdir(filepath.Join(inv.OutputDir, "d"), 0o755),
		write("d/model.bin", "weights"))
}

// loose leaves a trace that is right in the mode Compat only.
func loose(ctx context.Context, name string, inv invoke.Invocation) error {
	return errors.Join(leave(ctx, name, inv), os.WriteFile(filepath.Join(inv.OutputDir, invoke.TracePackName), []byte("{\"step\": \"1\"}\n"), 0o644))
}

// tree are the names of all files below a directory.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(dir, path); err == nil && !entry.IsDir() {
			names = append(names, filepath.ToSlash(rel))
		}
		return err
	}))
	return names
}

func TestRun(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "sweep")
	o := &tool{}
	var begun int
	var ended []string
	events := map[trial.EventKind]int{}
	report, err := Run(t.Context(), o, testPlan(t), Options{Dir: dir, Setup: map[string]string{"exec": "x"},
		Begun: func() { begun++ }, Ended: func(e End) { ended = append(ended, e.Name) },
		Events: func(e trial.Event) { events[e.Kind]++ }})
	require.NoError(t, err)
	assert.Equal(t, map[trial.EventKind]int{trial.EventStarted: 4, trial.EventEnded: 4}, events)
	names := []string{"x=0p5_seed=1", "x=0p5_seed=2", "x=b_seed=1", "x=b_seed=2"}
	assert.Equal(t, names, o.ran)
	assert.NotEqual(t, o.jobs[0].ID, o.jobs[1].ID)
	assert.NotEmpty(t, o.jobs[0].Parent)
	assert.Equal(t, o.jobs[0].Parent, o.jobs[3].Parent, "the runs of a sweep have one parent")
	assert.Equal(t, 4, report.Count(StatusSucceeded))
	assert.Equal(t, filepath.Join(dir, ManifestName), string(report.Manifest))
	assert.Equal(t, 4, begun)
	assert.Equal(t, names, ended)

	want := []string{}
	for _, name := range names {
		for _, file := range []string{"output/d/model.bin", "output/manifest.json", "output/trace_pack.jsonl", "run.json", "spec.json", "stderr.log", "stdout.log"} {
			want = append(want, "runs/"+name+"/"+file)
		}
	}
	assert.Equal(t, append(want, "sweep.json", "sweep_manifest.json"), tree(t, dir))
	stdout, err := os.ReadFile(filepath.Join(dir, RunsName, names[0], StdoutName))
	require.NoError(t, err)
	assert.Equal(t, "done m", string(stdout))

	_, err = Run(t.Context(), o, testPlan(t), Options{Dir: dir, Setup: map[string]string{"exec": "x"}})
	require.ErrorIs(t, err, fs.ErrExist, "a sweep never writes into a directory that exists")
	require.ErrorContains(t, err, "exists already")
	assert.Len(t, o.ran, 4)
}

// TestRunFoldersAreNew: a directory that exists is never written into.
func TestRunFoldersAreNew(t *testing.T) {
	plan, dir := testPlan(t), filepath.Join(t.TempDir(), "s")
	next := filepath.Join(dir, RunsName, plan.Name(1))
	report, err := Run(t.Context(), &tool{do: func(ctx context.Context, name string, inv invoke.Invocation) error {
		return errors.Join(leave(ctx, name, inv), os.Mkdir(next, 0o755))
	}}, plan, Options{Dir: dir})
	require.ErrorIs(t, err, fs.ErrExist)
	require.ErrorContains(t, err, "its directory cannot be created")
	assert.Equal(t, 1, report.Count(StatusSucceeded))
	assert.Empty(t, tree(t, next))
}

// TestDisturbedRunsAgain: a run that its environment ended is done once more, in a new directory, when
// all others have ended.
func TestDisturbedRunsAgain(t *testing.T) {
	plan, dir := testPlan(t), filepath.Join(t.TempDir(), "s")
	o := &tool{disturbed: map[string]bool{plan.Name(1): true}}
	o.do = func(ctx context.Context, name string, inv invoke.Invocation) error {
		assert.Empty(t, tree(t, inv.OutputDir))
		return leave(ctx, name, inv)
	}
	report, err := Run(t.Context(), o, plan, Options{Dir: dir})
	require.NoError(t, err)
	assert.Equal(t, plan.Len(), report.Count(StatusSucceeded))
	assert.Equal(t, []string{plan.Name(0), plan.Name(1), plan.Name(2), plan.Name(3), plan.Name(1)}, o.ran)
}

// TestLastFailureEnds: there is no manifest either when nothing was left to begin.
func TestLastFailureEnds(t *testing.T) {
	plan, dir := testPlan(t), filepath.Join(t.TempDir(), "s")
	report, err := Run(t.Context(), &tool{fail: map[string]bool{plan.Name(3): true}}, plan, Options{Dir: dir})
	failures := new(FailuresError)
	require.ErrorAs(t, err, &failures)
	assert.False(t, failures.Stopped)
	assert.Contains(t, failures.Hint(), "the same command runs again what failed")
	assert.Empty(t, report.Manifest)
	assert.NoFileExists(t, filepath.Join(dir, ManifestName))
}

// TestManifestIsTheSame: however many runs go on at once, and in whichever order they end.
func TestManifestIsTheSame(t *testing.T) {
	plan := testPlan(t)
	var first []byte
	for _, parallel := range []int{0, 1, 2, 4, 9} {
		for _, failing := range []bool{false, true} {
			last := make(chan struct{})
			o := &tool{fail: map[string]bool{plan.Name(1): failing}, do: func(ctx context.Context, name string, inv invoke.Invocation) error {
				if parallel >= plan.Len() { // the first one ends last
					if name == plan.Name(0) {
						<-last
					} else if name == plan.Name(3) {
						defer close(last)
					}
				}
				return leave(ctx, name, inv)
			}}
			report, err := Run(t.Context(), o, plan, Options{Dir: filepath.Join(t.TempDir(), "s"), Parallel: parallel, KeepGoing: true})
			if failing {
				failures := new(FailuresError)
				require.ErrorAs(t, err, &failures)
				require.Equal(t, FailuresError{Failed: 1, All: 4, Name: plan.Name(1), Failure: "the tool exited with code 3"}, *failures)
			} else {
				require.NoError(t, err)
			}
			text, err := os.ReadFile(string(report.Manifest))
			require.NoError(t, err)
			if failing {
				require.Contains(t, string(text), `"manifest_hash": null`)
				continue
			}
			if first == nil {
				first = text
			}
			require.Equal(t, string(first), string(text))
		}
	}
}

// TestFirstFailureEnds: nothing more begins, there is no manifest, and what was printed is
// kept. Going on runs what has not succeeded, and nothing else.
func TestFirstFailureEnds(t *testing.T) {
	plan, dir := testPlan(t), filepath.Join(t.TempDir(), "s")
	o := &tool{fail: map[string]bool{plan.Name(1): true}}
	report, err := Run(t.Context(), o, plan, Options{Dir: dir})
	require.EqualError(t, err, "run x=0p5_seed=2 failed: the tool exited with code 3; nothing more was started")
	assert.Len(t, o.ran, 2)
	assert.Empty(t, report.Manifest)
	assert.NoFileExists(t, filepath.Join(dir, ManifestName))
	assert.Equal(t, []int{1, 1, 2}, []int{report.Count(StatusSucceeded), report.Count(StatusFailed), report.Count(StatusMissing)})
	printed, err := os.ReadFile(filepath.Join(dir, RunsName, plan.Name(1), StderrName))
	require.NoError(t, err)
	assert.Equal(t, "oh", string(printed))
	var r runFile
	text, err := os.ReadFile(filepath.Join(dir, RunsName, plan.Name(1), RunName))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &r))
	assert.Equal(t, runFile{Schema: RunSchemaV1, Status: StatusFailed, ExitCode: new(3), Failure: "the tool exited with code 3"}, r)

	kept := -1
	fixed := &tool{}
	report, err = Run(t.Context(), fixed, plan, Options{Dir: dir, Resume: true, Resumed: func(n int) { kept = n }})
	require.NoError(t, err)
	assert.Equal(t, 1, kept)
	assert.Equal(t, []string{plan.Name(1), plan.Name(2), plan.Name(3)}, fixed.ran)
	assert.True(t, report.Runs[0].Kept)
	resumed, err := os.ReadFile(string(report.Manifest))
	require.NoError(t, err)
	whole, err := Run(t.Context(), &tool{}, plan, Options{Dir: filepath.Join(t.TempDir(), "s"), Resume: true})
	require.NoError(t, err, "to go on with nothing is to begin")
	want, err := os.ReadFile(string(whole.Manifest))
	require.NoError(t, err)
	assert.Equal(t, string(want), string(resumed))

	again := &tool{}
	_, err = Run(t.Context(), again, plan, Options{Dir: dir, Resume: true})
	require.NoError(t, err)
	assert.Empty(t, again.ran)
}

// TestResumeTrustsNothing: what is not as it was is done again.
func TestResumeTrustsNothing(t *testing.T) {
	plan := testPlan(t)
	run := func(name string) string { return filepath.Join(RunsName, plan.Name(1), name) }
	for name, spoil := range map[string]func(t *testing.T, root string){
		"another manifest": func(t *testing.T, root string) {
			require.NoError(t, os.WriteFile(filepath.Join(root, run("output/manifest.json")), []byte("{}"), 0o644))
		},
		"no manifest": func(t *testing.T, root string) {
			require.NoError(t, os.Remove(filepath.Join(root, run("output/manifest.json"))))
		},
		"a link for a manifest": func(t *testing.T, root string) {
			path := filepath.Join(root, run("output/manifest.json"))
			require.NoError(t, os.Rename(path, path+"_"))
			require.NoError(t, os.Symlink("manifest.json_", path))
		},
		"another output": func(t *testing.T, root string) {
			require.NoError(t, os.RemoveAll(filepath.Join(root, run("output"))))
			require.NoError(t, os.Symlink(filepath.Join("..", plan.Name(0), "output"), filepath.Join(root, run("output"))))
		},
		"another spec": func(t *testing.T, root string) {
			require.NoError(t, os.WriteFile(filepath.Join(root, run("spec.json")), []byte("{}"), 0o644))
		},
		"interrupted": func(t *testing.T, root string) { require.NoError(t, os.Remove(filepath.Join(root, run("run.json")))) },
		"half of an end": func(t *testing.T, root string) {
			require.NoError(t, os.WriteFile(filepath.Join(root, run("run.json")), []byte(`{"schema"`), 0o644))
		},
		"no directory": func(t *testing.T, root string) { require.NoError(t, os.RemoveAll(filepath.Join(root, run(".")))) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "s")
			_, err := Run(t.Context(), &tool{}, plan, Options{Dir: dir})
			require.NoError(t, err)
			want, err := os.ReadFile(filepath.Join(dir, ManifestName))
			require.NoError(t, err)
			spoil(t, dir)
			o := &tool{err: map[string]error{plan.Name(1): errors.New("engine lost")}}
			report, err := Run(t.Context(), o, plan, Options{Dir: dir, Resume: true})
			require.EqualError(t, err, "run "+plan.Name(1)+": engine lost")
			require.Equal(t, 1, report.Count(StatusMissing))
			require.NoFileExists(t, filepath.Join(dir, ManifestName), "the former manifest is not true any more")
			o = &tool{}
			report, err = Run(t.Context(), o, plan, Options{Dir: dir, Resume: true})
			require.NoError(t, err)
			require.Equal(t, []string{plan.Name(1)}, o.ran)
			got, err := os.ReadFile(string(report.Manifest))
			require.NoError(t, err)
			require.Equal(t, string(want), string(got))
		})
	}
}

func TestRunRefuses(t *testing.T) {
	plan, o := testPlan(t), &tool{}
	for name, test := range map[string]struct {
		plan Plan
		opts Options
		want string
	}{
		"no directory": {plan, Options{}, "output: must not be empty"},
		"parallel":     {plan, Options{Dir: "x", Parallel: -1}, "parallel -1: must not be negative"},
		"no plan":      {Plan{}, Options{Dir: "x"}, "has no runs"},
	} {
		_, err := Run(t.Context(), o, test.plan, test.opts)
		require.ErrorContains(t, err, test.want, name)
		require.EqualError(t, Check(test.plan, test.opts), err.Error())
		require.NoFileExists(t, "x")
	}

	dir := filepath.Join(t.TempDir(), "s")
	setup := map[string]string{"exec": "a"}
	_, err := Run(t.Context(), o, plan, Options{Dir: dir, Setup: setup})
	require.NoError(t, err)
	other, err := NewPlan(Config{Axes: []Axis{{"x", []any{0.5, "b"}}}, Seeds: seeds(1), Adapter: new("m")}, plan.base)
	require.NoError(t, err)
	_, err = Run(t.Context(), o, other, Options{Dir: dir, Resume: true})
	require.ErrorContains(t, err, `is of another sweep: exec is not given any more; seeds was [1,2] and is [1]`)
	_, err = Run(t.Context(), &tool{err: map[string]error{plan.Name(0): errors.New("ran")}}, plan, Options{Dir: dir, Resume: true, Setup: setup})
	require.NoError(t, err)

	// Directories that are no sweep's stay as they are.
	for name, make := range map[string]func(path string) error{
		"a file": func(path string) error { return os.WriteFile(path, nil, 0o644) },
		"a pipe": func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"of something else": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, "thesis.tex"), nil, 0o644))
		},
		"a pipe within": func(path string) error {
			return errors.Join(os.Mkdir(path, 0o755), syscall.Mkfifo(filepath.Join(path, DefinitionName), 0o600))
		},
		"a dangling link": func(path string) error { return os.Symlink("nowhere", path) },
		"leads out": func(path string) error {
			text, err := plan.definition(nil)
			return errors.Join(err, os.Mkdir(path, 0o755), os.WriteFile(filepath.Join(path, DefinitionName), text, 0o644),
				os.Symlink(t.TempDir(), filepath.Join(path, RunsName)))
		},
	} {
		path := filepath.Join(t.TempDir(), "s")
		require.NoError(t, make(path))
		for _, resume := range []bool{false, true} {
			_, err := Run(t.Context(), o, plan, Options{Dir: path, Resume: resume})
			refused := new(DirError)
			require.ErrorAs(t, err, &refused, name)
			if name != "leads out" || !resume { // that is seen when it is taken
				require.EqualError(t, Check(plan, Options{Dir: path, Resume: resume}), err.Error(), "Check says the same")
			}
			require.NotEmpty(t, refused.Hint())
		}
	}
	assert.Len(t, o.ran, 4)
}

// TestOneSweepAtATime: a sweep locks its directory.
func TestOneSweepAtATime(t *testing.T) {
	plan, dir := testPlan(t), filepath.Join(t.TempDir(), "s")
	o := &tool{}
	o.do = func(ctx context.Context, name string, inv invoke.Invocation) error {
		_, err := Run(ctx, o, plan, Options{Dir: dir, Resume: true})
		if !errors.Is(err, sandbox.ErrBusy) {
			t.Errorf("not refused: %v", err)
		}
		return leave(ctx, name, inv)
	}
	_, err := Run(t.Context(), o, plan, Options{Dir: dir})
	require.NoError(t, err)
	assert.Len(t, o.ran, 4)
}

// TestInterrupted: what ended is kept, what was under way is missing.
func TestInterrupted(t *testing.T) {
	plan, dir, stop := testPlan(t), filepath.Join(t.TempDir(), "s"), errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	o := &tool{do: func(ctx context.Context, name string, inv invoke.Invocation) error {
		if name == plan.Name(1) {
			cancel(stop)
			return context.Cause(ctx)
		}
		return leave(ctx, name, inv)
	}}
	report, err := Run(ctx, o, plan, Options{Dir: dir})
	require.EqualError(t, err, "interrupted")
	require.ErrorIs(t, err, stop)
	assert.Equal(t, []int{1, 3}, []int{report.Count(StatusSucceeded), report.Count(StatusMissing)})
	assert.NoFileExists(t, filepath.Join(dir, ManifestName))
	_, err = Run(ctx, o, plan, Options{Dir: filepath.Join(dir, "other")})
	require.ErrorIs(t, err, stop)
	assert.NoDirExists(t, filepath.Join(dir, "other"))

	o = &tool{}
	report, err = Run(t.Context(), o, plan, Options{Dir: dir, Resume: true, Parallel: 2})
	require.NoError(t, err)
	assert.Len(t, o.ran, 3)
	assert.FileExists(t, string(report.Manifest))
}

// TestToolMisbehaves: a run with wrong artifacts has failed, and so has its sweep.
func TestToolMisbehaves(t *testing.T) {
	plan := testPlan(t)
	for want, do := range map[string]func(ctx context.Context, name string, inv invoke.Invocation) error{
		"manifest.json: does not exist (and 1 more)": func(context.Context, string, invoke.Invocation) error { return nil },
		"is not a regular file (a directory)": func(_ context.Context, _ string, inv invoke.Invocation) error {
			return os.Mkdir(filepath.Join(inv.OutputDir, invoke.ManifestName), 0o755)
		},
		"trace_pack.jsonl:1: step must be a whole number": loose,
	} {
		_, err := Run(t.Context(), &tool{do: do}, plan, Options{Dir: filepath.Join(t.TempDir(), "s")})
		failures := new(FailuresError)
		require.ErrorAs(t, err, &failures, want)
		require.Contains(t, failures.Failure, want)
		require.True(t, failures.Stopped)
		require.Contains(t, failures.Hint(), "runs/x=0p5_seed=1/stderr.log has what it printed; the same command goes on")
	}
}

// refuser refuses every job.
type refuser struct{ *tool }

func (refuser) Run(_ context.Context, job trial.Job, _ func(trial.Event)) (trial.Result, error) {
	return invoke.Result{Reason: invoke.ReasonRefused, Error: "memory: is too much"}.Trial(job)
}

// TestRefusedRuns: a refusal, which every run would get, ends a sweep also if it keeps going.
func TestRefusedRuns(t *testing.T) {
	report, err := Run(t.Context(), refuser{}, testPlan(t), Options{Dir: filepath.Join(t.TempDir(), "s"), KeepGoing: true})
	require.EqualError(t, err, "run x=0p5_seed=1: memory: is too much")
	require.Equal(t, 4, report.Count(StatusMissing))
	require.Empty(t, report.Manifest)
}

func TestLoadSpec(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "base.json")
	_, err := LoadSpec(path)
	require.ErrorContains(t, err, `base.json": not found`)
	require.NoError(t, os.WriteFile(path, []byte("[]"), 0o644))
	_, err = LoadSpec(path)
	require.ErrorContains(t, err, `base.json": must be a JSON object`)
	_, err = LoadSpec(dir)
	require.ErrorContains(t, err, "is not a regular file")
	require.NoError(t, os.WriteFile(path, []byte(`{"a": "`+strings.Repeat("x", MaxSpec)+`"}`), 0o644))
	_, err = LoadSpec(path)
	require.ErrorContains(t, err, "more than 16777216 bytes")
	require.NoError(t, os.WriteFile(path, []byte(`{"a": 1}`), 0o644))
	spec, err := LoadSpec(path)
	require.NoError(t, err)
	assert.Contains(t, spec.fields, "a")
}

// aside moves a directory and leaves a link to it.
func aside(path string) error {
	path = filepath.Clean(path)
	return errors.Join(os.Rename(path, path+"_"), os.Symlink(filepath.Base(path)+"_", path))
}

// TestResumeJudgesAgain: a run is kept if all of its artifacts are as they were, and right
// by the demands of now. All others run again.
func TestResumeJudgesAgain(t *testing.T) {
	compat := invoke.VerifyOptions{Mode: invoke.Compat}
	demanding := func(path string) invoke.VerifyOptions {
		return invoke.VerifyOptions{Mode: invoke.Compat, Profile: invoke.Profile{Artifacts: []invoke.Declared{{Path: path}}}}
	}
	plan := testPlan(t)
	output := func(dir, name string) string { return filepath.Join(dir, RunsName, plan.Name(1), OutputName, name) }
	all := []string{plan.Name(0), plan.Name(1), plan.Name(2), plan.Name(3)}
	for name, test := range map[string]struct {
		spoil   func(dir string) error
		before  invoke.VerifyOptions
		demands invoke.VerifyOptions
		want    []string
	}{
		"as it was":         {nil, compat, compat, nil},
		"the trace is gone": {func(dir string) error { return os.Remove(output(dir, invoke.TracePackName)) }, compat, compat, all[1:2]},
		"the trace changed": {func(dir string) error {
			return os.WriteFile(output(dir, invoke.TracePackName), []byte("{\"step\": \"2\"}\n"), 0o644)
		}, compat, compat, all[1:2]},
		"a listed one changed": {func(dir string) error { return os.WriteFile(output(dir, "d/model.bin"), []byte("WEIGHTS"), 0o644) }, compat, compat, all[1:2]},
		"a listed one is gone": {func(dir string) error { return os.Remove(output(dir, "d/model.bin")) }, compat, compat, all[1:2]},
		"a link for it": {func(dir string) error {
			return errors.Join(os.Remove(output(dir, "d/model.bin")), os.Symlink("../manifest.json", output(dir, "d/model.bin")))
		}, compat, compat, all[1:2]},
		"a declared one changed": {func(dir string) error { return os.WriteFile(output(dir, "extra"), []byte("y"), 0o644) }, demanding("extra"), compat, all[1:2]},
		"a declared one is gone": {func(dir string) error { return os.Remove(output(dir, "extra")) }, demanding("extra"), compat, all[1:2]},
		"a file for its directory": {func(dir string) error {
			return errors.Join(os.RemoveAll(output(dir, "e")), os.WriteFile(output(dir, "e"), nil, 0o644))
		}, demanding("e/extra"), compat, all[1:2]},
		"a demand less":           {nil, demanding("extra"), compat, nil},
		"strict from now on":      {nil, compat, invoke.VerifyOptions{}, all[:1]}, // and the first one ends it
		"a profile from now on":   {nil, compat, demanding("none.bin"), all[:1]},
		"a profile that it meets": {nil, compat, demanding("d/model.bin"), nil},
		"a name that leads out": {func(dir string) error {
			// The file there has the recorded hash, but is not an artifact.
			path := filepath.Join(dir, RunsName, plan.Name(1), RunName)
			text, err := os.ReadFile(path)
			spec, specErr := invoke.HashArtifact(t.Context(), filepath.Join(dir, RunsName, plan.Name(1), SpecName))
			text = bytes.Replace(text, []byte(`"artifacts": {`), []byte(`"artifacts": {"../spec.json": "`+spec+`", `), 1)
			return errors.Join(err, specErr, os.WriteFile(path, text, 0o644))
		}, compat, compat, all[1:2]},
		"a link for its output": {func(dir string) error { return aside(output(dir, "")) }, compat, compat, all[1:2]},
		"a link for all of it":  {func(dir string) error { return aside(filepath.Join(dir, RunsName, plan.Name(1))) }, compat, compat, all[1:2]},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "s")
			o := &tool{demands: test.before, do: func(ctx context.Context, name string, inv invoke.Invocation) error {
				return errors.Join(loose(ctx, name, inv), os.WriteFile(filepath.Join(inv.OutputDir, "extra"), []byte("x"), 0o644),
					os.Mkdir(filepath.Join(inv.OutputDir, "e"), 0o755), os.WriteFile(filepath.Join(inv.OutputDir, "e", "extra"), []byte("x"), 0o644))
			}}
			_, err := Run(t.Context(), o, plan, Options{Dir: dir})
			require.NoError(t, err)
			require.Equal(t, all, o.ran)
			if test.spoil != nil {
				require.NoError(t, test.spoil(dir))
			}
			o.ran, o.demands = nil, test.demands
			_, err = Run(t.Context(), o, plan, Options{Dir: dir, Resume: true, Verify: test.demands})
			if strings.Contains(name, "from now on") {
				require.ErrorAs(t, err, new(*FailuresError))
			} else {
				require.NoError(t, err)
			}
			assert.Equal(t, test.want, o.ran)
		})
	}
}

// TestResumeInterrupted: to interrupt the look at kept runs deletes nothing.
func TestResumeInterrupted(t *testing.T) {
	plan, dir := testPlan(t), filepath.Join(t.TempDir(), "s")
	o := &tool{}
	_, err := Run(t.Context(), o, plan, Options{Dir: dir})
	require.NoError(t, err)
	before := tree(t, dir)
	ctx, cancel := context.WithCancelCause(t.Context())
	s := &sweep{plan: plan, opts: Options{Dir: dir, Resume: true}, again: true}
	definition, err := plan.definition(nil)
	require.NoError(t, err)
	s.dir, _, err = openDir(dir, definition, true)
	require.NoError(t, err)
	s.report.Runs = make([]End, plan.Len())
	interrupted := errors.New("interrupted")
	cancel(interrupted)
	require.ErrorIs(t, s.resume(ctx), interrupted)
	require.NoError(t, s.dir.close())
	assert.Equal(t, before, tree(t, dir))
	assert.Len(t, o.ran, 4)
}

// TestCutShort: a directory without a definition is that of a new sweep, if it holds no more
// than a crash leaves there.
func TestCutShort(t *testing.T) {
	plan := testPlan(t)
	for _, there := range []string{"", DefinitionName + ".new-0123"} {
		dir := t.TempDir()
		if there != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, there), []byte("{"), 0o644))
		}
		opts := Options{Dir: dir, Resume: true}
		require.NoError(t, Check(plan, opts))
		report, err := Run(t.Context(), &tool{}, plan, opts)
		require.NoError(t, err)
		assert.FileExists(t, string(report.Manifest))
	}
	definition, err := plan.definition(nil)
	require.NoError(t, err)
	for _, text := range [][]byte{nil, definition[1:]} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, DefinitionName), text, 0o644))
		_, err = Run(t.Context(), &tool{}, plan, Options{Dir: dir, Resume: true})
		require.ErrorContains(t, err, "is of another sweep: sweep.json is not as it was written")
	}
}
