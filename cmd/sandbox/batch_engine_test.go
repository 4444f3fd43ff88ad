package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/evaluate"
)

// inTask makes a directory with a task the current one.
func inTask(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv("SANDBOX_STATE_DIR", filepath.Join(dir, "state"))
	t.Setenv("XDG_CONFIG_HOME", filepath.Join(dir, "xdg")) // not the lock of the user who runs the tests
	files["task.yaml"] = "{competition_id: t, task_type: tabular, data_modality: tabular, evaluation_metric: m, metric_direction: maximize, description: d}"
	files["input/x"], files["answers/y"] = "x", "y"
	for name, text := range files {
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
}

// Two batches do not work in one directory.
func TestEngineBatchWorkspaceInUse(t *testing.T) {
	inTask(t, map[string]string{"good.py": "print(1)"})
	release, err := evaluate.LockWorkspace("work")
	require.NoError(t, err)
	out, errs := runHere(t, cli.ExitSandbox, "batch", "good.py", "--task", "task.yaml")
	require.Empty(t, out)
	require.Equal(t, "sandbox: working directory \"work\": is in use by another batch\n"+
		"sandbox: hint: wait for its end, or choose another directory with --output\n", errs)
	require.NoFileExists(t, "results.jsonl")
	require.NoError(t, release())
	runHere(t, 0, "batch", "good.py", "--task", "task.yaml")
}

// An interruption of the grader is not an interruption of the script.
func TestEngineInterruptedGrading(t *testing.T) {
	inTask(t, map[string]string{
		"good.py":   "print('Final Validation Performance: 0.5')",
		"grader.py": "print('grading has begun', flush=True)\nimport time\ntime.sleep(600)",
	})
	for _, args := range [][]string{{"evaluate"}, {"evaluate", "--repeat", "2"}, {"batch"}} {
		ctx, cancel := context.WithCancelCause(t.Context())
		var out, errs strings.Builder
		// The grader's run is the second one; its log is there as soon as it prints.
		go func() {
			for ctx.Err() == nil {
				logs, _ := filepath.Glob("state/*/*/stdout*")
				for _, log := range logs {
					if text, err := os.ReadFile(log); err == nil && strings.Contains(string(text), "grading has begun") {
						cancel(cli.SignalError{Signal: os.Interrupt})
					}
				}
			}
		}()
		code := Run(ctx, append(args, "good.py", "--task", "task.yaml", "--grader", "grader.py", "--answers", "answers", "--grace", "1s"),
			cli.Streams{In: strings.NewReader(""), Out: io.MultiWriter(&out), Err: &errs})
		require.Equal(t, cli.ExitInterrupted, code, out.String()+errs.String())
		require.Contains(t, errs.String(), "sandbox: interrupted (Ctrl-C)\n", args)
		if args[0] == "evaluate" {
			require.Contains(t, out.String(), "not graded: interrupted while the grader ran\n")
			require.NotContains(t, out.String(), "failed")
		} else {
			require.Contains(t, out.String(), " canceled ")
			require.Contains(t, errs.String(), "batch of 1: 0 ended well, 0 failed, 1 without a conclusive result")
		}
		require.NoError(t, os.RemoveAll("state"))
	}
}
