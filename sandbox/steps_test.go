package sandbox

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
)

// noted is a tracer that notes the steps that began and ended.
type noted struct {
	mu   sync.Mutex
	said []string
	errs map[string]error
}

func (n *noted) trace(step Step) func(error) {
	n.say("+" + step.String())
	return func(err error) {
		n.say("-" + step.String())
		if err != nil {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.errs == nil {
				n.errs = map[string]error{}
			}
			n.errs[step.String()] = err
		}
	}
}

func (n *noted) say(what string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said, what)
}

func TestRunReportsItsTenSteps(t *testing.T) {
	fake := enginetest.NewFake(func(*enginetest.Program) int { return 3 })
	r := newFakeRunner(t, fake)
	var n noted
	_, err := r.Run(WithTracer(t.Context(), n.trace), command("true"))
	require.NoError(t, err)
	require.Equal(t, []string{
		"+plan", "+image", "-image", "-plan", "+lease", "-lease", "+stage", "-stage", "+prepare", "-prepare", "+start", "-start",
		"+stream", "-stream", "+end", "-end", "+result", "-result", "+remove", "-remove",
	}, n.said)
	require.Empty(t, n.errs)
	_, err = r.Run(t.Context(), Request{ID: "r2", Image: "debian", Command: []string{"true"}})
	require.NoError(t, err, "without a tracer")
}

// A request to end begins step 8, once.
func TestEndIsAStepOfAStoppedRun(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fake := enginetest.NewFake(endsOnTerm)
	var n noted
	_, err := newFakeRunner(t, fake).Run(WithTracer(ctx, n.trace), command("true"), Hooks{Running: cancel})
	require.NoError(t, err)
	require.Equal(t, []string{"+stream", "-stream", "+end", "-end"}, n.said[12:16])
	require.Len(t, n.said, 20)
}

// The step that a run failed in has the error, and nothing stays open.
func TestStepsOfARunThatFails(t *testing.T) {
	refused := errors.New("no container today")
	fake := enginetest.NewFake(nil)
	fake.Fail.Prepare = refused
	r := newFakeRunner(t, fake)
	var n noted
	_, err := r.Run(WithTracer(t.Context(), n.trace), command("true"))
	require.ErrorIs(t, err, refused)
	require.Equal(t, []string{"+prepare", "-prepare", "+remove", "-remove"}, n.said[8:])
	require.Len(t, n.errs, 1)
	require.ErrorIs(t, n.errs["prepare"], refused)

	n = noted{}
	_, err = r.Run(WithTracer(t.Context(), n.trace), Request{ID: "../r", Image: "debian", Command: []string{"true"}})
	require.Error(t, err)
	require.Equal(t, []string{"+plan", "-plan"}, []string{n.said[0], n.said[len(n.said)-1]})
	require.Equal(t, err, n.errs["plan"])
}

func TestTracersNest(t *testing.T) {
	var n noted
	ctx := WithTracer(WithTracer(t.Context(), n.trace), func(step Step) func(error) {
		n.say("second " + step.String())
		return func(error) { n.say("second ended") }
	})
	tracerOf(ctx)(StepLease)(nil)
	require.Equal(t, []string{"+lease", "second lease", "second ended", "-lease"}, n.said)
}

func TestStepNames(t *testing.T) {
	require.Equal(t, "plan", StepPlan.String())
	require.Equal(t, "remove", StepRemove.String())
	require.EqualValues(t, 10, StepRemove)
	require.Equal(t, "step(0)", Step(0).String())
	require.Equal(t, "step(11)", Step(11).String())
}
