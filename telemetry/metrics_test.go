package telemetry_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/telemetry"
)

// newRunner is a runner on a fake engine.
func newRunner(t *testing.T, fake *enginetest.Fake, opts ...sandbox.Option) *sandbox.Runner {
	t.Helper()
	fake.Own, fake.Warn = "", nil
	r, err := sandbox.New(append([]sandbox.Option{sandbox.WithEngine(fake), sandbox.WithStateDir(filepath.Join(t.TempDir(), "state"))}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// register returns metrics and the registry that has them.
func register(t *testing.T) (*telemetry.Metrics, *prometheus.Registry) {
	t.Helper()
	m, registry := telemetry.NewMetrics(), prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(m))
	return m, registry
}

// same compares the metrics of these names with a text.
func same(t *testing.T, registry *prometheus.Registry, want string, names ...string) {
	t.Helper()
	var text strings.Builder
	for line := range strings.Lines(want) {
		text.WriteString(strings.TrimLeft(line, "\t"))
	}
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(text.String()), names...))
}

func request(id string) sandbox.Request {
	return sandbox.Request{ID: id, Image: "debian", Command: []string{"true"}}
}

func TestRunsAreCountedByTheirEnd(t *testing.T) {
	m, registry := register(t)
	code := 0
	fake := enginetest.NewFake(func(*enginetest.Program) int { return code })
	box := m.Box(newRunner(t, fake))
	for i, id := range []string{"a", "b", "c"} {
		code = i
		_, err := box.Run(t.Context(), request(id))
		require.NoError(t, err)
	}
	_, err := box.Run(t.Context(), request("../a"))
	require.Error(t, err)
	fake.Do(func(f *enginetest.Fake) { f.Fail.Prepare = engine.ErrUnavailable })
	_, err = box.Run(t.Context(), request("d"))
	require.Error(t, err)
	same(t, registry, `
		# HELP evalbox_run_errors_total Runs without a result, by the cause: canceled, request, busy, engine, other.
		# TYPE evalbox_run_errors_total counter
		evalbox_run_errors_total{cause="engine"} 1
		evalbox_run_errors_total{cause="request"} 1
		# HELP evalbox_runs_in_progress Runs between their call and their return.
		# TYPE evalbox_runs_in_progress gauge
		evalbox_runs_in_progress 0
		# HELP evalbox_runs_total Runs that have a result, by the status and the fault in it.
		# TYPE evalbox_runs_total counter
		evalbox_runs_total{fault="none",status="exited"} 1
		evalbox_runs_total{fault="program",status="exited"} 2
	`, "evalbox_runs_total", "evalbox_run_errors_total", "evalbox_runs_in_progress")
	for _, name := range []string{"evalbox_run_program_seconds", "evalbox_run_setup_seconds", "evalbox_run_teardown_seconds"} {
		require.EqualValues(t, 3, samples(t, registry, name), name)
	}
	require.EqualValues(t, 3*10+2+6, samples(t, registry, "evalbox_run_step_seconds"), "the refused run had 2 steps, the last one 5 and its removal")
}

// samples is the number of observations of a histogram, of all its labels.
func samples(t *testing.T, registry *prometheus.Registry, name string) (n uint64) {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == name {
			for _, metric := range family.GetMetric() {
				n += metric.GetHistogram().GetSampleCount()
			}
		}
	}
	return n
}

