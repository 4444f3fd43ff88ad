//go:build unix

package sweep

import (
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

	"github.com/evalbox/evalbox/sandbox"
)

// tool is one that fails for the names that it is told, and counts its runs.
type tool struct {
	mu   sync.Mutex
	ran  []string
	fail map[string]bool
	err  map[string]error
}

func (o *tool) invoke(_ context.Context, job Job) (Outcome, error) {
	o.mu.Lock()
	o.ran = append(o.ran, job.Name)
	o.mu.Unlock()
	spec, err := os.ReadFile(job.Config)
	if err != nil {
		return Outcome{}, err
	}
	if err := o.err[job.Name]; err != nil {
		return Outcome{}, err
	}
	if o.fail[job.Name] {
		return Outcome{Stdout: "so far", Stderr: "oh", ExitCode: new(3), Failure: "the tool exited with code 3"}, nil
	}
	err = os.WriteFile(filepath.Join(job.OutputDir, toolManifest), spec, 0o644)
	return Outcome{Stdout: "done " + *job.Adapter, ExitCode: new(0)}, err
}

// tree are the names of all files below a folder.
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
	var begun, ended []string
	plan := testPlan(t)
	report, err := Run(t.Context(), testPlan(t), o.invoke, Options{Dir: dir, Setup: map[string]string{"exec": "x"},
		Begun: func(i int) { begun = append(begun, plan.Name(i)) }, Ended: func(e End) { ended = append(ended, e.Name) }})
	require.NoError(t, err)
	names := []string{"x=0p5_seed=1", "x=0p5_seed=2", "x=b_seed=1", "x=b_seed=2"}
	assert.Equal(t, names, o.ran)
	assert.Equal(t, 4, report.Count(StatusSucceeded))
	assert.Equal(t, filepath.Join(dir, ManifestName), report.Manifest)
	assert.Equal(t, names, begun)
	assert.Equal(t, names, ended)

	want := []string{}
	for _, name := range names {
		for _, file := range []string{"output/manifest.json", "run.json", "spec.json", "stderr.log", "stdout.log"} {
			want = append(want, "runs/"+name+"/"+file)
		}
	}
	assert.Equal(t, append(want, "sweep.json", "sweep_manifest.json"), tree(t, dir))
	stdout, err := os.ReadFile(filepath.Join(dir, RunsName, names[0], StdoutName))
	require.NoError(t, err)
	assert.Equal(t, "done m", string(stdout))

	_, err = Run(t.Context(), testPlan(t), o.invoke, Options{Dir: dir, Setup: map[string]string{"exec": "x"}})
	require.ErrorIs(t, err, fs.ErrExist, "a sweep never writes into a folder that is there")
	require.ErrorContains(t, err, "exists already")
	assert.Len(t, o.ran, 4)
}

// TestRunFoldersAreNew: what is there is never written into, whoever made it meanwhile.
func TestRunFoldersAreNew(t *testing.T) {
	plan, dir := testPlan(t), filepath.Join(t.TempDir(), "s")
	next := filepath.Join(dir, RunsName, plan.Name(1))
	report, err := Run(t.Context(), plan, func(ctx context.Context, job Job) (Outcome, error) {
		out, err := (&tool{}).invoke(ctx, job)
		return out, errors.Join(err, os.Mkdir(next, 0o755))
	}, Options{Dir: dir})
	require.ErrorIs(t, err, fs.ErrExist)
	require.ErrorContains(t, err, "its folder cannot be made")
	assert.Equal(t, 1, report.Count(StatusSucceeded))
	assert.Empty(t, tree(t, next))
}

// TestLastFailureEnds: there is no manifest either when nothing was left to begin.
func TestLastFailureEnds(t *testing.T) {
	plan, dir := testPlan(t), filepath.Join(t.TempDir(), "s")
	report, err := Run(t.Context(), plan, (&tool{fail: map[string]bool{plan.Name(3): true}}).invoke, Options{Dir: dir})
	failures := new(FailuresError)
	require.ErrorAs(t, err, &failures)
	assert.False(t, failures.Stopped)
	assert.Contains(t, failures.Hint(), "--resume runs again what failed")
	assert.Empty(t, report.Manifest)
	assert.NoFileExists(t, filepath.Join(dir, ManifestName))
}

