package stop

import (
	"math"
	"slices"
	"sort"
	"sync"
)

// MinPeers is the number of finished runs without which there is no median.
const MinPeers = 5

// Peers are the finished runs of a batch, for the median stopping rule: a run is stopped at a step if
// its best value so far is worse than the median of the averages that the finished runs had up to the
// same step (Golovin et al., Google Vizier: A Service for Black-Box Optimization, KDD 2017, 3.2.2).
//
// The zero Peers has no runs. Methods may be called concurrently.
type Peers struct {
	mu     sync.Mutex
	curves []*Curve
}

// maxCurves bounds the runs that are remembered; later ones are not.
const maxCurves = 1000

// Add adds a finished run.
func (p *Peers) Add(c *Curve) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.curves) < maxCurves {
		p.curves = append(p.curves, c)
	}
}

// median returns the median of the averages of the finished runs up to a step, and the number of runs
// that got so far.
func (p *Peers) median(metric string, step float64) (middle float64, runs int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var averages []float64
	for _, c := range p.curves {
		if average, ok := c.average(metric, step); ok {
			averages = append(averages, average)
		}
	}
	n := len(averages)
	if n == 0 {
		return 0, 0
	}
	slices.Sort(averages)
	return (averages[(n-1)/2] + averages[n/2]) / 2, n
}

// A Curve has the averages of the metrics of one run up to its steps. A nil Curve takes nothing.
type Curve struct{ series map[string]*series }

// series is one metric. The averages are those up to the steps, which ascend.
type series struct {
	sum, count     float64
	steps          []float64
	averages       []float64
	every, skipped int
}

// maxSteps bounds the steps of a series: beyond it, every second one is forgotten.
const maxSteps = 512

// Add adds a value of a metric at a step.
func (c *Curve) Add(metric string, step, value float64) {
	if c == nil || math.IsNaN(value) || math.IsInf(value, 0) || math.IsNaN(step) {
		return
	}
	if c.series == nil {
		c.series = map[string]*series{}
	}
	s := c.series[metric]
	if s == nil {
		s = &series{every: 1}
		c.series[metric] = s
	}
	if n := len(s.steps); n > 0 && step < s.steps[n-1] {
		return // the program counts again
	}
	s.sum += value
	s.count++
	if s.skipped++; s.skipped < s.every {
		return
	}
	s.skipped = 0
	s.steps, s.averages = append(s.steps, step), append(s.averages, s.sum/s.count)
	if len(s.steps) > maxSteps {
		for i := range len(s.steps) / 2 {
			s.steps[i], s.averages[i] = s.steps[2*i+1], s.averages[2*i+1]
		}
		s.steps, s.averages = s.steps[:len(s.steps)/2], s.averages[:len(s.averages)/2]
		s.every *= 2
	}
}

// average returns the average up to a step. ok is false if the run did not get so far.
func (c *Curve) average(metric string, step float64) (float64, bool) {
	s := c.series[metric]
	if s == nil || len(s.steps) == 0 || s.steps[len(s.steps)-1] < step {
		return 0, false
	}
	i := sort.Search(len(s.steps), func(i int) bool { return s.steps[i] > step }) - 1
	return s.averages[max(i, 0)], true
}
