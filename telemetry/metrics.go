// Package telemetry shows what runs and jobs do while they go on: as metrics for Prometheus and as
// traces for OpenTelemetry. It wraps a [sandbox.Box], so that every harness can use it:
//
//	metrics := telemetry.NewMetrics()
//	registry.MustRegister(metrics)
//	box := telemetry.Trace(metrics.Box(runner), otel.GetTracerProvider())
//
// The values of labels are words of this package and of package result. A name, an ID, a rule or a
// text of a program is never one, so the number of series is bounded.
package telemetry

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/evalbox/evalbox/images/lock"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// Metrics count the runs of boxes and the jobs of queues. It is a collector: register it once. Its
// methods may be called concurrently.
type Metrics struct {
	collectors []prometheus.Collector

	runs, errors, misses         *prometheus.CounterVec
	hits, gpuSeconds, cpuSeconds prometheus.Counter
	inProgress, programs         prometheus.Gauge
	program, setup, teardown     prometheus.Histogram
	steps                        *prometheus.HistogramVec

	waiting, running prometheus.Gauge
	jobs             *prometheus.CounterVec
	known, retries   prometheus.Counter
}

// buckets bound durations in seconds, from 10 ms to 24 h.
var buckets = []float64{0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 60, 180, 600, 1800, 3600, 10800, 21600, 43200, 86400}

// NewMetrics returns metrics that have counted nothing.
func NewMetrics() *Metrics {
	m := &Metrics{
		runs: counters("runs_total", "Runs that have a result, by the status and the fault in it.", "status", "fault"),
		errors: counters("run_errors_total",
			"Runs without a result, by the cause: "+strings.Join([]string{causeCanceled, causeRequest, causeBusy, causeEngine, causeOther}, ", ")+".", "cause"),
		misses: counters("pool_misses_total", "Runs that found no container waiting in the pool, by the reason: "+
			strings.Join([]string{missNone, missUnsuitable, missKeeper, missOther}, ", ")+".", "reason"),
		hits:       counter("pool_hits_total", "Runs that got a container which had waited in the pool."),
		gpuSeconds: counter("gpu_seconds_total", "Seconds that programs ran, times the number of their GPUs."),
		cpuSeconds: counter("cpu_seconds_total", "Processor time that programs used, in seconds."),
		inProgress: gauge("runs_in_progress", "Runs between their call and their return."),
		programs:   gauge("programs_running", "Programs that have started and not ended."),
		program:    prometheus.NewHistogram(histogram("run_program_seconds", "Wall-clock time of programs, in seconds.")),
		setup:      prometheus.NewHistogram(histogram("run_setup_seconds", "Time from the call of a run to the start of its program, in seconds.")),
		teardown:   prometheus.NewHistogram(histogram("run_teardown_seconds", "Time from the end of a program to the result of its run, in seconds.")),
		steps:      prometheus.NewHistogramVec(histogram("run_step_seconds", "Time that runs spent in each of their ten steps, in seconds."), []string{"step"}),
		waiting:    gauge("jobs_waiting", "Jobs of queues that have not begun."),
		running:    gauge("jobs_running", "Jobs of queues that have begun and not ended."),
		jobs:       counters("jobs_total", "Jobs that have ended, by their verdict.", "verdict"),
		known:      counter("jobs_known_total", "Jobs that did not run, because an earlier result was known."),
		retries:    counter("job_retries_total", "Further tries of jobs."),
	}
	m.collectors = []prometheus.Collector{
		m.runs, m.errors, m.misses, m.hits, m.gpuSeconds, m.cpuSeconds, m.inProgress, m.programs, m.program, m.setup, m.teardown, m.steps,
		m.waiting, m.running, m.jobs, m.known, m.retries,
	}
	return m
}

const namespace = "evalbox"

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, labels)
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
}

func gauge(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help})
}

func histogram(name, help string) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}
}

// Describe implements [prometheus.Collector].
func (m *Metrics) Describe(to chan<- *prometheus.Desc) {
	for _, c := range m.collectors {
		c.Describe(to)
	}
}

// Collect implements [prometheus.Collector].
func (m *Metrics) Collect(to chan<- prometheus.Metric) {
	for _, c := range m.collectors {
		c.Collect(to)
	}
}

