package contract

import (
	"encoding/json"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

func TestRetryCheck(t *testing.T) {
	require.NoError(t, Retry{MaxAttempts: 1}.Check())
	require.NoError(t, Retry{MaxAttempts: MaxAttempts, Backoff: time.Hour, Codes: []int{0, 255}}.Check())
	err := Retry{Backoff: -time.Millisecond, Codes: []int{-1, 256}}.Check()
	for _, text := range []string{"max_attempts 0: must be between 1 and 10", "backoff_ms -1", "retryable_codes -1", "retryable_codes 256"} {
		require.ErrorContains(t, err, text)
	}
	require.ErrorContains(t, Retry{MaxAttempts: 11}.Check(), "max_attempts 11")
	_, err = Retry{}.Queue()
	require.ErrorContains(t, err, "max_attempts")
}

// jobOf is the job of a contract for a queue.
func jobOf(t *testing.T, c Contract) trial.Job {
	t.Helper()
	spec, err := json.Marshal(c)
	require.NoError(t, err)
	return trial.Job{ID: "j-1", Kind: Kind, Name: "c.json", Spec: spec}
}

// A queue executes a contract again after the listed exit codes, with waits that double.
func TestRetryInQueue(t *testing.T) {
	for name, test := range map[string]struct {
		codes []int
		retry Retry
		want  []int
		waits time.Duration
	}{
		"success":                {[]int{0}, Retry{MaxAttempts: 3, Codes: []int{0, 1}}, []int{0}, 0},
		"a code that is listed":  {[]int{4, 4, 0}, Retry{MaxAttempts: 5, Backoff: time.Second, Codes: []int{4}}, []int{4, 4, 0}, 3 * time.Second},
		"one that is not":        {[]int{4, 5, 0}, Retry{MaxAttempts: 5, Codes: []int{4}}, []int{4, 5}, 0},
		"no wait after the last": {[]int{4}, Retry{MaxAttempts: 2, Backoff: time.Second, Codes: []int{4}}, []int{4, 4}, time.Second},
		"one attempt":            {[]int{4, 0}, Retry{MaxAttempts: 1, Codes: []int{4}}, []int{4}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var got []int
			h, _ := newHarness(t, func(sandbox.Request, string) result.Result {
				got = append(got, test.codes[min(len(got), len(test.codes)-1)])
				return result.Result{Status: result.StatusExited, ExitCode: got[len(got)-1]}
			})
			retry, err := test.retry.Queue()
			require.NoError(t, err)
			job := jobOf(t, cat())
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				_, err := trial.Queue{Retry: retry}.Run(t.Context(), h.Trial(), slices.Values([]trial.Job{job}))
				require.NoError(t, err)
				require.Equal(t, test.waits, time.Since(began))
			})
			require.Equal(t, test.want, got)
		})
	}
}

// A refused contract is not executed again.
func TestWhatIsNotRetried(t *testing.T) {
	retry, err := Retry{MaxAttempts: 3, Codes: []int{0, 1, 4}}.Queue()
	require.NoError(t, err)
	h, box := newHarness(t, nil)
	c := cat()
	c.Inputs.Command = "rm"
	var ended []trial.Event
	summary, err := trial.Queue{Retry: retry, Emit: func(e trial.Event) error {
		if e.Kind == trial.EventEnded {
			ended = append(ended, e)
		}
		return nil
	}}.Run(t.Context(), h.Trial(), slices.Values([]trial.Job{jobOf(t, c)}))
	require.NoError(t, err)
	require.Equal(t, 1, summary.Refused)
	require.Len(t, ended, 1)
	require.Empty(t, box.ran)
	require.True(t, retry.If(trial.Result{Verdict: trial.Failed, ExitCode: 4}))
	require.False(t, retry.If(trial.Result{Verdict: trial.Passed}))
	require.False(t, retry.If(trial.Result{Verdict: trial.Inconclusive, ExitCode: 4}), "canceled")
}

