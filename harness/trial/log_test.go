package trial_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/policy"
)

// fill runs jobs with a log and returns it, and the IDs in the order of their results.
func fill(tb testing.TB, dir string, n int) (*trial.Log, []string) {
	tb.Helper()
	log := openLog(tb, dir)
	_, err := trial.Queue{Log: log}.Run(tb.Context(), &fake{}, jobs(n))
	require.NoError(tb, err)
	return log, ids(tb, log)
}

func ids(tb testing.TB, log *trial.Log) []string {
	tb.Helper()
	var all []string
	for _, r := range collect(tb, log.List()) {
		all = append(all, r.Job.ID)
	}
	return all
}

func TestLogKeepsJobs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there")
	log := openLog(t, dir)
	require.Empty(t, collect(t, log.List()))
	score := 0.5
	want := trial.Result{
		Verdict: trial.Failed, Reason: "timed_out", ExitCode: 3, Score: &score, Runs: []trial.RunRef{{ID: "r1", Role: "program"}},
		Problems: []trial.Problem{{Rule: "is too slow"}}, Files: []trial.File{{Path: "a", Size: 1, SHA256: "00"}},
		Usage: trial.Usage{WallSeconds: 1, CPUSeconds: 2, GPUSeconds: 3, Runs: 1}, Detail: json.RawMessage(`{"n":1}`),
	}
	h := &fake{run: func(_ context.Context, job trial.Job, _ func(trial.Event)) (trial.Result, error) {
		got, err := log.Get(job.ID)
		require.NoError(t, err)
		require.Equal(t, trial.Inconclusive, got.Verdict, "while it runs")
		require.Equal(t, job, got.Job)
		return want, nil
	}}
	seed := uint64(1<<64 - 1)
	job := trial.Job{ID: "j1", Name: "first", Parent: "b1", Key: "k", Seed: &seed, Spec: json.RawMessage(`{"script":"a.py"}`)}
	_, err := trial.Queue{Log: log}.Run(t.Context(), h, slices.Values([]trial.Job{job}))
	require.NoError(t, err)

	got, err := openLog(t, dir).Get("j1")
	require.NoError(t, err)
	job.Schema, job.Kind, job.Attempt = trial.JobSchemaV1, "fake", 1
	want.Schema, want.Job, want.Started = trial.ResultSchemaV1, job, got.Started
	require.Equal(t, want, got)
	known, ok, err := openLog(t, dir).Conclusive("k")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, want, known)

	want.Detail, want.Job.Spec, want.Problems, want.Files = nil, nil, []trial.Problem{}, []trial.File{}
	require.Equal(t, []trial.Result{want}, collect(t, log.List()))

	for _, path := range []string{"", "jobs", "jobs/j1", "jobs/j1/job.json", "jobs/j1/result.json", "jobs/j1/events.jsonl", "index.jsonl"} {
		info, err := os.Stat(filepath.Join(dir, path))
		require.NoError(t, err)
		require.Zero(t, info.Mode().Perm()&0o077, "%s is for its owner only", path)
	}
}

func TestLogListsWhatIsUnfinished(t *testing.T) {
	dir := t.TempDir()
	log, _ := fill(t, dir, 2)
	var during []trial.Job
	h := &fake{run: func(context.Context, trial.Job, func(trial.Event)) (result trial.Result, err error) {
		during, err = log.Unfinished()
		return passed, err
	}}
	job := trial.Job{ID: "open", Kind: "fake", Name: "n", Parent: "b", Spec: json.RawMessage(`{}`)}
	_, err := trial.Queue{Log: log}.Run(t.Context(), h, slices.Values([]trial.Job{job}))
	require.NoError(t, err)
	require.Len(t, during, 1)
	require.Equal(t, "open b", during[0].ID+" "+during[0].Parent)
	require.Nil(t, during[0].Spec)
	for name, content := range map[string]string{"damaged": "{", "another": `{"schema":"x"}`} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, "jobs", name), 0o700))
		treetest.File(t, filepath.Join(dir, "jobs", name, "job.json"), content)
	}
	after, err := log.Unfinished()
	require.NoError(t, err)
	require.Empty(t, after, "neither what has a result nor what cannot be read")
}

func TestLogIDsStayInTheDirectory(t *testing.T) {
	dir := t.TempDir()
	log := openLog(t, filepath.Join(dir, "log"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "result.json"), []byte(`{"schema":"evalbox/trial/v1"}`), 0o600))
	for _, id := range []string{"", ".", "..", "../..", "a/../../..", "/", "-a", "a\n", strings.Repeat("a", 65)} {
		_, err := log.Get(id)
		require.ErrorAs(t, err, new(*policy.FieldError), "%q", id)
		for _, err := range log.Events(id) {
			require.ErrorAs(t, err, new(*policy.FieldError), "%q", id)
		}
		if id != "" { // the queue gives an ID to a job that has none
			_, err = trial.Queue{Log: log}.Run(t.Context(), &fake{}, slices.Values([]trial.Job{{ID: id}}))
			require.ErrorAs(t, err, new(*policy.FieldError), "%q", id)
		}
	}
	_, err := log.Get("j1")
	require.ErrorIs(t, err, trial.ErrNoJob)
	_, err = trial.Queue{Log: log}.Run(t.Context(), &fake{}, slices.Values([]trial.Job{{Key: strings.Repeat("k", 513)}}))
	require.ErrorContains(t, err, "key")
	require.Empty(t, collect(t, log.List()))
}

