package trial_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/trial"
)

const many = 10_000

// bigLog makes a log as the queue does, but without waiting for the disk; whole with the
// results themselves, and not only the index.
func bigLog(tb testing.TB, n int, whole bool) string {
	tb.Helper()
	dir := tb.TempDir()
	var index bytes.Buffer
	for i := range n {
		job := trial.Job{Schema: trial.JobSchemaV1, ID: fmt.Sprintf("j%06d", i), Kind: "evaluate", Name: fmt.Sprint("script-", i), Parent: "b1", Key: fmt.Sprint("key-", i), Attempt: 1}
		res := trial.Result{
			Schema: trial.ResultSchemaV1, Job: job, Verdict: trial.Passed, Reason: "completed", Started: time.Unix(1e9, 0).UTC(),
			Runs: []trial.RunRef{{ID: fmt.Sprintf("20261122t000000-%010x", i), Role: "program"}}, Problems: []trial.Problem{}, Files: []trial.File{}, Usage: trial.Usage{WallSeconds: 1, Runs: 1},
		}
		line, err := json.Marshal(res)
		require.NoError(tb, err)
		index.Write(append(line, '\n'))
		if !whole {
			continue
		}
		res.Detail, err = json.Marshal(map[string]string{"stdout": string(bytes.Repeat([]byte("a line of output\n"), 60))})
		require.NoError(tb, err)
		content, err := json.Marshal(res)
		require.NoError(tb, err)
		require.NoError(tb, os.MkdirAll(filepath.Join(dir, "jobs", job.ID), 0o700))
		require.NoError(tb, os.WriteFile(filepath.Join(dir, "jobs", job.ID, "result.json"), content, 0o600))
	}
	require.NoError(tb, os.WriteFile(filepath.Join(dir, "index.jsonl"), index.Bytes(), 0o600))
	return dir
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestListTakesNoMemory: a reader of a large log holds one result at a time.
func TestListTakesNoMemory(t *testing.T) {
	log := openLog(t, bigLog(t, many, false))
	var early, late uint64
	n := 0
	for _, err := range log.List() {
		require.NoError(t, err)
		switch n++; n {
		case many / 10:
			early = heap()
		case many:
			late = heap()
		}
	}
	require.Equal(t, many, n)
	require.Less(t, late, early+(1<<20))
}

// TestQueueTakesNoMemory: a queue holds the jobs that run, and no others, with long texts
// in their specs and results.
func TestQueueTakesNoMemory(t *testing.T) {
	var early, late uint64
	n := 0
	h := &fake{run: func(_ context.Context, job trial.Job, _ func(trial.Event)) (trial.Result, error) {
		res := passed
		res.Detail = bytes.Clone(job.Spec)
		return res, nil
	}}
	_, err := trial.Queue{Parallel: 4, Known: func(job trial.Job) (trial.Result, bool) { return passed, job.Name == "known" }, Emit: func(e trial.Event) error {
		if e.Kind == trial.EventEnded {
			switch n++; n {
			case many / 20:
				early = heap()
			case many / 2:
				late = heap()
			}
		}
		return nil
	}}.Run(t.Context(), h, func(yield func(trial.Job) bool) {
		for i := range many {
			job := trial.Job{Spec: fmt.Appendf(nil, `"%10000d"`, i)}
			if i%2 == 0 {
				job.Name = "known"
			}
			if !yield(job) {
				return
			}
		}
	})
	require.NoError(t, err)
	require.Equal(t, many/2, n)
	require.Less(t, late, early+(2<<20))
}

// BenchmarkList reads a log of 10,000 jobs, as a program that starts does.
func BenchmarkList(b *testing.B) {
	dir := bigLog(b, many, true)
	for b.Loop() {
		require.Len(b, collect(b, openLog(b, dir).List()), many)
	}
}

// BenchmarkResume looks up 10,000 known jobs, as a queue that is resumed does.
func BenchmarkResume(b *testing.B) {
	dir := bigLog(b, many, true)
	for b.Loop() {
		summary, err := trial.Queue{Known: openLog(b, dir).Known}.Run(b.Context(), &fake{}, jobs(many))
		require.NoError(b, err)
		require.Equal(b, many, summary.Known)
	}
}
