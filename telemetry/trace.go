package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

// scope names the instrumentation in traces.
const scope = "github.com/evalbox/evalbox/telemetry"

// maxError bounds an error in a span, in bytes.
const maxError = 256

// Trace returns a box whose runs are traced: a span "run", or "adopt", in that of the context if it
// has one, and in it a span for each [sandbox.Step] that the run takes, with its name. The span of a
// run has the attributes evalbox.run.id, .status, .fault, .exit_code and .recovered, evalbox.job.id,
// evalbox.image.id, evalbox.engine and evalbox.gpus, as far as they are known. Its status is Error if
// the run has no conclusive result; a program that fails is not an error.
//
// Spans have nothing that a program wrote. Calls to the engine are not traced.
func Trace(b sandbox.Box, provider trace.TracerProvider) sandbox.Box {
	return traced{b, provider.Tracer(scope)}
}

type traced struct {
	sandbox.Box
	tracer trace.Tracer
}

func (b traced) Run(ctx context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error) {
	return b.run(ctx, "run", req.ID, func(ctx context.Context) (*result.Result, error) { return b.Box.Run(ctx, req, opts...) })
}

func (b traced) Adopt(ctx context.Context, id string, opts ...sandbox.RunOption) (*result.Result, error) {
	return b.run(ctx, "adopt", id, func(ctx context.Context) (*result.Result, error) { return b.Box.Adopt(ctx, id, opts...) })
}

func (b traced) run(ctx context.Context, name, id string, do func(context.Context) (*result.Result, error)) (*result.Result, error) {
	ctx, span := b.tracer.Start(ctx, name)
	defer span.End()
	// The client of an engine would make a span of each of its calls, and there is no bound on them.
	quiet := trace.ContextWithSpanContext(ctx, span.SpanContext())
	res, err := do(sandbox.WithTracer(quiet, func(step sandbox.Step) func(error) {
		_, child := b.tracer.Start(ctx, step.String())
		return func(err error) {
			if err != nil {
				child.SetStatus(codes.Error, text.Short(err.Error(), maxError))
			}
			child.End()
		}
	}))
	if res != nil {
		span.SetAttributes(attributes(*res)...)
	} else if id != "" {
		span.SetAttributes(attribute.String("evalbox.run.id", id))
	}
	switch {
	case err != nil:
		span.SetStatus(codes.Error, text.Short(err.Error(), maxError))
	case res != nil && !res.Conclusive():
		span.SetStatus(codes.Error, res.Status.String())
	}
	return res, err
}

// attributes describe a result, without anything that its program wrote.
func attributes(res result.Result) []attribute.KeyValue {
	all := []attribute.KeyValue{
		attribute.String("evalbox.run.id", res.ID),
		attribute.String("evalbox.run.status", res.Status.String()),
		attribute.String("evalbox.run.fault", res.Fault.String()),
		attribute.Int("evalbox.run.exit_code", res.ExitCode),
		attribute.Bool("evalbox.run.recovered", res.Recovered),
		attribute.String("evalbox.image.id", res.Image.ID),
		attribute.String("evalbox.engine", res.Enforced.Engine),
		attribute.Int("evalbox.gpus", len(res.Enforced.GPUs)),
	}
	if job := res.Labels["trial.id"]; job != "" {
		all = append(all, attribute.String("evalbox.job.id", job))
	}
	return all
}