// Box returns a box whose runs are counted. Adopted runs count as well, if this process finished
// them.
func (m *Metrics) Box(b sandbox.Box) sandbox.Box { return metered{b, m} }

type metered struct {
	sandbox.Box
	m *Metrics
}

func (b metered) Run(ctx context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error) {
	return b.m.run(ctx, func(ctx context.Context) (*result.Result, error) { return b.Box.Run(ctx, req, opts...) })
}

func (b metered) Adopt(ctx context.Context, id string, opts ...sandbox.RunOption) (*result.Result, error) {
	return b.m.run(ctx, func(ctx context.Context) (*result.Result, error) { return b.Box.Adopt(ctx, id, opts...) })
}

// run counts a run. One that took no step was over before: its result was only read.
func (m *Metrics) run(ctx context.Context, do func(context.Context) (*result.Result, error)) (*result.Result, error) {
	m.inProgress.Inc()
	defer m.inProgress.Dec()
	var began, runs bool // only the goroutine of the run changes them
	defer func() {
		if runs {
			m.programs.Dec()
		}
	}()
	res, err := do(sandbox.WithTracer(ctx, func(step sandbox.Step) func(error) {
		switch {
		case step == sandbox.StepPlan || step == sandbox.StepLease:
			began = true
		case step == sandbox.StepStream:
			runs = true
			m.programs.Inc()
		case step == sandbox.StepResult && runs:
			runs = false
			m.programs.Dec()
		}
		since := time.Now()
		return func(error) { m.steps.WithLabelValues(step.String()).Observe(time.Since(since).Seconds()) }
	}))
	switch {
	case res != nil && began:
		m.ended(*res)
	case res == nil && err != nil:
		m.errors.WithLabelValues(cause(ctx, err)).Inc()
	}
	return res, err
}

// ended counts a result.
func (m *Metrics) ended(res result.Result) {
	m.runs.WithLabelValues(res.Status.String(), res.Fault.String()).Inc()
	if res.StartedAt != "" && !res.Recovered { // else the start was that of another process
		m.setup.Observe(res.SetupSeconds)
	}
	if res.FinishedAt != "" {
		m.program.Observe(res.DurationSeconds)
		m.teardown.Observe(res.TeardownSeconds)
		m.gpuSeconds.Add(max(res.DurationSeconds, 0) * float64(len(res.Enforced.GPUs)))
	}
	m.cpuSeconds.Add(max(res.Resources.CPUSeconds, 0))
	switch pool := res.Pool; {
	case pool == nil:
	case pool.Waited:
		m.hits.Inc()
	default:
		m.misses.WithLabelValues(missOf(pool.Reason)).Inc()
	}
}

// Causes of a run without a result.
const (
	causeCanceled = "canceled"
	causeRequest  = "request" // refused as it was asked for
	causeBusy     = "busy"    // another run has the ./final
	causeEngine   = "engine"  // the engine cannot be reached, or cannot enforce a limit
	causeOther    = "other"
)

// cause is the cause of an error in one word of few.
func cause(ctx context.Context, err error) string {
	var field *policy.FieldError
	var path *sandbox.PathError
	var unlocked *lock.UnlockedError
	switch {
	case ctx.Err() != nil:
		return causeCanceled
	case errors.As(err, &field), errors.As(err, &path), errors.As(err, &unlocked):
		return causeRequest
	case errors.Is(err, sandbox.ErrBusy):
		return causeBusy
	case errors.Is(err, sandbox.ErrEngineUnavailable), errors.Is(err, sandbox.ErrUnenforceable):
		return causeEngine
	}
	return causeOther
}

// Reasons why a run found no container waiting.
const (
	missNone       = "none_waiting"
	missUnsuitable = "unsuitable" // no container that waits can serve such a run
	missKeeper     = "keeper"     // the process that keeps the pool did not answer
	missOther      = "other"
)

// missOf sums up the reason of a [result.Pool], which is a sentence for people.
func missOf(reason string) string {
	switch {
	case strings.HasPrefix(reason, "no container of its class"):
		return missNone
	case strings.HasPrefix(reason, "it "), strings.HasPrefix(reason, "its "), strings.HasPrefix(reason, "the directory of its "):
		return missUnsuitable
	case strings.HasPrefix(reason, "the keeper "):
		return missKeeper
	}
	return missOther
}
