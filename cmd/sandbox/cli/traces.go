package cli

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/telemetry"
)

const (
	// flushPatience is how long the end of a command waits for the last spans to be sent.
	flushPatience = 2 * time.Second
	// maxExportError bounds the error of an exporter, in bytes: it has the answer of a server.
	maxExportError = 300
)

// traces are the spans of one command: its own, and in it those of its runs. Nil traces nothing.
type traces struct {
	provider *sdk.TracerProvider
	span     trace.Span
	failed   *firstError
}

// firstError keeps the first error that it gets.
type firstError struct {
	mu  sync.Mutex
	err error
}

// Handle implements [otel.ErrorHandler].
func (f *firstError) Handle(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *firstError) get() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// trace begins the traces that the environment of the process asks for. Their trouble is no reason for
// a command to fail: what cannot be done is a warning.
func (a *App) trace(ctx context.Context) *traces {
	wanted, err := wantsTraces(a.Getenv)
	var t *traces
	if wanted && err == nil {
		t, err = newTraces(ctx, a)
	}
	if err != nil {
		a.Warn("there are no traces: %s", text.Short(err.Error(), maxExportError))
		for _, hint := range a.Hints(err) {
			a.Say("hint: %s", hint)
		}
	}
	return t
}

// wantsTraces decides by the standard variables of OpenTelemetry. Traces are wanted if an endpoint is
// given, or the exporter; the default of the standard, a collector on this machine, is not assumed.
func wantsTraces(getenv func(string) string) (bool, error) {
	of := func(signal string) (name, value string) {
		for _, name = range []string{"OTEL_EXPORTER_OTLP_TRACES_" + signal, "OTEL_EXPORTER_OTLP_" + signal} {
			if value = strings.TrimSpace(getenv(name)); value != "" {
				break
			}
		}
		return name, value
	}
	const exporter = "OTEL_TRACES_EXPORTER"
	chosen := strings.TrimSpace(getenv(exporter))
	endpointIn, endpoint := of("ENDPOINT")
	if strings.EqualFold(strings.TrimSpace(getenv("OTEL_SDK_DISABLED")), "true") || chosen == "none" || chosen == "" && endpoint == "" {
		return false, nil
	}
	if chosen != "" && chosen != "otlp" {
		return false, wrongVariable(exporter, chosen, "must be otlp or none", "set "+exporter+"=otlp, and a collector for what else is wanted")
	}
	switch name, protocol := of("PROTOCOL"); protocol {
	case "", "http/protobuf", "http/json":
	default:
		return false, wrongVariable(name, protocol, "must be http/protobuf or http/json",
			"set "+name+"=http/protobuf, and the port of the collector for HTTP (usually 4318) in the endpoint")
	}
	if at, err := url.Parse(endpoint); endpoint != "" && (err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "") {
		return false, wrongVariable(endpointIn, "", "must be a URL of a collector", "set it to a URL such as http://127.0.0.1:4318")
	}
	return true, nil
}

// wrongVariable is a variable that asks for what we cannot do. An endpoint may have a password, so it is
// given without its value.
func wrongVariable(name, value, rule, hint string) error {
	if value != "" {
		name += " " + text.Quote(value, 40)
	}
	return WithHint(errors.New(name+": "+rule), hint)
}

// newTraces begins the traces of a command. They continue the trace of TRACEPARENT, if there is one.
func newTraces(ctx context.Context, a *App) (*traces, error) {
	t := &traces{failed: &firstError{}}
	otel.SetErrorHandler(t.failed)
	otel.SetLogger(logr.Discard()) // it would write to stderr
	ctx = context.WithoutCancel(ctx)
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithRetry(otlptracehttp.RetryConfig{
		Enabled: true, InitialInterval: 200 * time.Millisecond, MaxInterval: flushPatience / 4, MaxElapsedTime: flushPatience / 2,
	}))
	if err != nil {
		return nil, err
	}
	described, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "evalbox")), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		t.failed.Handle(err) // a part of it is known
	}
	t.provider = sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(described))
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": a.Getenv("TRACEPARENT"), "tracestate": a.Getenv("TRACESTATE")})
	_, t.span = t.provider.Tracer("github.com/evalbox/evalbox/cmd/sandbox").Start(ctx, a.Command)
	return t, nil
}

// box returns a box whose runs are spans in that of the command.
func (t *traces) box(b sandbox.Box) sandbox.Box {
	if t == nil {
		return b
	}
	return inSpan{telemetry.Trace(b, t.provider), t.span}
}

// inSpan is a box whose runs are in a span.
type inSpan struct {
	sandbox.Box
	span trace.Span
}

func (b inSpan) Run(ctx context.Context, req sandbox.Request, opts ...sandbox.RunOption) (*result.Result, error) {
	return b.Box.Run(trace.ContextWithSpan(ctx, b.span), req, opts...)
}

func (b inSpan) Adopt(ctx context.Context, id string, opts ...sandbox.RunOption) (*result.Result, error) {
	return b.Box.Adopt(trace.ContextWithSpan(ctx, b.span), id, opts...)
}

// end ends the span of the command, and sends what has not been sent. It returns the first error of
// all sending.
func (t *traces) end() error {
	if t == nil {
		return nil
	}
	t.span.End()
	ctx, cancel := context.WithTimeout(context.Background(), flushPatience)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.failed.Handle(err)
	}
	return t.failed.get()
}
