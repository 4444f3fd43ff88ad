package sandbox

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/gpu"
	"github.com/evalbox/evalbox/sandbox/metrics"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/stop"
)

const (
	// measurePeriod is the time between two measurements of a run, until there are too many of them.
	measurePeriod = time.Second
	// measureShare is how much longer than a measurement the pause behind it is at least: an engine on
	// another machine takes a while for each, and part of it is time of its processors.
	measureShare = 100
	// maxMeasurePause bounds that pause.
	maxMeasurePause = 10 * time.Second
)

// meter measures one run, and applies its stop rules. Its Write gets the stdout of the program. A nil
// meter is that of a run without output.
type meter struct {
	stop     func(outcome.StopReason)
	recorder *metrics.Recorder
	measures sync.WaitGroup

	mu      sync.Mutex // of the fields below
	scanner result.MetricScanner
	rules   *stop.Watch
	began   time.Time
	by      *result.StoppedBy
	summary *result.Metrics
	err     error
	closed  bool
}

// newMeter returns the meter of a run whose record exists.
func (a *run) newMeter() (*meter, error) {
	m := &meter{stop: a.stop, recorder: metrics.New(a.stage.Dir, a.evidence.Recovered), began: time.Now()}
	if started := a.journal.Started; a.evidence.Recovered && !started.IsZero() {
		// The clock of the dead controller is not known. No rule depends on this but those of the
		// program's silence, which begins again.
		m.began = m.began.Add(-max(time.Since(started), 0))
	}
	var rules []stop.Rule
	for _, text := range a.spec.Job.StopWhen {
		rule, err := stop.Parse(text)
		switch {
		case err != nil: // a plan of another version
			return nil, &policy.FieldError{Field: "stop_when", Value: fmt.Sprintf("%.200q", text), Rule: err.Error()}
		case rule.NeedsPeers() && a.hooks.Peers == nil:
			a.warn.add("the rule %q was not applied after the controller had died: the other runs are not known", text)
			continue
		}
		rules = append(rules, rule)
	}
	m.rules = stop.New(rules, a.hooks.Peers)
	m.scanner.Each = m.print
	return m, nil
}

// checkPeers refuses a rule that compares a run with others, if it has none.
func checkPeers(rules []string, peers *stop.Peers) error {
	for _, text := range rules {
		if rule, err := stop.Parse(text); err == nil && rule.NeedsPeers() && peers == nil {
			return &policy.FieldError{Field: "stop_when", Value: fmt.Sprintf("%q", text),
				Rule: "compares runs of a batch, and this run is not one of a batch", Hint: "use it with: sandbox batch"}
		}
	}
	return nil
}

// begin notes that the program starts now.
func (m *meter) begin(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.began = now
}

// Write looks for metrics in a piece of stdout.
func (m *meter) Write(p []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.scanner.Write(p)
}

// print takes a line of metrics. The caller holds mu.
func (m *meter) print(line result.MetricLine) {
	seconds := time.Since(m.began).Seconds()
	m.recorder.Print(seconds, line)
	m.fulfilled(m.rules.Print(seconds, line))
}

// fulfilled ends the run if a rule is fulfilled; nil is none. The caller holds mu.
func (m *meter) fulfilled(by *result.StoppedBy) {
	if by == nil || m.by != nil {
		return
	}
	m.by = by
	m.stop(outcome.StopByRule)
}

// stoppedBy returns the rule that was fulfilled; nil for none.
func (m *meter) stoppedBy() *result.StoppedBy {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.by
}

// watch measures a run until ctx ends. It does not block.
func (m *meter) watch(ctx context.Context, a *run) {
	gpus := &gpu.Usage{}
	if lease := a.gpus; lease != nil && a.info.Local {
		m.measures.Go(func() { gpus.Watch(ctx, lease.IDs(), measurePeriod) })
	}
	m.measures.Go(func() {
		var last cpuTime
		tick := time.NewTicker(measurePeriod)
		defer tick.Stop()
		var pause time.Time // no measurement before
		for n := int64(1); ; n++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			m.mu.Lock()
			seconds := time.Since(m.began).Seconds()
			m.fulfilled(m.rules.Tick(seconds, a.output.Stdout.Total()+a.output.Stderr.Total()))
			m.mu.Unlock()
			if n%m.recorder.Every() != 0 || time.Now().Before(pause) {
				continue
			}
			began := time.Now()
			usage := a.usage(ctx, seconds, &last)
			usage.GPUs = gpus.Last()
			pause = time.Now().Add(min(measureShare*time.Since(began)-measurePeriod/2, maxMeasurePause))
			if ctx.Err() == nil {
				m.recorder.Measure(seconds, usage)
			}
		}
	})
}

// cpuTime is the processor time of a program, seconds after its start.
type cpuTime struct{ seconds, used float64 }

// usage measures the machine's part of a run.
func (a *run) usage(ctx context.Context, seconds float64, last *cpuTime) (u metrics.Usage) {
	if bytes, known := a.stage.Used(); known {
		u.DiskBytes = &bytes
	}
	is, ok := a.container.Sample(ctx)
	if !ok {
		return u
	}
	now := cpuTime{seconds, is.CPU.Seconds()}
	if a.evidence.Recovered && *last == (cpuTime{}) {
		*last = now // the time before is not that of this process
	} else if period := now.seconds - last.seconds; period > 0 {
		u.CPUs = new(max(now.used-last.used, 0) / period)
		*last = now
	}
	if is.Memory > 0 {
		u.MemoryBytes = &is.Memory
	}
	if is.Processes > 0 {
		u.Processes = new(max(is.Processes-1, 0)) // without init
	}
	return u
}

// wait waits until nothing measures any more. The context of watch has ended.
func (m *meter) wait() {
	if m != nil {
		m.measures.Wait()
	}
}

// close ends the measurements and returns their summary; nil if there were none. It may be called
// again.
func (m *meter) close() (*result.Metrics, error) {
	if m == nil {
		return nil, nil //nolint:nilnil // no output, no metrics
	}
	m.measures.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		m.scanner.End()
		m.summary, m.err = m.recorder.Close(m.scanner.Metrics(), m.scanner.Rejected())
	}
	return m.summary, m.err
}

// missing returns the metrics that rules are about and that the program never printed.
func (m *meter) missing() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rules.Missing()
}

// finished makes the run one of the peers of others.
func (m *meter) finished() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rules.Finished()
}