func TestLogBoundsWhatItKeeps(t *testing.T) {
	log := openLog(t, t.TempDir())
	h := &fake{run: func(_ context.Context, _ trial.Job, emit func(trial.Event)) (trial.Result, error) {
		for range 2000 {
			emit(trial.Event{Kind: trial.EventNote, Text: strings.Repeat("x", 10_000)})
		}
		res := passed
		res.Reason = strings.Repeat("r", 10_000)
		for range 1000 {
			res.Runs = append(res.Runs, res.Runs[0])
		}
		res.Detail = json.RawMessage(`"` + strings.Repeat("d", 33<<20) + `"`)
		return res, nil
	}}
	_, err := trial.Queue{Log: log}.Run(t.Context(), h, jobs(1))
	require.NoError(t, err)
	brief := collect(t, log.List())[0]
	require.Less(t, len(brief.Reason), 600)
	require.Len(t, brief.Runs, 100)
	whole, err := log.Get(brief.Job.ID)
	require.NoError(t, err)
	require.Len(t, whole.Runs, 1001)
	require.Empty(t, whole.Detail)
	require.Contains(t, whole.Problems[0].Rule, "too many for the log")
	events := collect(t, log.Events(brief.Job.ID))
	require.Less(t, len(events), 1100)
	require.Less(t, len(events[1].Text), 5000)

	_, err = trial.Queue{Log: log}.Run(t.Context(), h, slices.Values([]trial.Job{{Spec: json.RawMessage(`"` + strings.Repeat("s", 17<<20) + `"`)}}))
	require.ErrorContains(t, err, "spec")
}

// TestLogOfSeveralWriters: two logs of one directory follow each other, and no line is torn.
func TestLogOfSeveralWriters(t *testing.T) {
	dir := t.TempDir()
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			log, err := trial.OpenLog(dir)
			if err != nil {
				t.Error(err)
				return
			}
			h := &fake{run: func(_ context.Context, job trial.Job, _ func(trial.Event)) (trial.Result, error) {
				if _, ok, err := log.Conclusive(job.Key); ok || err != nil {
					t.Error(ok, err)
				}
				return passed, nil
			}}
			_, err = trial.Queue{Log: log, Parallel: 2}.Run(t.Context(), h, func(yield func(trial.Job) bool) {
				for i := range 25 {
					if !yield(trial.Job{Key: fmt.Sprint(w, i)}) {
						return
					}
				}
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	reader := openLog(t, dir)
	_, ok, err := reader.Conclusive("none")
	require.NoError(t, err)
	require.False(t, ok)
	writers.Wait()
	require.Len(t, collect(t, reader.List()), 100)
	for w := range 4 {
		_, ok, err := reader.Conclusive(fmt.Sprint(w, 24))
		require.NoError(t, err)
		require.True(t, ok)
	}
}

func TestLogTakesOneJobOnce(t *testing.T) {
	dir := t.TempDir()
	log := openLog(t, dir)
	one := func(h *fake) error {
		_, err := trial.Queue{Log: log}.Run(t.Context(), h, slices.Values([]trial.Job{{ID: "j1", Key: "k"}}))
		return err
	}
	require.NoError(t, one(&fake{run: func(context.Context, trial.Job, func(trial.Event)) (trial.Result, error) {
		require.ErrorContains(t, one(&fake{}), "is locked", "while it runs")
		return unclear, nil
	}}))
	require.NoError(t, one(&fake{}), "after an inconclusive result")
	require.ErrorContains(t, one(&fake{}), "a job with this ID has a result already")
	require.Equal(t, []string{"j1", "j1"}, ids(t, log))
	r, ok, err := log.Conclusive("k")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, trial.Passed, r.Verdict)

	// A process was killed between the second result and its line.
	index := filepath.Join(dir, "index.jsonl")
	whole, err := os.ReadFile(index)
	require.NoError(t, err)
	treetest.File(t, index, strings.SplitAfter(string(whole), "\n")[0])
	_, ok, err = openLog(t, dir).Conclusive("k")
	require.NoError(t, err)
	require.True(t, ok)
	completed, err := os.ReadFile(index)
	require.NoError(t, err)
	require.Equal(t, string(whole), string(completed))
}

func TestLogAddsWhatEndedElsewhere(t *testing.T) {
	log := openLog(t, t.TempDir())
	require.NoError(t, log.Add(trial.Result{Verdict: trial.Passed, Job: trial.Job{Kind: "fake", Key: "k"}}))
	r, ok, err := log.Conclusive("k")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "fake", r.Job.Kind)
	require.ErrorContains(t, log.Add(r), "a job with this ID has a result already")
	require.Equal(t, []string{r.Job.ID}, ids(t, log))
}

