package evaluate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/harness/evaluate"
	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/internal/settings"
	"github.com/evalbox/evalbox/result"
)

// shown is what an evaluation comes to on the command line.
func shown(t *testing.T, ctx context.Context, r evaluate.Repetition, err error, runs int, live bool, s settings.Settings) (code int, out string, got error) { //nolint:revive // the test comes first
	t.Helper()
	var stdout, stderr bytes.Buffer
	a := &cli.App{Streams: cli.Streams{Out: &stdout, Err: &stderr}}
	for range r.Results {
		r.Workspaces = append(r.Workspaces, "w")
	}
	got = showEvaluations(ctx, a, r, err, runs, live, s)
	return a.Code, stdout.String(), got
}

// An interruption ends with 130 and says so, whatever it interrupted.
func TestInterruptedEvaluations(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := cli.SignalError{Signal: os.Interrupt}
	cancel(cause)
	grading := evaluated("g", func(e *evaluate.Result) {
		e.Grading = &evaluate.Grading{Failure: "The caller canceled the run.", Canceled: true}
	})
	running := evaluated("r", func(e *evaluate.Result) { e.Run.Status, e.Run.Fault = result.StatusCanceled, result.FaultOperator })
	repairing := evaluated("d", func(e *evaluate.Result) { e.Failure, e.IsError = "canceled before retry 1", true })
	for name, e := range map[string]evaluate.Result{"grading": grading, "running": running, "repairing": repairing} {
		for _, err := range []error{nil, cause} {
			code, out, got := shown(t, ctx, evaluate.Repetition{Results: []evaluate.Result{e}}, err, 1, false, settings.Settings{})
			require.Equal(t, cli.ExitInterrupted, code, name)
			require.ErrorIs(t, got, cause, name)
			if name == "grading" {
				require.Contains(t, out, "not graded: interrupted while the grader ran\n")
			}
		}
	}
	// What ended well before the signal came is what it is.
	code, _, err := shown(t, ctx, evaluate.Repetition{Results: []evaluate.Result{evaluated("w", nil)}}, nil, 1, false, settings.Settings{})
	require.Zero(t, code)
	require.NoError(t, err)
}

// What was never run because we failed is reported once, by its error.
func TestEvaluationsThatNeverRan(t *testing.T) {
	failed := evaluate.Result{Name: "x", Failure: "no"}
	for _, runs := range []int{1, 2} {
		code, out, err := shown(t, t.Context(), evaluate.Repetition{Results: []evaluate.Result{failed}}, errors.New("no"), runs, false, settings.Settings{})
		require.Equal(t, cli.ExitSandbox, code)
		require.Empty(t, out)
		require.EqualError(t, err, "no")
	}
	code, out, err := shown(t, t.Context(), evaluate.Repetition{Results: []evaluate.Result{evaluated("a", nil), failed}}, errors.New("no"),
		2, false, settings.Settings{})
	require.Equal(t, cli.ExitSandbox, code)
	require.Contains(t, out, "a · exited 0 · no score · 1.00s")
	require.NotContains(t, out, "failed: no")
	require.EqualError(t, err, "no")
}

// A terminal has seen the traceback already; the reader of a pipe, or a result of the
// cache, has not.
func TestTracebackIsShownOnce(t *testing.T) {
	crash := evaluated("c", func(e *evaluate.Result) { e.IsError, e.ExitCode, e.ErrorTraceback = true, 1, new("Traceback: x") })
	for _, cached := range []bool{false, true} {
		for _, live := range []bool{false, true} {
			crash.Cached = cached
			_, out, err := shown(t, t.Context(), evaluate.Repetition{Results: []evaluate.Result{crash}}, nil, 1, live, settings.Settings{})
			require.NoError(t, err)
			if live && !cached {
				require.NotContains(t, out, "Traceback")
			} else {
				require.Contains(t, out, "Traceback: x\n")
			}
		}
	}
}

// The summary says why nothing was graded, also of a script that failed.
func TestNotGraded(t *testing.T) {
	crash := evaluated("c", func(e *evaluate.Result) {
		e.IsError, e.ExitCode, e.Grading = true, 1, &evaluate.Grading{Failure: "there is nothing to grade"}
	})
	code, out, err := shown(t, t.Context(), evaluate.Repetition{Results: []evaluate.Result{crash}}, nil, 1, false, settings.Settings{})
	require.NoError(t, err)
	require.Equal(t, 1, code)
	require.Contains(t, out, "not graded: there is nothing to grade\n")
}

// Repairs are reported: they may take minutes.
func TestSayingRetries(t *testing.T) {
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	answers := []error{errors.New("no idea"), nil}
	debug := sayingRetries(say, func(context.Context, mlestar.SolutionScript, evaluate.Failure) (mlestar.SolutionScript, error) {
		err := answers[0]
		answers = answers[1:]
		return mlestar.SolutionScript{}, err
	}, 3)
	_, err := debug(t.Context(), mlestar.SolutionScript{}, evaluate.Failure{})
	require.Error(t, err)
	_, err = debug(t.Context(), mlestar.SolutionScript{}, evaluate.Failure{})
	require.NoError(t, err)
	require.Equal(t, []string{
		"retry 1 of 3: asking the debug command", "retry 1 of 3: the debug command failed",
		"retry 2 of 3: asking the debug command", "retry 2 of 3: running the repaired script",
	}, said)
}

func TestSeedsFlag(t *testing.T) {
	var seeds []uint32
	f := cli.Seeds(&seeds, readSeed)
	require.NoError(t, f.Set("1, 2"))
	require.NoError(t, f.Set("5-6,4294967295"))
	require.Equal(t, []uint32{1, 2, 5, 6, math.MaxUint32}, seeds)
	for _, text := range []string{"", "x", "1,", "-1", "4294967296", "1.5"} {
		require.Error(t, f.Set(text), text)
	}
}
