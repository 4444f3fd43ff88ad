package stop

import (
	"math"
	"slices"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
)

// A Watch applies rules to one run. It is not safe for concurrent use.
type Watch struct {
	rules []Rule
	peers *Peers
	curve *Curve
	// compared are the metrics that other runs may be compared by.
	compared []string

	plateaus map[int]*window
	best     map[int]float64
	count    map[string]float64 // values of each metric
	output   int64              // bytes, and when there were more than before
	spoke    float64
}

// New returns a watch over one run. peers are the runs of its batch; nil if it has none: then no rule
// may need any.
func New(rules []Rule, peers *Peers) *Watch {
	w := &Watch{rules: rules, peers: peers, plateaus: map[int]*window{}, best: map[int]float64{}, count: map[string]float64{}}
	for _, r := range rules {
		if r.NeedsPeers() {
			w.compared = append(w.compared, r.metric)
		}
	}
	if peers != nil && len(w.compared) > 0 {
		w.curve = &Curve{}
	}
	return w
}

// Print applies the rules to a line of metrics, seconds after the start of the program. It returns the
// rule that ends the run; nil for none. The step of a line without one is the number of its values so
// far.
func (w *Watch) Print(seconds float64, line result.MetricLine) *result.StoppedBy {
	steps := map[string]float64{}
	for name, value := range line.Values {
		w.count[name]++
		steps[name] = w.count[name]
		if line.Step != nil {
			steps[name] = *line.Step
		}
		if slices.Contains(w.compared, name) {
			w.curve.Add(name, steps[name], value)
		}
	}
	for i, r := range w.rules {
		value, ok := line.Values[r.metric]
		if !ok || r.kind == silent {
			continue
		}
		if by := w.apply(i, r, seconds, line.Step, steps[r.metric], value); by != nil {
			return by
		}
	}
	return nil
}

func (w *Watch) apply(i int, r Rule, seconds float64, shownStep *float64, step, value float64) *result.StoppedBy {
	when := at(seconds, shownStep)
	switch r.kind {
	case isNaN:
		if math.IsNaN(value) {
			return r.stopped("metric.%s was nan %s.", r.metric, when)
		}
	case isInf:
		if math.IsInf(value, 0) {
			return r.stopped("metric.%s was %s %s.", r.metric, shown(value), when)
		}
	case compares:
		if r.holds(value) {
			return r.stopped("metric.%s was %s %s.", r.metric, shown(value), when)
		}
	case plateau:
		if w.plateaus[i] == nil {
			w.plateaus[i] = &window{length: r.steps}
		}
		if low, high, full := w.plateaus[i].add(step, value); full && high-low <= r.number {
			return r.stopped("metric.%s was between %s and %s for %s steps, %s.", r.metric, shown(low), shown(high), text.Number(r.steps), when)
		}
	case median:
		return w.applyMedian(i, r, when, step, value)
	case silent:
	}
	return nil
}

func (w *Watch) applyMedian(i int, r Rule, when string, step, value float64) *result.StoppedBy {
	if math.IsNaN(value) {
		return nil
	}
	best, ok := w.best[i]
	switch {
	case !ok:
		best = value
	case r.op == "<":
		best = max(best, value)
	default:
		best = min(best, value)
	}
	w.best[i] = best
	middle, runs := w.peers.median(r.metric, step)
	if runs < MinPeers || !(r.op == "<" && best < middle-r.number || r.op == ">" && best > middle+r.number) {
		return nil
	}
	return r.stopped("The best metric.%s was %s %s; the median of %d finished runs there is %s.", r.metric, shown(best), when, runs, shown(middle))
}

// Tick applies the rules over time: output is the number of bytes that the program has written.
func (w *Watch) Tick(seconds float64, output int64) *result.StoppedBy {
	if output != w.output {
		w.output, w.spoke = output, seconds
	}
	for _, r := range w.rules {
		if r.kind == silent && seconds-w.spoke >= r.silence.Seconds() {
			return r.stopped("There was no output for %s, %s.", text.Seconds(seconds-w.spoke), at(seconds, nil))
		}
	}
	return nil
}

// Missing returns the metrics of the rules that the program has not printed, in the order of the rules.
func (w *Watch) Missing() []string {
	var names []string
	for _, r := range w.rules {
		if r.metric != "" && w.count[r.metric] == 0 && !slices.Contains(names, r.metric) {
			names = append(names, r.metric)
		}
	}
	return names
}

// Finished adds the run to the peers of later ones. It is for a run whose program ended by itself.
func (w *Watch) Finished() {
	if w.curve != nil {
		w.peers.Add(w.curve)
	}
}

// window finds the least and the largest value of the last steps. Its memory is bounded: steps are
// put together in parts of the window.
type window struct {
	length float64
	parts  []part
	begun  bool
	first  float64
	last   float64
}

// part is the values from a step on. mixed says that one of them was not finite.
type part struct {
	from, low, high float64
	mixed           bool
}

// windowParts is the number of parts of a window.
const windowParts = 256

// add adds a value, and returns the least and the largest one of the window. full says that the values
// cover it, and are all finite.
func (w *window) add(step, value float64) (low, high float64, full bool) {
	if !w.begun || step < w.last { // a program that counts again begins again
		w.begun, w.first, w.parts = true, step, nil
	}
	w.last = step
	mixed := math.IsNaN(value) || math.IsInf(value, 0)
	if n := len(w.parts); n == 0 || step-w.parts[n-1].from > w.length/windowParts {
		w.parts = append(w.parts, part{step, value, value, mixed})
	} else {
		p := &w.parts[n-1]
		p.low, p.high, p.mixed = min(p.low, value), max(p.high, value), p.mixed || mixed
	}
	// The part in which the window begins counts as a whole.
	begin := slices.IndexFunc(w.parts, func(p part) bool { return p.from > step-w.length })
	w.parts = slices.Delete(w.parts, 0, max(begin-1, 0))
	low, high = math.Inf(1), math.Inf(-1)
	for _, p := range w.parts {
		if p.mixed {
			return 0, 0, false
		}
		low, high = min(low, p.low), max(high, p.high)
	}
	return low, high, step-w.first >= w.length
}
