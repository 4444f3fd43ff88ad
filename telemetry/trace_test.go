package telemetry_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/engine/enginetest"
	"github.com/evalbox/evalbox/telemetry"
)

// recorder returns a provider of tracers, and what records their spans.
func recorder() (*sdk.TracerProvider, *tracetest.SpanRecorder) {
	spans := tracetest.NewSpanRecorder()
	return sdk.NewTracerProvider(sdk.WithSpanProcessor(spans)), spans
}

// attributes are those of a span, by name.
func attributes(span sdk.ReadOnlySpan) map[string]any {
	all := map[string]any{}
	for _, a := range span.Attributes() {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

// A run is a span in that of its caller, with one for each of its ten steps, in their order.
func TestARunIsASpanWithItsSteps(t *testing.T) {
	provider, spans := recorder()
	fake := enginetest.NewFake(func(p *enginetest.Program) int {
		p.Print("<b>secret</b>")
		return 3
	})
	ctx, caller := provider.Tracer("test").Start(t.Context(), "caller")
	req := request("r1")
	req.Labels = map[string]string{"trial.id": "job-1", "other": "x"}
	_, err := telemetry.Trace(newRunner(t, fake), provider).Run(ctx, req)
	require.NoError(t, err)
	caller.End()

	ended := spans.Ended()
	require.Len(t, ended, 12)
	run := ended[10]
	require.Equal(t, "run", run.Name())
	require.Equal(t, caller.SpanContext().SpanID(), run.Parent().SpanID())
	require.Equal(t, codes.Unset, run.Status().Code, "a program that fails is not an error")
	known := attributes(run)
	for _, name := range []string{"evalbox.image.id", "evalbox.engine"} {
		require.NotEmpty(t, known[name], name)
		delete(known, name)
	}
	require.Equal(t, map[string]any{
		"evalbox.run.id": "r1", "evalbox.run.status": "exited", "evalbox.run.fault": "program", "evalbox.run.exit_code": int64(3),
		"evalbox.run.recovered": false, "evalbox.gpus": int64(0), "evalbox.job.id": "job-1",
	}, known)

	steps := ended[:10]
	slices.SortStableFunc(steps, func(a, b sdk.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	for i, step := range steps {
		require.Equal(t, sandbox.Step(i+1).String(), step.Name())
		require.Equal(t, run.SpanContext().SpanID(), step.Parent().SpanID())
		require.Equal(t, codes.Unset, step.Status().Code)
		require.False(t, step.EndTime().After(run.EndTime()))
	}
}

// What failed is an error in the span of the run, and in that of its step.
func TestSpansOfFailures(t *testing.T) {
	provider, spans := recorder()
	fake := enginetest.NewFake(nil)
	fake.Fail.Prepare = engine.ErrUnavailable
	_, err := telemetry.Trace(newRunner(t, fake), provider).Run(t.Context(), request("r1"))
	require.ErrorIs(t, err, sandbox.ErrEngineUnavailable)
	failed := map[string]string{}
	for _, span := range spans.Ended() {
		if span.Status().Code == codes.Error {
			failed[span.Name()] = span.Status().Description
			require.LessOrEqual(t, len(span.Status().Description), 260)
		}
	}
	require.Len(t, failed, 2)
	require.Contains(t, failed["prepare"], engine.ErrUnavailable.Error())
	require.Contains(t, failed["run"], engine.ErrUnavailable.Error())

	// A run that says nothing about its program is one, too; its explanation may have any text.
	lost := answers{res: &result.Result{ID: "r2", Status: result.StatusEngineLost, Fault: result.FaultEnvironment, Explanation: "any text"}}
	_, err = telemetry.Trace(lost, provider).Adopt(context.Background(), "r2")
	require.NoError(t, err)
	last := spans.Ended()[len(spans.Ended())-1]
	require.Equal(t, "adopt", last.Name())
	require.Equal(t, sdk.Status{Code: codes.Error, Description: "engine_lost"}, last.Status())
}

// A span of a refused run has the ID that was asked for.
func TestSpanOfARefusedRun(t *testing.T) {
	provider, spans := recorder()
	_, err := telemetry.Trace(newRunner(t, enginetest.NewFake(nil)), provider).Run(t.Context(), sandbox.Request{ID: "r1"})
	require.Error(t, err)
	run := spans.Ended()[len(spans.Ended())-1]
	require.Equal(t, []attribute.KeyValue{attribute.String("evalbox.run.id", "r1")}, run.Attributes())
	require.Equal(t, codes.Error, run.Status().Code)
}
