package telemetry

import (
	"sync"

	"github.com/evalbox/evalbox/harness/trial"
)

// Jobs counts the jobs of one queue by their events; see [Metrics.Jobs].
type Jobs struct {
	m *Metrics

	mu               sync.Mutex
	waiting, running int
	closed           bool
}

// Jobs begins to count the jobs of a queue: n of them are left to do. Pass it the events of the queue,
// and close it when the queue has ended.
func (m *Metrics) Jobs(n int) *Jobs {
	j := &Jobs{m: m, waiting: max(n, 0)}
	m.waiting.Add(float64(j.waiting))
	return j
}

// Event counts an event, as [trial.Queue].Emit gets it.
func (j *Jobs) Event(e trial.Event) {
	switch {
	case e.Run != "" || e.Role != "": // of a run of the job
	case e.Kind == trial.EventStarted:
		j.move(-1, 1)
	case e.Kind == trial.EventKnown:
		j.move(-1, 0)
		j.m.known.Inc()
	case e.Kind == trial.EventRetry:
		j.m.retries.Inc()
	case e.Kind == trial.EventEnded:
		j.move(0, -1)
		if e.Result != nil {
			j.m.jobs.WithLabelValues(verdictOf(e.Result.Verdict)).Inc()
		}
	}
}

// Close takes the jobs that have not ended from the gauges: a queue that ends early leaves some. After
// that, no event changes them.
func (j *Jobs) Close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.set(0, 0)
	j.closed = true
}

// move changes the numbers of the jobs that wait and that run. A queue may have more jobs than it
// was said to have: none of the numbers is negative.
func (j *Jobs) move(waiting, running int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.closed {
		j.set(max(j.waiting+waiting, 0), max(j.running+running, 0))
	}
}

func (j *Jobs) set(waiting, running int) {
	j.m.waiting.Add(float64(waiting - j.waiting))
	j.m.running.Add(float64(running - j.running))
	j.waiting, j.running = waiting, running
}

// verdictOf is a verdict as the value of a label. A queue makes any other word inconclusive.
func verdictOf(v trial.Verdict) string {
	if v.Conclusive() {
		return string(v)
	}
	return string(trial.Inconclusive)
}
