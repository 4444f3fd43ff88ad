package sandbox

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

type closedEngine struct {
	*enginetest.Fake

	closed int
}

func (e *closedEngine) Close() error {
	e.closed++
	return errors.New("gone")
}

// TestClosed: a closed runner starts nothing, and it is closed once.
func TestClosed(t *testing.T) {
	fake := enginetest.NewFake(nil)
	engine := &closedEngine{Fake: fake}
	r := newFakeRunner(t, fake, func(r *Runner) error { r.engine = engine; return nil })
	var closes sync.WaitGroup
	for range 3 {
		closes.Go(func() { require.EqualError(t, r.Close(), "gone") })
	}
	closes.Wait()
	require.Equal(t, 1, engine.closed)
	_, err := r.Run(t.Context(), command("true"))
	require.ErrorIs(t, err, ErrClosed)
	_, err = r.Plan(t.Context(), command("true"))
	require.ErrorIs(t, err, ErrClosed)
	_, err = r.Adopt(t.Context(), "r1")
	require.ErrorIs(t, err, ErrClosed)
	require.Empty(t, leftBehind(t, r, fake))
}

// TestMissingScript: the type of a refusal says what is wrong.
func TestMissingScript(t *testing.T) {
	r := newFakeRunner(t, enginetest.NewFake(nil))
	_, err := r.Run(t.Context(), Request{Image: "debian", Script: "none.py"})
	require.IsType(t, &PathError{}, err)
	require.EqualError(t, err, `script "none.py": does not exist`)
}

// TestReplacedEngine: the engine that another one replaces is closed.
func TestReplacedEngine(t *testing.T) {
	first := &closedEngine{Fake: enginetest.NewFake(nil)}
	_, err := New(WithEngine(first), WithEngine(enginetest.NewFake(nil)))
	require.EqualError(t, err, "gone")
	require.Equal(t, 1, first.closed)
}
