//go:build unix

package evaluate

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/result"
)

func TestDebugCommand(t *testing.T) {
	script := mlestar.NewSolution("é\n<b>", mlestar.PhaseInit)
	script.SourceModel = new("svm")
	failure := evaluate.Failure{Result: evaluate.Result{Run: &evaluate.RunFacts{Explanation: "It was killed.", Status: result.StatusSignaled}}}
	repaired, err := debugCommand("cat")(t.Context(), script, failure)
	require.NoError(t, err)
	require.Equal(t, mlestar.PhaseRefined, repaired.Phase)
	require.Equal(t, "svm", *repaired.SourceModel)
	var told debugInput
	require.NoError(t, json.Unmarshal([]byte(repaired.Content), &told))
	require.Equal(t, debugInput{Script: "é\n<b>", Error: "It was killed."}, told)

	// A command that reads nothing is no failure of ours.
	script.Content = strings.Repeat("x", 1<<20)
	repaired, err = debugCommand("echo fixed")(t.Context(), script, failure)
	require.NoError(t, err)
	require.Equal(t, "fixed\n", repaired.Content)
}

func TestDebugCommandFailures(t *testing.T) {
	for command, want := range map[string]string{
		"echo why >&2; exit 3":          "exit status 3: why",
		"head -c 5000000 /dev/zero":     "it printed more than 4 MiB",
		"kill -9 $$":                    "signal: killed",
		"echo half; no-such-command-xy": "exit status 127",
		"yes":                           "it printed more than 4 MiB",
	} {
		_, err := runDebugger(t.Context(), command, nil, time.Minute)
		require.ErrorContains(t, err, want, command)
	}
	_, err := runDebugger(t.Context(), "exit 3", nil, time.Minute)
	require.EqualError(t, err, "exit status 3", "no colon before nothing")
	_, err = runDebugger(t.Context(), "sleep 600 & sleep 600", nil, 10*time.Millisecond)
	require.ErrorContains(t, err, "it took more than 10ms")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = runDebugger(ctx, "sleep 600", nil, time.Minute)
	require.ErrorIs(t, err, context.Canceled)
}

// What a command leaves in the background ends with it: the pipe has no writer any more.
func TestDebugCommandLeavesNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, syscall.Mkfifo("pipe", 0o600))
	read := make(chan error, 1)
	go func() {
		_, err := os.ReadFile("pipe")
		read <- err
	}()
	text, err := runDebugger(t.Context(), "(exec > pipe 2>&1; : > ready; sleep 600) & until [ -e ready ]; do sleep 0.01; done; echo fixed", nil, time.Minute)
	require.NoError(t, err)
	require.Equal(t, "fixed\n", text)
	require.NoError(t, <-read, "it ends when the last writer does")
}
