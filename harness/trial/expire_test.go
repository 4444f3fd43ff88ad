package trial_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/trial"
)

// age makes jobs of a log look as if they had ended a day ago.
func age(tb testing.TB, dir string, ids ...string) {
	tb.Helper()
	then := time.Now().Add(-24 * time.Hour)
	for _, id := range ids {
		require.NoError(tb, os.Chtimes(filepath.Join(dir, "jobs", id), then, then))
	}
}

func TestLogExpire(t *testing.T) {
	dir := t.TempDir()
	log, all := fill(t, dir, 6)
	hourAgo := time.Now().Add(-time.Hour)
	age(t, dir, all[0], all[2], all[3])

	n, err := log.Expire(hourAgo, true)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, all, ids(t, log), "a dry run removes nothing")

	n, err = log.Expire(hourAgo, false)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	left := []string{all[1], all[4], all[5]}
	for _, log := range []*trial.Log{log, openLog(t, dir)} {
		require.Equal(t, left, ids(t, log))
		for i, id := range all {
			_, known := log.Known(trial.Job{Key: fmt.Sprint("key-", i)})
			require.Equal(t, slices.Contains(left, id), known)
			_, err := log.Get(id)
			require.Equal(t, !known, errors.Is(err, trial.ErrNoJob))
		}
	}
	n, err = log.Expire(hourAgo, false)
	require.NoError(t, err)
	require.Zero(t, n)
}

// A job that runs stays, however old it is. One that was abandoned goes.
func TestLogExpireKeepsWhatRuns(t *testing.T) {
	dir := t.TempDir()
	log := openLog(t, dir)
	h := &fake{run: func(context.Context, trial.Job, func(trial.Event)) (trial.Result, error) {
		age(t, dir, "j1", "abandoned")
		n, err := openLog(t, dir).Expire(time.Now().Add(-time.Hour), false)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		return passed, nil
	}}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "jobs", "abandoned"), 0o700))
	_, err := trial.Queue{Log: log}.Run(t.Context(), h, slices.Values([]trial.Job{{ID: "j1"}}))
	require.NoError(t, err)
	require.Equal(t, []string{"j1"}, ids(t, log))
}

// A process that follows the index notices another one in its place, also one that has the
// same size or is longer.
func TestLogFollowsAnExpiredIndex(t *testing.T) {
	dir := t.TempDir()
	writer, all := fill(t, dir, 4)
	follower := openLog(t, dir)
	index := filepath.Join(dir, "index.jsonl")
	known := func(key string) bool {
		_, ok, err := follower.Conclusive(key)
		require.NoError(t, err)
		return ok
	}
	require.True(t, known("key-0"))
	size := func() int64 {
		info, err := os.Stat(index)
		require.NoError(t, err)
		return info.Size()
	}
	before := size()
	age(t, dir, all[0])
	_, err := writer.Expire(time.Now().Add(-time.Hour), false)
	require.NoError(t, err)
	require.Less(t, size(), before)
	for n := 0; size() <= before; n++ { // now it is longer
		require.NoError(t, writer.Add(trial.Result{Job: trial.Job{Key: fmt.Sprint("more-", n)}, Verdict: trial.Passed}))
	}
	require.False(t, known("key-0"), "it has expired")
	require.True(t, known("key-1"))
	require.True(t, known("more-0"))
}

func TestLogExpireBesideWritersAndReaders(t *testing.T) {
	dir := t.TempDir()
	const each = 60
	var writers, followers sync.WaitGroup
	done := make(chan struct{})
	for w := range 3 {
		log := openLog(t, dir)
		writers.Go(func() {
			for i := range each {
				id, keep := fmt.Sprintf("w%d-%d", w, i), i%2 == 0
				if err := log.Add(trial.Result{Job: trial.Job{ID: id, Key: id}, Verdict: trial.Passed}); err != nil {
					t.Error(err)
				}
				then := time.Now().Add(-24 * time.Hour)
				if !keep {
					if err := os.Chtimes(filepath.Join(dir, "jobs", id), then, then); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for range 2 {
		follower := openLog(t, dir)
		followers.Go(func() {
			for {
				for r, err := range follower.List() {
					if err != nil {
						t.Error(err)
					}
					if found, ok, err := follower.Conclusive(r.Job.Key); err != nil || ok && found.Job.ID != r.Job.ID {
						t.Error(found.Job.ID, r.Job.ID, err)
					}
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	expired := 0
	expire := func() {
		n, err := openLog(t, dir).Expire(time.Now().Add(-time.Hour), false)
		require.NoError(t, err)
		expired += n
	}
	for range 10 {
		expire()
	}
	writers.Wait()
	expire()
	close(done)
	followers.Wait()
	require.Equal(t, 3*each/2, expired)
	log := openLog(t, dir)
	left := ids(t, log)
	require.Len(t, left, 3*each/2)
	for _, id := range left {
		_, ok := log.Known(trial.Job{Key: id})
		require.True(t, ok, id)
	}
}

// A queue whose log cannot be written goes on without it, if its caller says so.
func TestQueueWithoutItsLog(t *testing.T) {
	for name, breaks := range map[string]func(dir string) error{
		"before the jobs": func(dir string) error { return os.RemoveAll(filepath.Join(dir, "jobs")) },
		"at the end":      func(dir string) error { return os.Mkdir(filepath.Join(dir, "index.jsonl"), 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			log := openLog(t, dir)
			require.NoError(t, breaks(dir))
			_, err := trial.Queue{Log: log}.Run(t.Context(), &fake{}, jobs(3))
			require.Error(t, err)

			var failed []error
			ended := 0
			queue := trial.Queue{Log: log, LogFailed: func(err error) { failed = append(failed, err) }, Emit: func(e trial.Event) error {
				if e.Kind == trial.EventEnded {
					ended++
				}
				return nil
			}}
			sum, err := queue.Run(t.Context(), &fake{}, jobs(3))
			require.NoError(t, err)
			require.Equal(t, 3, sum.Passed)
			require.Equal(t, 3, ended)
			require.Len(t, failed, 1, "it is said once")
		})
	}
}