// The result of a trial has the outcome as its detail, and a verdict for every way to end.
func TestTrial(t *testing.T) {
	var res result.Result
	h, box := newHarness(t, func(sandbox.Request, string) result.Result { return res })
	run := func(c Contract) (trial.Result, error) {
		return h.Trial().Run(t.Context(), jobOf(t, c), func(trial.Event) {})
	}
	res = result.Result{Status: result.StatusExited, Outputs: []result.Output{{Path: "a", SizeBytes: 3, SHA256: "aa"}}, DurationSeconds: 2}
	got, err := run(cat())
	require.NoError(t, err)
	require.Equal(t, trial.Passed, got.Verdict)
	require.Equal(t, []trial.File{{Path: "/work/final/a", Size: 3, SHA256: "aa"}}, got.Files)
	require.InDelta(t, 2, got.Usage.WallSeconds, 0)
	require.Equal(t, 1, got.Usage.Runs)
	var o Outcome
	require.NoError(t, json.Unmarshal(got.Detail, &o))
	require.Equal(t, []trial.RunRef{{ID: o.Evidence.RunID, Role: "program"}}, got.Runs)
	require.Subset(t, box.ran[0].Labels, map[string]string{"trial.id": "j-1", "trial.kind": Kind, "trial.role": "program"})
	require.NoError(t, o.Err())

	for name, test := range map[string]struct {
		res     result.Result
		verdict trial.Verdict
		code    int
	}{
		"an exit code":     {result.Result{Status: result.StatusExited, ExitCode: 3}, trial.Failed, 3},
		"the time limit":   {result.Result{Status: result.StatusTimedOut, ExitCode: -1, TimedOut: true}, trial.Failed, 143},
		"no such command":  {result.Result{Status: result.StatusStartFailed, ExitCode: 127}, trial.Failed, 127},
		"an interruption":  {result.Result{Status: result.StatusCanceled, ExitCode: -1}, trial.Inconclusive, -1},
		"a lost engine":    {result.Result{Status: result.StatusEngineLost, ExitCode: -1}, trial.Inconclusive, -1},
		"a full disk":      {result.Result{Status: result.StatusDiskLimit, Fault: result.FaultEnvironment, ExitCode: 143}, trial.Inconclusive, 143},
		"a foreign signal": {result.Result{Status: result.StatusSignaled, Fault: result.FaultOperator, ExitCode: 0}, trial.Inconclusive, 0},
		"a failed machine": {result.Result{Status: result.StatusStartFailed, ExitCode: -1}, trial.Inconclusive, -1},
	} {
		res = test.res
		got, err := run(cat())
		require.NoError(t, err, name)
		require.Equal(t, test.verdict, got.Verdict, name)
		require.Equal(t, test.code, got.ExitCode, name)
		require.NoError(t, json.Unmarshal(got.Detail, &o), name)
		var failed *FailedError
		require.ErrorAs(t, o.Err(), &failed, name)
	}

	refused := cat()
	refused.ToolID = "TL-999"
	got, err = run(refused)
	require.NoError(t, err)
	require.Equal(t, trial.Refused, got.Verdict)
	require.Equal(t, "IV-01", got.Reason)
	require.Equal(t, "tool_id", got.Problems[0].Field)
	require.NotEmpty(t, got.Problems[0].Hint)
	plan, err := h.Trial().Plan(t.Context(), jobOf(t, refused))
	require.NoError(t, err)
	require.Equal(t, got.Problems, plan.Problems)
	require.NoError(t, json.Unmarshal(got.Detail, &o))
	var violations *RefusedError
	require.ErrorAs(t, o.Err(), &violations)

	box.planErr = errFake
	got, err = run(cat())
	require.ErrorIs(t, err, errFake)
	require.Equal(t, trial.Inconclusive, got.Verdict)
}
