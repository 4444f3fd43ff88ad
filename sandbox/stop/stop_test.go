package stop

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"
)

func TestParse(t *testing.T) {
	for _, form := range Forms {
		r, err := Parse(form)
		require.NoError(t, err, form)
		require.Equal(t, form, r.String())
	}
	for rule, want := range map[string]string{
		"":                                 "is not a rule",
		"loss is nan":                      "is not a rule",
		"metric. is nan":                   "is not a rule",
		"metric.x is high":                 `"high": must be nan or inf`,
		"metric.x > high":                  `"high": must be a number`,
		"metric.x > NaN":                   "must be a number",
		"metric.x == 1":                    "is not a rule",
		"metric.x > 1 2":                   "is not a rule",
		"no output for 10":                 "must be a duration",
		"no output for 10ms":               "at least 1s",
		"no output":                        "is not a rule",
		"plateau of metric.x over 0 steps": "above 0",
		"plateau of metric.x over 5 steps within -1":     "not negative",
		"plateau of metric.x over 5":                     "is not a rule",
		"best metric.x < median + 0.2":                   "too small is compared with median - X",
		"best metric.x > median - 0.2":                   "too large is compared with median + X",
		"best metric.x <= median":                        "is not a rule",
		"best metric.x < 3":                              "is not a rule",
		"metric." + strings.Repeat("x", 300) + " is nan": "longer than 200 bytes",
	} {
		_, err := Parse(rule)
		require.ErrorContains(t, err, want, rule)
	}
	r, err := Parse("  no   output for 90s ")
	require.NoError(t, err)
	require.Equal(t, 90*time.Second, r.silence)
}

func parsed(t *testing.T, rules ...string) (all []Rule) {
	t.Helper()
	for _, rule := range rules {
		r, err := Parse(rule)
		require.NoError(t, err, rule)
		all = append(all, r)
	}
	return all
}

// printed gives a watch values of x at the steps 1, 2, …, one a second, until a rule ends the run.
func printed(w *Watch, values ...float64) *result.StoppedBy {
	for i, value := range values {
		step := float64(i + 1)
		if by := w.Print(step, result.MetricLine{Step: &step, Values: map[string]float64{"x": value}}); by != nil {
			return by
		}
	}
	return nil
}

func TestRulesOfOneRun(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	for _, c := range []struct {
		rule   string
		values []float64
		reason string
	}{
		{"metric.x is nan", []float64{1, 2, inf}, ""},
		{"metric.x is nan", []float64{1, nan}, "metric.x was nan after 2.00s, at step 2."},
		{"metric.y is nan", []float64{nan}, ""},
		{"metric.x is inf", []float64{nan, -inf}, "metric.x was -inf after 2.00s, at step 2."},
		{"metric.x > 10", []float64{10, 10.5}, "metric.x was 10.5 after 2.00s, at step 2."},
		{"metric.x >= 10", []float64{10}, "metric.x was 10 after 1.00s, at step 1."},
		{"metric.x < 0", []float64{0, nan, -1}, "metric.x was -1 after 3.00s, at step 3."},
		{"metric.x <= 0", []float64{1, 0}, "metric.x was 0 after 2.00s, at step 2."},
		{"plateau of metric.x over 3 steps", []float64{1, 1, 1}, ""},
		{"plateau of metric.x over 3 steps", []float64{1, 1, 1, 1}, "metric.x was between 1 and 1 for 3 steps, after 4.00s, at step 4."},
		{"plateau of metric.x over 3 steps", []float64{1, 2, 3, 4, 5, 6}, ""},
		{"plateau of metric.x over 3 steps within 0.5", []float64{3, 1, 1.2, 1.4, 1.1}, "metric.x was between 1 and 1.4 for 3 steps, after 5.00s, at step 5."},
		{"plateau of metric.x over 3 steps", []float64{1, 1, nan, 1, 1, 1}, ""},
		{"plateau of metric.x over 3 steps", []float64{1, 1, nan, 1, 1, 1, 1}, "metric.x was between 1 and 1 for 3 steps, after 7.00s, at step 7."},
	} {
		by := printed(New(parsed(t, c.rule), nil), c.values...)
		if c.reason == "" {
			require.Nil(t, by, "%s %v", c.rule, c.values)
			continue
		}
		require.NotNil(t, by, "%s %v", c.rule, c.values)
		require.Equal(t, result.StoppedBy{Rule: c.rule, Reason: c.reason}, *by)
	}
}

func TestStepsAreCountedWithoutOne(t *testing.T) {
	w := New(parsed(t, "plateau of metric.x over 2 steps"), nil)
	var by *result.StoppedBy
	for i := range 3 {
		require.Nil(t, by)
		by = w.Print(float64(i), result.MetricLine{Values: map[string]float64{"x": 5}})
	}
	require.NotNil(t, by)
	require.Equal(t, "metric.x was between 5 and 5 for 2 steps, after 2.00s.", by.Reason)
}