// value is that of a gauge or counter without labels.
func value(t *testing.T, registry *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		if family.GetName() == name {
			metric := family.GetMetric()[0]
			return metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

func TestProgramsAreCountedWhileTheyRun(t *testing.T) {
	m, registry := register(t)
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		<-p.Term()
		return 0
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	box, done := m.Box(newRunner(t, fake)), make(chan struct{})
	go func() {
		defer close(done)
		_, _ = box.Run(ctx, request("a"))
	}()
	running := func(want float64) func() bool {
		return func() bool {
			return value(t, registry, "evalbox_programs_running") == want && value(t, registry, "evalbox_runs_in_progress") == want
		}
	}
	require.Eventually(t, running(1), 10*time.Second, 5*time.Millisecond)
	cancel()
	<-done
	require.True(t, running(0)())
	same(t, registry, `
		# HELP evalbox_runs_total Runs that have a result, by the status and the fault in it.
		# TYPE evalbox_runs_total counter
		evalbox_runs_total{fault="operator",status="canceled"} 1
	`, "evalbox_runs_total")
}

// answers is a box that answers a run with a result or an error, after the first step of one.
type answers struct {
	sandbox.Box
	res *result.Result
	err error
}

func (b answers) Run(ctx context.Context, _ sandbox.Request, _ ...sandbox.RunOption) (*result.Result, error) {
	_, _ = b.Box.Run(ctx, sandbox.Request{}) // it is refused
	return b.res, b.err
}

func (b answers) Adopt(context.Context, string, ...sandbox.RunOption) (*result.Result, error) {
	return b.res, b.err
}

func TestUsageAndPool(t *testing.T) {
	m, registry := register(t)
	refuses := newRunner(t, enginetest.NewFake(nil))
	ended := func(change func(*result.Result)) {
		res := result.Result{Status: result.StatusExited, Fault: result.FaultNone, StartedAt: "x", FinishedAt: "y", DurationSeconds: 20,
			Resources: result.Resources{CPUSeconds: 5}}
		change(&res)
		_, err := m.Box(answers{Box: refuses, res: &res}).Run(t.Context(), request("a"))
		require.NoError(t, err)
	}
	ended(func(r *result.Result) { r.Enforced.GPUs, r.Pool = []string{"0", "1"}, &result.Pool{Waited: true} })
	for _, reason := range []string{
		"no container of its class was waiting", "it has GPUs", "its files are copied to the engine",
		"the directory of its ./final is not readable and writable", "the keeper of the pool did not answer: EOF",
		"\"} 1\nevil 1", "the container that waited for it was changed or stopped by somebody else",
	} {
		ended(func(r *result.Result) { r.Pool = &result.Pool{Reason: reason} })
	}
	ended(func(r *result.Result) { r.Recovered, r.FinishedAt = true, "" })
	same(t, registry, `
		# HELP evalbox_cpu_seconds_total Processor time that programs used, in seconds.
		# TYPE evalbox_cpu_seconds_total counter
		evalbox_cpu_seconds_total 45
		# HELP evalbox_gpu_seconds_total Seconds that programs ran, times the number of their GPUs.
		# TYPE evalbox_gpu_seconds_total counter
		evalbox_gpu_seconds_total 40
		# HELP evalbox_pool_hits_total Runs that got a container which had waited in the pool.
		# TYPE evalbox_pool_hits_total counter
		evalbox_pool_hits_total 1
		# HELP evalbox_pool_misses_total Runs that found no container waiting in the pool, by the reason: none_waiting, unsuitable, keeper, other.
		# TYPE evalbox_pool_misses_total counter
		evalbox_pool_misses_total{reason="keeper"} 1
		evalbox_pool_misses_total{reason="none_waiting"} 1
		evalbox_pool_misses_total{reason="other"} 2
		evalbox_pool_misses_total{reason="unsuitable"} 3
	`, "evalbox_cpu_seconds_total", "evalbox_gpu_seconds_total", "evalbox_pool_hits_total", "evalbox_pool_misses_total")
	require.EqualValues(t, 8, samples(t, registry, "evalbox_run_setup_seconds"), "not of a run of another process")

	// A result that was only read is not one more run.
	_, err := m.Box(answers{res: &result.Result{Status: result.StatusTimedOut}}).Adopt(t.Context(), "a")
	require.NoError(t, err)
	same(t, registry, `
		# HELP evalbox_runs_total Runs that have a result, by the status and the fault in it.
		# TYPE evalbox_runs_total counter
		evalbox_runs_total{fault="none",status="exited"} 9
	`, "evalbox_runs_total")
}

// The reasons of the pool are sentences of package sandbox: those that a runner really gives.
func TestReasonsOfAPool(t *testing.T) {
	m, registry := register(t)
	fake := enginetest.NewFake(func(*enginetest.Program) int { return 0 })
	box := m.Box(newRunner(t, fake, sandbox.WithPool(sandbox.Pool{Size: 1})))
	for _, req := range []sandbox.Request{request(""), request("named")} {
		_, err := box.Run(t.Context(), req)
		require.NoError(t, err)
	}
	same(t, registry, `
		# HELP evalbox_pool_misses_total Runs that found no container waiting in the pool, by the reason: none_waiting, unsuitable, keeper, other.
		# TYPE evalbox_pool_misses_total counter
		evalbox_pool_misses_total{reason="none_waiting"} 1
		evalbox_pool_misses_total{reason="unsuitable"} 1
	`, "evalbox_pool_misses_total")
}

func TestCausesOfErrors(t *testing.T) {
	m, registry := register(t)
	refuses := newRunner(t, enginetest.NewFake(nil))
	fails := func(ctx context.Context, err error) {
		_, got := m.Box(answers{Box: refuses, err: err}).Run(ctx, request("a"))
		require.Equal(t, err, got)
	}
	fails(t.Context(), &policy.FieldError{Field: "x"})
	fails(t.Context(), errors.Join(sandbox.ErrBusy))
	fails(t.Context(), sandbox.ErrEnginePermission)
	fails(t.Context(), errors.New("text of anything"))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	fails(ended, sandbox.ErrBusy)
	same(t, registry, `
		# HELP evalbox_run_errors_total Runs without a result, by the cause: canceled, request, busy, engine, other.
		# TYPE evalbox_run_errors_total counter
		evalbox_run_errors_total{cause="busy"} 1
		evalbox_run_errors_total{cause="canceled"} 1
		evalbox_run_errors_total{cause="engine"} 1
		evalbox_run_errors_total{cause="other"} 1
		evalbox_run_errors_total{cause="request"} 1
	`, "evalbox_run_errors_total")
}

// harness ends its jobs as they are named, at their second try if that is "again".
type harness struct{ trial.Harness }

func (harness) Kind() string { return "test" }

func (harness) Run(_ context.Context, job trial.Job, emit func(trial.Event)) (trial.Result, error) {
	emit(trial.Event{Kind: trial.EventStarted, Run: "r"})
	emit(trial.Event{Kind: trial.EventStarted, Role: "program"})
	if job.Name == "again" && job.Attempt == 1 {
		return trial.Result{Verdict: trial.Inconclusive}, nil
	}
	if job.Name == "again" {
		return trial.Result{Verdict: trial.Passed}, nil
	}
	return trial.Result{Verdict: trial.Verdict(job.Name)}, nil
}

func TestJobsOfAQueue(t *testing.T) {
	m, registry := register(t)
	var list []trial.Job
	for _, name := range []string{"passed", "failed", "again", "known", "passed"} {
		list = append(list, trial.Job{Name: name})
	}
	jobs := m.Jobs(len(list) + 1) // one is never begun
	var waited []float64
	queue := trial.Queue{
		Retry: trial.Retry{Max: 1},
		Known: func(j trial.Job) (trial.Result, bool) { return trial.Result{Verdict: trial.Passed}, j.Name == "known" },
		Emit: func(e trial.Event) error {
			jobs.Event(e)
			if e.Kind == trial.EventStarted && e.Run == "" && e.Role == "" {
				require.EqualValues(t, 1, value(t, registry, "evalbox_jobs_running"))
				waited = append(waited, value(t, registry, "evalbox_jobs_waiting"))
			}
			return nil
		},
	}
	_, err := queue.Run(t.Context(), harness{}, slices.Values(list))
	require.NoError(t, err)
	require.Equal(t, []float64{5, 4, 3, 1}, waited)
	jobs.Event(trial.Event{Kind: trial.EventStarted})
	require.EqualValues(t, 1, value(t, registry, "evalbox_jobs_running"))
	jobs.Close()
	jobs.Close()
	jobs.Event(trial.Event{Kind: trial.EventStarted})
	same(t, registry, `
		# HELP evalbox_job_retries_total Further tries of jobs.
		# TYPE evalbox_job_retries_total counter
		evalbox_job_retries_total 1
		# HELP evalbox_jobs_known_total Jobs that did not run, because an earlier result was known.
		# TYPE evalbox_jobs_known_total counter
		evalbox_jobs_known_total 1
		# HELP evalbox_jobs_running Jobs of queues that have begun and not ended.
		# TYPE evalbox_jobs_running gauge
		evalbox_jobs_running 0
		# HELP evalbox_jobs_total Jobs that have ended, by their verdict.
		# TYPE evalbox_jobs_total counter
		evalbox_jobs_total{verdict="failed"} 1
		evalbox_jobs_total{verdict="passed"} 3
		# HELP evalbox_jobs_waiting Jobs of queues that have not begun.
		# TYPE evalbox_jobs_waiting gauge
		evalbox_jobs_waiting 0
	`, "evalbox_job_retries_total", "evalbox_jobs_known_total", "evalbox_jobs_running", "evalbox_jobs_total", "evalbox_jobs_waiting")
}

// A verdict that no vocabulary has is not the value of a label.
func TestVerdictsAreBounded(t *testing.T) {
	m, registry := register(t)
	jobs := m.Jobs(0)
	jobs.Event(trial.Event{Kind: trial.EventEnded, Result: &trial.Result{Verdict: "text"}})
	same(t, registry, `
		# HELP evalbox_jobs_total Jobs that have ended, by their verdict.
		# TYPE evalbox_jobs_total counter
		evalbox_jobs_total{verdict="inconclusive"} 1
	`, "evalbox_jobs_total")
}

// Names and help follow the conventions of Prometheus.
func TestNamesOfMetrics(t *testing.T) {
	m, registry := register(t)
	_, err := m.Box(newRunner(t, enginetest.NewFake(func(*enginetest.Program) int { return 0 }))).Run(t.Context(), request("a"))
	require.NoError(t, err)
	problems, err := testutil.GatherAndLint(registry)
	require.NoError(t, err)
	require.Empty(t, problems)
}
