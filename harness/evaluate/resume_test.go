package evaluate

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/evaluate/mlestar"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

func TestResume(t *testing.T) {
	ended := func(name, script, setup string, status result.Status) Result {
		return Result{Name: name, OriginalSHA256: script, ScriptSHA256: script, SetupSHA256: setup, Run: facts(name+script, status)}
	}
	good := func(name, script, setup string) Result { return ended(name, script, setup, result.StatusExited) }
	wanted := []Result{{Name: "a", OriginalSHA256: "1", SetupSHA256: "s"}}
	seeded := good("a", "1", "s")
	seeded.Seed = new(uint32(7))
	repaired := good("a", "1", "s")
	repaired.ScriptSHA256 = "2"
	hogged := ended("a", "1", "s", result.StatusDiskLimit)
	hogged.Run.Fault = result.FaultEnvironment
	for name, test := range map[string]struct {
		old  []Result
		want Resumption
	}{
		"nothing":        {nil, Resumption{New: 1}},
		"others":         {[]Result{good("b", "1", "s"), seeded}, Resumption{New: 1}},
		"done":           {[]Result{good("a", "1", "s")}, Resumption{Done: 1}},
		"a failure":      {[]Result{ended("a", "1", "s", result.StatusTimedOut)}, Resumption{Done: 1}},
		"repaired":       {[]Result{repaired}, Resumption{Done: 1}},
		"changed":        {[]Result{good("a", "0", "s")}, Resumption{Changed: 1}},
		"changed back":   {[]Result{good("a", "1", "s"), good("a", "0", "s")}, Resumption{Done: 1}},
		"another way":    {[]Result{good("a", "1", "t")}, Resumption{Setup: 1}},
		"and once more":  {[]Result{good("a", "1", "t"), good("a", "1", "s")}, Resumption{Done: 1}},
		"disturbed":      {[]Result{hogged}, Resumption{Inconclusive: 1}},
		"canceled":       {[]Result{ended("a", "1", "s", result.StatusCanceled)}, Resumption{Inconclusive: 1}},
		"tried again":    {[]Result{ended("a", "1", "s", result.StatusCanceled), good("a", "1", "s")}, Resumption{Done: 1}},
		"there and back": {[]Result{good("a", "1", "s"), good("a", "1", "t")}, Resumption{Done: 1}},
		"only elsewhere": {[]Result{good("a", "1", "s"), ended("a", "1", "t", result.StatusCanceled)}, Resumption{Done: 1}},
		"another task":   {[]Result{{Name: "a", OriginalSHA256: "1", SetupSHA256: "s", CompetitionID: "c"}}, Resumption{Setup: 1}},
		"known is kept":  {[]Result{good("a", "1", "s"), ended("a", "1", "s", result.StatusCanceled)}, Resumption{Done: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Resume(wanted, test.old, nil)
			require.Len(t, got.Known, 1)
			require.Equal(t, test.want.Done == 1, got.Known[0] != nil)
			if got.Known[0] != nil {
				require.Equal(t, "a1", got.Known[0].Run.ID)
			}
			require.Equal(t, test.want.Inconclusive == 1, got.Earlier[0] != nil)
			got.Known, got.Earlier = nil, nil
			require.Equal(t, test.want, got)
		})
	}
}

// TestSetup: whatever changes what an evaluation says changes its mark.
func TestSetup(t *testing.T) {
	task := newTask(t)
	setup := func(opts Options, task TaskDescription, timeout time.Duration, more map[string]string) string {
		sum, err := newEvaluator(t, echo(), opts).Setup(t.Context(), task, timeout, more)
		require.NoError(t, err)
		return sum
	}
	base := setup(Options{}, task, time.Second, nil)
	require.Equal(t, base, setup(Options{}, task, time.Second, nil))
	other := task
	other.Description = "another"
	for name, sum := range map[string]string{
		"task":  setup(Options{}, other, time.Second, nil),
		"time":  setup(Options{}, task, time.Minute, nil),
		"env":   setup(Options{Request: sandbox.Request{Env: map[string]string{"SEED": "1"}}}, task, time.Second, nil),
		"debug": setup(Options{}, task, time.Second, map[string]string{"debug command": "x"}),
		"GPUs":  setup(Options{GPUKind: "H200"}, task, time.Second, nil),
	} {
		require.NotEqual(t, base, sum, name)
	}
}

// TestOriginalIsThatOfTheCaller: a repair changes the script, and not what it is known by.
func TestOriginalIsThatOfTheCaller(t *testing.T) {
	e := newEvaluator(t, echo(), Options{})
	_, evaluation, err := e.repair(t.Context(), scripts("crash A: 1")[0],
		Job{Script: "crash A: 1", Task: newTask(t), Timeout: time.Minute, Name: "a", Setup: "s"},
		func(context.Context, mlestar.SolutionScript, Failure) (mlestar.SolutionScript, error) {
			return mlestar.NewSolution("score 1", mlestar.PhaseRefined), nil
		},
		1)
	require.NoError(t, err)
	require.Equal(t, hashText("crash A: 1"), evaluation.OriginalSHA256)
	require.Equal(t, hashText("score 1"), evaluation.ScriptSHA256)
	require.Equal(t, "s", evaluation.SetupSHA256)
	require.Equal(t, Result{Name: "a", OriginalSHA256: hashText("crash A: 1")}.Key(), evaluation.Key())
}
