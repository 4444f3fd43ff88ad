package trial_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/trial"
)

// killedLog names the directory of the log for the queue that a child process runs.
const killedLog = "EVALBOX_TEST_KILLED_LOG"

// panicking makes the child process run a harness that panics.
const panicking = "EVALBOX_TEST_PANIC"

const killedJobs = 30

func TestMain(m *testing.M) {
	if dir := os.Getenv(killedLog); dir != "" {
		os.Exit(runKilledQueue(dir))
	}
	if os.Getenv(panicking) != "" {
		h := &fake{run: func(context.Context, trial.Job, func(trial.Event)) (trial.Result, error) { panic("of the harness") }}
		_, _ = trial.Queue{}.Run(context.Background(), h, jobs(1))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runKilledQueue prints a line for each step of its jobs; the parent kills it at one.
func runKilledQueue(dir string) int {
	log, err := trial.OpenLog(dir)
	if err == nil {
		_, err = trial.Queue{Parallel: 3, Log: log, Known: log.Known, Emit: func(e trial.Event) error {
			_, err := fmt.Println(e.Kind)
			return err
		}}.Run(context.Background(), killedHarness(), jobs(killedJobs))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// killedHarness passes, fails or is undecided, as the name of a job says.
func killedHarness() *fake {
	return &fake{run: func(_ context.Context, job trial.Job, emit func(trial.Event)) (trial.Result, error) {
		emit(trial.Event{Kind: trial.EventNote, Text: "half way"})
		switch n, err := strconv.Atoi(job.Name); {
		case err != nil:
			return trial.Result{}, err
		case n%7 == 3:
			return failed, nil
		case n%7 == 5 && job.Attempt == 1:
			return unclear, nil
		}
		return passed, nil
	}}
}

// TestQueueGoesOnAfterAKill: a queue is killed again and again, each time later, until it
// comes to its end. No job is lost, and none has two conclusive results.
func TestQueueGoesOnAfterAKill(t *testing.T) {
	dir := t.TempDir()
	kills := 0
	// The log only grows, so that some call does the rest: each one gets further than the
	// steps that one job has.
	for steps := 3; ; steps += 5 {
		require.Less(t, steps, 5000, "the queue makes no progress")
		ended, lines := killAfter(t, dir, steps)
		if ended {
			break
		}
		kills++
		require.LessOrEqual(t, lines, steps)
		if kills%4 == 0 { // and what a crash of the machine does
			tear(t, dir)
		}
	}
	require.Greater(t, kills, 5)

	log := openLog(t, dir)
	conclusive := map[string]int{}
	for _, r := range collect(t, log.List()) {
		if r.Verdict.Conclusive() {
			conclusive[r.Job.Key]++
		}
	}
	for i := range killedJobs {
		key := fmt.Sprint("key-", i)
		if i%7 == 5 { // inconclusive at each first try
			require.Zero(t, conclusive[key])
			continue
		}
		require.Equal(t, 1, conclusive[key], key)
		r, ok, err := log.Conclusive(key)
		require.NoError(t, err)
		require.True(t, ok)
		want := trial.Passed
		if i%7 == 3 {
			want = trial.Failed
		}
		require.Equal(t, want, r.Verdict)
	}
}

// TestQueueDoesNotCatchPanics: a bug of a harness ends the process, with its own traceback.
func TestQueueDoesNotCatchPanics(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), panicking+"=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "panic: of the harness")
	require.Contains(t, string(out), "kill_test.go")
}

// killAfter runs the queue in a process of its own and kills it after it has printed this
// number of lines. It reports whether the queue came to its end.
func killAfter(t *testing.T, dir string, steps int) (ended bool, lines int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), killedLog+"="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	all := bufio.NewScanner(out)
	for lines < steps && all.Scan() {
		lines++
	}
	if lines == steps {
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		return false, lines
	}
	require.NoError(t, cmd.Wait())
	return true, lines
}

// tear cuts the last line of the index, and removes the line of a result.
func tear(t *testing.T, dir string) {
	t.Helper()
	path := dir + "/index.jsonl"
	content, err := os.ReadFile(path)
	if err != nil || len(content) < 10 {
		return
	}
	require.NoError(t, os.WriteFile(path, content[:len(content)-10], 0o600))
	require.False(t, json.Valid(content[:len(content)-10]))
}