// A program that begins to count again, such as for the next fold, begins a new plateau.
func TestPlateauBeginsAgain(t *testing.T) {
	w := New(parsed(t, "plateau of metric.x over 3 steps"), nil)
	for _, step := range []float64{1, 2, 3, 1, 2, 3} {
		require.Nil(t, w.Print(0, result.MetricLine{Step: &step, Values: map[string]float64{"x": 5}}))
	}
}

func TestWindowIsBounded(t *testing.T) {
	w := window{length: 1e6}
	for step := range 2_000_000 / 100 {
		w.add(float64(step*100), float64(step%7))
		require.LessOrEqual(t, len(w.parts), windowParts+2)
	}
	low, high, full := w.add(2_000_000, 3)
	require.True(t, full)
	require.InDelta(t, 0, low, 0)
	require.InDelta(t, 6, high, 0)
}

func TestSilence(t *testing.T) {
	w := New(parsed(t, "no output for 10s"), nil)
	require.Nil(t, w.Tick(9, 0))
	require.Nil(t, w.Tick(9.5, 1))
	require.Nil(t, w.Tick(19, 1))
	by := w.Tick(19.5, 1)
	require.NotNil(t, by)
	require.Equal(t, "There was no output for 10.0s, after 19.5s.", by.Reason)
}

// A rule with a wrong name of a metric would be silent otherwise.
func TestMissingMetrics(t *testing.T) {
	w := New(parsed(t, "metric.x > 5", "metric.los is nan", "metric.los is inf", "no output for 1m"), nil)
	require.Equal(t, []string{"x", "los"}, w.Missing())
	require.Nil(t, printed(w, 1))
	require.Equal(t, []string{"los"}, w.Missing())
	require.Empty(t, New(nil, nil).Missing())
}

func finished(peers *Peers, values ...float64) {
	c := &Curve{}
	for i, value := range values {
		c.Add("x", float64(i+1), value)
	}
	peers.Add(c)
}

// The rule of Vizier: the best value so far against the median of the averages of the finished runs.
func TestMedianRule(t *testing.T) {
	peers := &Peers{}
	rules := parsed(t, "best metric.x < median - 0.2")
	for i := range MinPeers - 1 {
		finished(peers, 0.4+float64(i)/10, 1)
	}
	require.Nil(t, printed(New(rules, peers), 0, 0), "too few finished runs")
	finished(peers, 0.9, 1) // the averages at step 2 are 0.7, 0.75, 0.8, 0.85, 0.95
	by := printed(New(rules, peers), 0.5, 0.55)
	require.NotNil(t, by)
	require.Equal(t, "The best metric.x was 0.55 after 2.00s, at step 2; the median of 5 finished runs there is 0.8.", by.Reason)
	require.Nil(t, printed(New(rules, peers), 0.7, 0.1), "an early best value counts")
	require.Nil(t, printed(New(rules, peers), 0.5, 0.7))
	require.Nil(t, printed(New(rules, peers), 0.5, math.NaN()))

	lower := parsed(t, "best metric.x > median")
	require.NotNil(t, printed(New(lower, peers), 0.61))
	require.Nil(t, printed(New(lower, peers), 0.6))
	require.Nil(t, printed(New(lower, peers), 0.1, 5, 5, 5, 5), "no finished run got beyond step 2, and an early low value counts")
}

func TestFinishedRunsArePeers(t *testing.T) {
	peers := &Peers{}
	for i := range MinPeers {
		w := New(parsed(t, "best metric.x < median - 100"), peers)
		require.Nil(t, printed(w, float64(i)))
		w.Finished()
	}
	middle, runs := peers.median("x", 1)
	require.Equal(t, MinPeers, runs)
	require.InDelta(t, 2, middle, 1e-12)
	_, runs = peers.median("x", 2)
	require.Zero(t, runs, "no run got so far")
	New(nil, nil).Finished()
	New(nil, peers).Finished()
	require.Len(t, peers.curves, MinPeers, "a run without such a rule is none")
}

func TestCurveIsBounded(t *testing.T) {
	c := &Curve{}
	const n = 100_000
	for step := range n {
		c.Add("x", float64(step), float64(step))
	}
	require.LessOrEqual(t, len(c.series["x"].steps), maxSteps)
	average, ok := c.average("x", n/2)
	require.True(t, ok)
	require.InEpsilon(t, n/4, average, 0.02)
}

func ExampleParse() {
	rule, err := Parse("metric.loss is nan")
	if err != nil {
		fmt.Println(err)
		return
	}
	watch := New([]Rule{rule}, nil)
	by := watch.Print(12, result.MetricLine{Values: map[string]float64{"loss": math.NaN()}})
	fmt.Println(by.Reason)
	// Output: metric.loss was nan after 12.0s.
}
