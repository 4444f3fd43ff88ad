package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/sandbox/metrics"
	"github.com/evalbox/evalbox/sandbox/stop"
)

// pointsOf reads the points of a run.
func pointsOf(t *testing.T, r *Runner, id string) (all []metrics.Point) {
	t.Helper()
	for p, err := range metrics.Read(r.Store().RecordDir(id)) {
		require.NoError(t, err)
		all = append(all, p)
	}
	return all
}

// losing prints a loss each second, from first on, each half of the one before.
func losing(first float64, seconds int) func(p *enginetest.Program) int {
	return func(p *enginetest.Program) int {
		loss := first
		for step := range seconds {
			select {
			case <-p.Term():
				return enginetest.Died(15)
			case <-time.After(time.Second):
			}
			p.Print(fmt.Sprintf("{\"metric\": {\"loss\": %g, \"step\": %d}}\n", loss, step))
			loss /= 2
		}
		return 0
	}
}

func TestRunIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := enginetest.NewFake(losing(8, 4))
		r := newFakeRunner(t, fake)
		res, err := r.Run(t.Context(), command("python3"))
		require.NoError(t, err)
		m := res.Metrics
		require.NotNil(t, m)
		all := pointsOf(t, r, res.ID)
		require.Len(t, all, m.Points)
		measured := 0
		for _, p := range all {
			if p.Usage != nil {
				if p.Usage.MemoryBytes == nil {
					continue // the program ended at that moment
				}
				measured++
				require.Equal(t, int64(40<<20), *p.Usage.MemoryBytes)
				require.Equal(t, int64(2), *p.Usage.Processes, "the program's own, without init")
				continue
			}
			require.InDelta(t, p.Seconds, *p.Step+1, 0.001)
		}
		require.GreaterOrEqual(t, measured, 3)
		require.Equal(t, []result.CustomMetric{{Name: "loss", Count: 4, Last: new(1.0), LastStep: new(3.0), Min: new(1.0), Max: new(8.0)}}, m.Custom)
		require.InDelta(t, 1.5, m.PeakCPUs, 1e-9, "1.5 s of a processor in the first second")
		require.Empty(t, leftFiles(t, r, res.ID))
	})
}

// leftFiles lists temporary files in a record.
func leftFiles(t *testing.T, r *Runner, id string) (left []string) {
	t.Helper()
	entries, err := os.ReadDir(r.Store().RecordDir(id))
	require.NoError(t, err)
	for _, e := range entries {
		if filepath.Ext(e.Name()) == ".tmp" {
			left = append(left, e.Name())
		}
	}
	return left
}

func TestShortSilentRunHasNoMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRunner(t, enginetest.NewFake(func(*enginetest.Program) int { return 0 }))
		res, err := r.Run(t.Context(), command("true"))
		require.NoError(t, err)
		require.Nil(t, res.Metrics)
		require.NoFileExists(t, filepath.Join(r.Store().RecordDir(res.ID), metrics.File))
	})
}

func TestStopRuleEndsARun(t *testing.T) {
	for name, c := range map[string]struct {
		program func(*enginetest.Program) int
		rule    string
		reason  string
		code    int
	}{
		"a metric": {losing(8, 100), "metric.loss < 1", "metric.loss was 0.5 after 5.00s, at step 4.", 143},
		"silence":  {func(p *enginetest.Program) int { p.Print("begin\n"); return endsOnTerm(p) }, "no output for 10s", "There was no output for", 143},
		"it ignores SIGTERM": {func(p *enginetest.Program) int {
			p.Print("{\"metric\":{\"loss\":NaN}}\n")
			return outlasts(p)
		}, "metric.loss is nan", "metric.loss was nan after 0.00s.", 137},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRunner(t, enginetest.NewFake(c.program))
				req := command("python3")
				req.StopWhen = []string{"metric.other is nan", c.rule}
				res, err := r.Run(t.Context(), req)
				require.NoError(t, err)
				require.Equal(t, result.StatusStoppedByRule, res.Status)
				require.Equal(t, result.FaultProgram, res.Fault)
				require.True(t, res.Conclusive())
				require.NotNil(t, res.StoppedBy)
				require.Equal(t, c.rule, res.StoppedBy.Rule)
				require.Contains(t, res.StoppedBy.Reason, c.reason)
				require.Contains(t, res.Explanation, "The program was stopped by the rule \""+c.rule+"\": "+res.StoppedBy.Reason)
				require.Equal(t, c.code, res.ExitCode)
				require.False(t, res.TimedOut)
			})
		})
	}
}

