package schedule

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRun(t *testing.T) {
	enough := errors.New("enough")
	for name, test := range map[string]struct {
		schedule Schedule[string]
		want     []int
		err      error
	}{
		"all, in order":             {Schedule[string]{}, []int{0, 1, 2, 3, 4}, nil},
		"nothing begins after that": {Schedule[string]{Enough: func(i int, _ string) error { return only(i == 1, enough) }}, []int{0, 1}, enough},
		"at the end":                {Schedule[string]{Enough: func(i int, _ string) error { return only(i == 4, enough) }}, []int{0, 1, 2, 3, 4}, enough},
	} {
		t.Run(name, func(t *testing.T) {
			var begun, done []int
			test.schedule.Done = func(i int, end string) error {
				require.Equal(t, "x", end)
				done = append(done, i)
				return nil
			}
			err := test.schedule.Run(t.Context(), 5, func(_ context.Context, i int) string {
				begun = append(begun, i)
				return "x"
			})
			require.Equal(t, test.err, err)
			require.Equal(t, test.want, begun)
			require.Equal(t, test.want, done)
		})
	}
	require.NoError(t, Schedule[string]{Parallel: 3}.Run(t.Context(), 0, nil))
}

func only(yes bool, err error) error {
	if yes {
		return err
	}
	return nil
}

// TestLetsRunningOnesEnd: after Enough said so, what runs ends by itself.
func TestLetsRunningOnesEnd(t *testing.T) {
	enough := errors.New("enough")
	var both sync.WaitGroup
	both.Add(2)
	said := make(chan struct{})
	var done []int
	err := Schedule[error]{
		Parallel: 2,
		Enough: func(i int, _ error) error {
			if i == 0 {
				defer close(said)
				return enough
			}
			return nil
		},
		Done: func(i int, _ error) error { done = append(done, i); return nil },
	}.Run(t.Context(), 10, func(ctx context.Context, i int) error {
		both.Done()
		both.Wait()
		if i == 1 {
			<-said
		}
		return ctx.Err()
	})
	require.Equal(t, enough, err)
	require.ElementsMatch(t, []int{0, 1}, done)
}

// TestEndsWithItsContext: what runs is canceled, and reported.
func TestEndsWithItsContext(t *testing.T) {
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	var errs []error
	err := Schedule[error]{Parallel: 2, Done: func(_ int, end error) error {
		errs = append(errs, end)
		return nil
	}}.Run(ctx, 10, func(ctx context.Context, i int) error {
		if i == 1 {
			cancel(stop)
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	require.ErrorIs(t, err, stop)
	require.Equal(t, []error{stop, stop}, errs)

	// A report that fails ends the batch in the same way.
	err = Schedule[error]{Done: func(int, error) error { return stop }}.Run(t.Context(), 10, func(context.Context, int) error { return nil })
	require.ErrorIs(t, err, stop)
}