func TestLogRepairsItsIndex(t *testing.T) {
	damage := map[string]func(t *testing.T, index string, lines []string){
		"missing": func(t *testing.T, index string, _ []string) {
			t.Helper()
			require.NoError(t, os.Remove(index))
		},
		"empty": func(t *testing.T, index string, _ []string) { t.Helper(); treetest.File(t, index, "") },
		"cut within a line": func(t *testing.T, index string, lines []string) {
			t.Helper()
			treetest.File(t, index, lines[0]+lines[1]+lines[2][:40])
		},
		"cut before the end of a line": func(t *testing.T, index string, lines []string) {
			t.Helper()
			treetest.File(t, index, lines[0]+strings.TrimSuffix(lines[1], "\n"))
		},
		"zeros at the end": func(t *testing.T, index string, lines []string) {
			t.Helper()
			treetest.File(t, index, lines[0]+strings.Repeat("\x00", 300))
		},
		"more zeros than a line has": func(t *testing.T, index string, lines []string) {
			t.Helper()
			treetest.File(t, index, lines[0]+strings.Repeat("\x00", 300<<10))
		},
		"a line is missing": func(t *testing.T, index string, lines []string) {
			t.Helper()
			treetest.File(t, index, lines[0]+lines[2]+lines[3])
		},
	}
	for name, do := range damage {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			_, want := fill(t, dir, 4)
			index := filepath.Join(dir, "index.jsonl")
			content, err := os.ReadFile(index)
			require.NoError(t, err)
			do(t, index, strings.SplitAfter(string(content), "\n"))

			log := openLog(t, dir)
			got := ids(t, log)
			require.ElementsMatch(t, want, got)
			for i := range 4 {
				_, ok, err := log.Conclusive(fmt.Sprint("key-", i))
				require.NoError(t, err)
				require.True(t, ok)
			}
			if name != "a line is missing" {
				repaired, err := os.ReadFile(index)
				require.NoError(t, err)
				require.Equal(t, string(content), string(repaired))
			}
		})
	}

	t.Run("a file of another kind stays as it is", func(t *testing.T) {
		dir := t.TempDir()
		fill(t, dir, 2)
		treetest.File(t, filepath.Join(dir, "index.jsonl"), "precious")
		log := openLog(t, dir)
		_, _, err := log.Conclusive("key-0")
		require.ErrorContains(t, err, "the last line has no end")
		_, err = trial.Queue{Log: log}.Run(t.Context(), &fake{}, jobs(1))
		require.ErrorContains(t, err, "the last line has no end")
		content, err := os.ReadFile(filepath.Join(dir, "index.jsonl"))
		require.NoError(t, err)
		require.Equal(t, "precious", string(content))
	})
	t.Run("a damaged line is named, and its result found", func(t *testing.T) {
		dir := t.TempDir()
		fill(t, dir, 2)
		index := filepath.Join(dir, "index.jsonl")
		content, err := os.ReadFile(index)
		require.NoError(t, err)
		lines := strings.SplitAfter(string(content), "\n")
		treetest.File(t, index, `{"schema":"evalbox/trial/v9"}`+"\n"+lines[1])
		log := openLog(t, dir)
		_, ok, err := log.Conclusive("key-0")
		require.NoError(t, err)
		require.True(t, ok)
		var got, errs []string
		for r, err := range log.List() {
			if err != nil {
				errs = append(errs, err.Error())
				continue
			}
			got = append(got, r.Job.Name)
		}
		require.Equal(t, []string{"1", "0"}, got)
		require.Len(t, errs, 1)
		require.Contains(t, errs[0], `index.jsonl:1: schema is "evalbox/trial/v9", want "evalbox/trial/v1"`)
	})
	t.Run("a damaged result is not known", func(t *testing.T) {
		dir := t.TempDir()
		log, all := fill(t, dir, 2)
		treetest.File(t, filepath.Join(dir, "jobs", all[0], "result.json"), "{")
		_, ok := log.Known(trial.Job{Key: "key-0"})
		require.False(t, ok)
		_, err := log.Get(all[0])
		require.ErrorContains(t, err, all[0])
		require.NoError(t, os.Remove(filepath.Join(dir, "index.jsonl")))
		require.Equal(t, all[1:], ids(t, openLog(t, dir)))
	})
}

// TestLogNeedsNoEngine: a program that reads logs does not link Docker's client.
func TestLogNeedsNoEngine(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	for dep := range strings.FieldsSeq(string(out)) {
		require.NotContains(t, dep, "github.com/docker/docker")
		require.NotContains(t, dep, "github.com/docker/cli")
		require.NotContains(t, dep, "evalbox/sandbox")
	}
}