// TestManifestIsTheSame: however many runs go on at once, and in whichever order they end.
func TestManifestIsTheSame(t *testing.T) {
	plan := testPlan(t)
	var first []byte
	for _, parallel := range []int{0, 1, 2, 4, 9} {
		for _, failing := range []bool{false, true} {
			o := &tool{fail: map[string]bool{plan.Name(1): failing}}
			last := make(chan struct{})
			invoke := func(ctx context.Context, job Job) (Outcome, error) {
				if parallel >= plan.Len() { // the first one ends last
					if job.Name == plan.Name(0) {
						<-last
					} else if job.Name == plan.Name(3) {
						defer close(last)
					}
				}
				return o.invoke(ctx, job)
			}
			report, err := Run(t.Context(), plan, invoke, Options{Dir: filepath.Join(t.TempDir(), "s"), Parallel: parallel, KeepGoing: true})
			if failing {
				failures := new(FailuresError)
				require.ErrorAs(t, err, &failures)
				require.Equal(t, FailuresError{Failed: 1, All: 4, Name: plan.Name(1), Failure: "the tool exited with code 3"}, *failures)
			} else {
				require.NoError(t, err)
			}
			text, err := os.ReadFile(report.Manifest)
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
	report, err := Run(t.Context(), plan, o.invoke, Options{Dir: dir})
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
	mended := &tool{}
	report, err = Run(t.Context(), plan, mended.invoke, Options{Dir: dir, Resume: true, Resumed: func(n int) { kept = n }})
	require.NoError(t, err)
	assert.Equal(t, 1, kept)
	assert.Equal(t, []string{plan.Name(1), plan.Name(2), plan.Name(3)}, mended.ran)
	assert.True(t, report.Runs[0].Kept)
	resumed, err := os.ReadFile(report.Manifest)
	require.NoError(t, err)
	whole, err := Run(t.Context(), plan, (&tool{}).invoke, Options{Dir: filepath.Join(t.TempDir(), "s"), Resume: true})
	require.NoError(t, err, "to go on with nothing is to begin")
	want, err := os.ReadFile(whole.Manifest)
	require.NoError(t, err)
	assert.Equal(t, string(want), string(resumed))

	again := &tool{}
	_, err = Run(t.Context(), plan, again.invoke, Options{Dir: dir, Resume: true})
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
		"no folder": func(t *testing.T, root string) { require.NoError(t, os.RemoveAll(filepath.Join(root, run(".")))) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "s")
			_, err := Run(t.Context(), plan, (&tool{}).invoke, Options{Dir: dir})
			require.NoError(t, err)
			want, err := os.ReadFile(filepath.Join(dir, ManifestName))
			require.NoError(t, err)
			spoil(t, dir)
			o := &tool{err: map[string]error{plan.Name(1): errors.New("engine lost")}}
			report, err := Run(t.Context(), plan, o.invoke, Options{Dir: dir, Resume: true})
			require.EqualError(t, err, "run "+plan.Name(1)+": engine lost")
			require.Equal(t, 1, report.Count(StatusMissing))
			require.NoFileExists(t, filepath.Join(dir, ManifestName), "what is not the case any more is not told")
			o = &tool{}
			report, err = Run(t.Context(), plan, o.invoke, Options{Dir: dir, Resume: true})
			require.NoError(t, err)
			require.Equal(t, []string{plan.Name(1)}, o.ran)
			got, err := os.ReadFile(report.Manifest)
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
		"no folder": {plan, Options{}, "output: must not be empty"},
		"parallel":  {plan, Options{Dir: "x", Parallel: -1}, "parallel -1: must not be negative"},
		"no plan":   {Plan{}, Options{Dir: "x"}, "has no runs"},
	} {
		_, err := Run(t.Context(), test.plan, o.invoke, test.opts)
		require.ErrorContains(t, err, test.want, name)
		require.EqualError(t, Check(test.plan, test.opts), err.Error())
		require.NoFileExists(t, "x")
	}

	dir := filepath.Join(t.TempDir(), "s")
	setup := map[string]string{"exec": "a"}
	_, err := Run(t.Context(), plan, o.invoke, Options{Dir: dir, Setup: setup})
	require.NoError(t, err)
	other, err := NewPlan(Config{Axes: []Axis{{"x", []any{0.5, "b"}}}, Seeds: []int64{1}, Adapter: new("m")}, plan.base)
	require.NoError(t, err)
	_, err = Run(t.Context(), other, o.invoke, Options{Dir: dir, Resume: true})
	require.ErrorContains(t, err, `is of another sweep: exec is not given any more; seeds was [1,2] and is [1]`)
	_, err = Run(t.Context(), plan, func(ctx context.Context, _ Job) (Outcome, error) {
		return Outcome{}, errors.New("ran")
	}, Options{Dir: dir, Resume: true, Setup: setup})
	require.NoError(t, err)

	// Folders that are no sweep's stay as they are.
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
			_, err := Run(t.Context(), plan, o.invoke, Options{Dir: path, Resume: resume})
			folder := new(FolderError)
			require.ErrorAs(t, err, &folder, name)
			if name != "leads out" || !resume { // that is seen when it is taken
				require.EqualError(t, Check(plan, Options{Dir: path, Resume: resume}), err.Error(), "told before as well")
			}
			require.NotEmpty(t, folder.Hint())
		}
	}
	assert.Len(t, o.ran, 4)
}