// The end of a program that comes before the rule is its own.
func TestRuleAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRunner(t, enginetest.NewFake(func(p *enginetest.Program) int {
			p.Print("{\"metric\":{\"loss\":1}}")
			return 3
		}))
		req := command("python3")
		req.StopWhen = []string{"metric.loss > 0"} // the last line has no line feed: it counts at the end
		res, err := r.Run(t.Context(), req)
		require.NoError(t, err)
		require.Equal(t, result.StatusExited, res.Status)
		require.Nil(t, res.StoppedBy)
		require.Len(t, res.Metrics.Custom, 1)
	})
}

// A rule about a metric that the program did not print is a warning, unless the program failed.
func TestRuleWithoutItsMetric(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		code := 0
		r := newFakeRunner(t, enginetest.NewFake(func(p *enginetest.Program) int {
			p.Print("{\"metric\":{\"loss\":1}}\n")
			return code
		}))
		req := command("python3")
		req.StopWhen = []string{"metric.los is nan", "metric.loss is nan"}
		res, err := r.Run(t.Context(), req)
		require.NoError(t, err)
		require.Contains(t, res.Warnings, "the program did not print metric.los, which a stop rule is about")
		require.NotContains(t, strings.Join(res.Warnings, ""), "metric.loss")
		code, req.ID = 1, "failed"
		res, err = r.Run(t.Context(), req)
		require.NoError(t, err)
		require.NotContains(t, strings.Join(res.Warnings, ""), "metric.los")
	})
}

func TestStopRulesAreRefused(t *testing.T) {
	for rule, want := range map[string]string{
		"loss is nan":                    "is not a rule",
		"best metric.acc < median - 0.2": "compares runs of a batch",
	} {
		fake := enginetest.NewFake(func(*enginetest.Program) int { return 0 })
		r := newFakeRunner(t, fake)
		req := command("true")
		req.StopWhen = []string{rule}
		_, err := r.Run(t.Context(), req)
		var field *policy.FieldError
		require.ErrorAs(t, err, &field)
		require.Equal(t, "stop_when", field.Field)
		require.ErrorContains(t, err, want)
		require.Empty(t, leftBehind(t, r, fake))
	}
}

// A run that is far behind the finished ones of its batch is stopped early.
func TestMedianRuleAcrossRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := 8.0
		fake := enginetest.NewFake(func(p *enginetest.Program) int { return losing(first, 20)(p) })
		r := newFakeRunner(t, fake)
		peers := &stop.Peers{}
		run := func(id string) *result.Result {
			req := command("python3")
			req.ID, req.StopWhen = id, []string{"best metric.loss > median + 1"}
			res, err := r.Run(t.Context(), req, Hooks{Peers: peers})
			require.NoError(t, err)
			return res
		}
		for i := range stop.MinPeers {
			require.Equal(t, result.StatusExited, run(fmt.Sprintf("good%d", i)).Status)
		}
		first = 1000
		res := run("bad")
		require.Equal(t, result.StatusStoppedByRule, res.Status)
		require.Less(t, res.DurationSeconds, 5.0)
		first = 8
		require.Equal(t, result.StatusExited, run("good").Status, "the stopped run is not one of the peers")
	})
}
