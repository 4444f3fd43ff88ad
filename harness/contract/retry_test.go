package contract

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
}

func TestRetryWait(t *testing.T) {
	r := Retry{MaxAttempts: 10, Backoff: 20 * time.Second}
	require.Equal(t, []time.Duration{20 * time.Second, 40 * time.Second, time.Minute, time.Minute},
		[]time.Duration{r.Wait(1), r.Wait(2), r.Wait(3), r.Wait(9)})
	r.Constant = true
	require.Equal(t, 20*time.Second, r.Wait(9))
	require.Equal(t, MaxBackoff, Retry{Backoff: time.Hour}.Wait(1))
	require.Zero(t, Retry{}.Wait(5))
}

func TestExecuteWithRetry(t *testing.T) {
	for name, test := range map[string]struct {
		codes []int
		retry Retry
		want  []int
		waits []time.Duration
	}{
		"success":                {[]int{0}, Retry{MaxAttempts: 3, Codes: []int{0, 1}}, []int{0}, nil},
		"a code that is listed":  {[]int{4, 4, 0}, Retry{MaxAttempts: 5, Backoff: time.Second, Codes: []int{4}}, []int{4, 4, 0}, []time.Duration{time.Second, 2 * time.Second}},
		"one that is not":        {[]int{4, 5, 0}, Retry{MaxAttempts: 5, Codes: []int{4}}, []int{4, 5}, []time.Duration{0}},
		"no wait after the last": {[]int{4}, Retry{MaxAttempts: 2, Backoff: time.Second, Codes: []int{4}}, []int{4, 4}, []time.Duration{time.Second}},
		"one attempt":            {[]int{4, 0}, Retry{MaxAttempts: 1, Codes: []int{4}}, []int{4}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ran := 0
			x, _ := newExecutor(t, func(sandbox.Request, string) result.Result {
				code := test.codes[min(ran, len(test.codes)-1)]
				ran++
				return result.Result{Status: result.StatusExited, ExitCode: code}
			})
			var waits []time.Duration
			all, err := x.ExecuteWithRetry(t.Context(), cat(), test.retry, func(_ context.Context, d time.Duration) error {
				waits = append(waits, d)
				return nil
			})
			require.NoError(t, err)
			var got []int
			for _, o := range all {
				got = append(got, *o.ExitCode)
			}
			require.Equal(t, test.want, got)
			require.Equal(t, test.waits, waits)
			require.Equal(t, len(test.want), ran)
		})
	}
}

func TestWhatIsNotRetried(t *testing.T) {
	r := Retry{MaxAttempts: 3, Codes: []int{0, 1, 4}}
	x, runner := newExecutor(t, nil)
	c := cat()
	c.Inputs.Command = "rm"
	all, err := x.ExecuteWithRetry(t.Context(), c, r, nil)
	require.NoError(t, err)
	require.Len(t, all, 1, "a contract that was refused")
	require.Empty(t, runner.ran)
	code := 4
	require.True(t, r.Again(1, &Outcome{ExitCode: &code}))
	require.False(t, r.Again(1, &Outcome{ExitCode: &code, Approval: &Approval{}}), "an approval is for one execution")
	_, err = x.ExecuteWithRetry(t.Context(), cat(), Retry{}, nil)
	require.ErrorContains(t, err, "max_attempts")
}

func TestRetryEndsWithItsContext(t *testing.T) {
	x, _ := newExecutor(t, func(sandbox.Request, string) result.Result {
		return result.Result{Status: result.StatusExited, ExitCode: 4}
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("over")
	time.AfterFunc(0, func() { cancel(over) })
	require.ErrorIs(t, sleepFor(ctx, time.Hour), over)
	all, err := x.ExecuteWithRetry(t.Context(), cat(), Retry{MaxAttempts: 3, Codes: []int{4}}, func(context.Context, time.Duration) error { return over })
	require.ErrorIs(t, err, over)
	require.Len(t, all, 1, "what was executed is not lost")
}