// TestOneSweepAtATime: the folder is the process's own meanwhile.
func TestOneSweepAtATime(t *testing.T) {
	plan, dir := testPlan(t), filepath.Join(t.TempDir(), "s")
	o := &tool{}
	_, err := Run(t.Context(), plan, func(ctx context.Context, job Job) (Outcome, error) {
		_, err := Run(ctx, plan, o.invoke, Options{Dir: dir, Resume: true})
		if !errors.Is(err, sandbox.ErrBusy) {
			t.Errorf("not refused: %v", err)
		}
		return o.invoke(ctx, job)
	}, Options{Dir: dir})
	require.NoError(t, err)
	assert.Len(t, o.ran, 4)
}

// TestInterrupted: what ended is kept, what was under way is missing.
func TestInterrupted(t *testing.T) {
	plan, dir, stop := testPlan(t), filepath.Join(t.TempDir(), "s"), errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	o := &tool{}
	report, err := Run(ctx, plan, func(ctx context.Context, job Job) (Outcome, error) {
		if job.Name == plan.Name(1) {
			cancel(stop)
			return Outcome{}, context.Cause(ctx)
		}
		return o.invoke(ctx, job)
	}, Options{Dir: dir})
	require.EqualError(t, err, "interrupted")
	require.ErrorIs(t, err, stop)
	assert.Equal(t, []int{1, 3}, []int{report.Count(StatusSucceeded), report.Count(StatusMissing)})
	assert.NoFileExists(t, filepath.Join(dir, ManifestName))
	_, err = Run(ctx, plan, o.invoke, Options{Dir: filepath.Join(dir, "other")})
	require.ErrorIs(t, err, stop)
	assert.NoDirExists(t, filepath.Join(dir, "other"))

	report, err = Run(t.Context(), plan, o.invoke, Options{Dir: dir, Resume: true, Parallel: 2})
	require.NoError(t, err)
	assert.Len(t, o.ran, 4)
	assert.FileExists(t, report.Manifest)
}

// TestToolMisbehaves: a run without a manifest of its own has failed.
func TestToolMisbehaves(t *testing.T) {
	plan := testPlan(t)
	for want, do := range map[string]func(job Job) error{
		"manifest.json: ":                   func(Job) error { return nil },
		"is not a regular file (a folder)":  func(job Job) error { return os.Mkdir(filepath.Join(job.OutputDir, toolManifest), 0o755) },
		"is not a regular file (a symbolic": func(job Job) error { return os.Symlink("/etc/hostname", filepath.Join(job.OutputDir, toolManifest)) },
		"output is a symbolic link": func(job Job) error {
			return errors.Join(os.Remove(job.OutputDir), os.Symlink(".", job.OutputDir))
		},
		"its spec was changed": func(job Job) error {
			return errors.Join(os.WriteFile(job.Config, []byte("{}"), 0o644), os.WriteFile(filepath.Join(job.OutputDir, toolManifest), nil, 0o644))
		},
	} {
		_, err := Run(t.Context(), plan, func(_ context.Context, job Job) (Outcome, error) { return Outcome{}, do(job) },
			Options{Dir: filepath.Join(t.TempDir(), "s")})
		failures := new(FailuresError)
		require.ErrorAs(t, err, &failures, want)
		require.Contains(t, failures.Failure, want)
		require.True(t, failures.Stopped)
		require.Contains(t, failures.Hint(), "runs/x=0p5_seed=1/stderr.log has what it printed; go on with --resume")
	}
}

func TestLoadSpec(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "base.json")
	_, err := LoadSpec(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
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
