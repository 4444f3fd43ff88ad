package telemetry_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/telemetry"
)

// An engine in memory takes the place of docker.FromEnv. A program that is scraped serves the
// registry with promhttp.HandlerFor.
func Example() {
	state, err := os.MkdirTemp("", "state-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(state)
	engine := enginetest.NewFake(func(*enginetest.Program) int { return 1 })
	engine.Warn, engine.Own = nil, ""
	runner, err := sandbox.New(sandbox.WithEngine(engine), sandbox.WithStateDir(filepath.Join(state, "evalbox")))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer runner.Close()

	metrics, registry := telemetry.NewMetrics(), prometheus.NewRegistry()
	registry.MustRegister(metrics)
	box := telemetry.Trace(metrics.Box(runner), otel.GetTracerProvider())
	if _, err := box.Run(context.Background(), sandbox.Request{Image: "debian", Command: []string{"false"}}); err != nil {
		fmt.Println(err)
		return
	}

	families, err := registry.Gather()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, family := range families {
		if family.GetName() == "evalbox_runs_total" {
			for _, metric := range family.GetMetric() {
				for _, label := range metric.GetLabel() {
					fmt.Print(label.GetName(), "=", label.GetValue(), " ")
				}
				fmt.Println(metric.GetCounter().GetValue())
			}
		}
	}
	// Output: fault=program status=exited 1
}

func ExampleMetrics_Jobs() {
	metrics := telemetry.NewMetrics()
	list := []trial.Job{{Name: "passed"}, {Name: "failed"}}
	jobs := metrics.Jobs(len(list))
	defer jobs.Close()
	queue := trial.Queue{Emit: func(e trial.Event) error {
		jobs.Event(e)
		return nil
	}}
	summary, err := queue.Run(context.Background(), harness{}, slices.Values(list))
	fmt.Println(summary.Passed, summary.Failed, err)
	// Output: 1 1 <nil>
}
