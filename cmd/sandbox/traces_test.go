package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
)

// collected are the spans that a collector got over OTLP, and the services that sent them.
type collected struct {
	mu       sync.Mutex
	spans    []*otlp.Span
	services []string
	broken   []string
}

// collect starts a collector for the commands of a test, in an environment without an engine.
func collect(t *testing.T) *collected {
	t.Helper()
	c := &collected{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	for name, text := range map[string]string{
		"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL, "OTEL_SERVICE_NAME": "", "OTEL_RESOURCE_ATTRIBUTES": "", "OTEL_TRACES_EXPORTER": "",
		"OTEL_EXPORTER_OTLP_PROTOCOL": "", "TRACEPARENT": "",
	} {
		t.Setenv(name, text)
	}
	return c
}

// withoutEngine makes a directory with a script the current one. There is no engine.
func withoutEngine(t *testing.T) {
	t.Helper()
	inTask(t, map[string]string{"x.py": "print(1)"})
	t.Setenv("DOCKER_HOST", "unix:///no/such/socket")
}

func (c *collected) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	var got collector.ExportTraceServiceRequest
	if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/traces" || proto.Unmarshal(body, &got) != nil {
		c.broken = append(c.broken, r.Method+" "+r.URL.Path)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	for _, resource := range got.ResourceSpans {
		for _, a := range resource.Resource.Attributes {
			if a.Key == "service.name" {
				c.services = append(c.services, a.Value.GetStringValue())
			}
		}
		for _, scope := range resource.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
}

// named returns the span of a name. There must be one.
func (c *collected) named(t *testing.T, name string) *otlp.Span {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.spans, func(s *otlp.Span) bool { return s.Name == name })
	require.GreaterOrEqual(t, i, 0, "there is no span %s, and were %v", name, c.broken)
	return c.spans[i]
}

// attribute is a text attribute of a span; empty for none.
func attribute(s *otlp.Span, name string) string {
	for _, a := range s.Attributes {
		if a.Key == name {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

func TestTracesOfARefusedRun(t *testing.T) {
	c := collect(t)
	withoutEngine(t)
	t.Setenv("OTEL_SERVICE_NAME", "grading")
	t.Setenv("TRACEPARENT", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	_, errs := runHere(t, cli.ExitSandbox, "run", "x.py")
	require.NotContains(t, errs, "traces")
	command, run, plan := c.named(t, "sandbox run"), c.named(t, "run"), c.named(t, "plan")
	require.Equal(t, []byte("\xb7\xadkqi 31"), command.ParentSpanId, "of the caller")
	require.Equal(t, command.SpanId, run.ParentSpanId)
	require.Equal(t, run.SpanId, plan.ParentSpanId)
	require.Equal(t, otlp.Status_STATUS_CODE_ERROR, plan.Status.Code)
	require.Contains(t, run.Status.Message, "engine")
	require.Contains(t, c.services, "grading")
}

// A collector that is down or silent costs a command nothing but a bounded time, and one line.
func TestBrokenCollectors(t *testing.T) {
	silent := make(chan struct{})
	hanging := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-silent }))
	t.Cleanup(hanging.Close)
	t.Cleanup(func() { close(silent) })
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "\x1b[2Jgo away\n"+strings.Repeat("x", 1000), http.StatusBadRequest)
	}))
	t.Cleanup(refusing.Close)
	gone := httptest.NewServer(nil)
	gone.Close()
	for name, url := range map[string]string{"silent": hanging.URL, "refusing": refusing.URL, "gone": gone.URL} {
		t.Run(name, func(t *testing.T) {
			collect(t)
			withoutEngine(t)
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
			began := time.Now()
			out, errs := runHere(t, cli.ExitSandbox, "run", "--json", "x.py")
			require.Less(t, time.Since(began), 5*time.Second)
			require.NotContains(t, out, "traces")
			require.Equal(t, 1, strings.Count(errs, "sandbox: warning: the traces are not complete: "), errs)
			require.NotContains(t, errs, "\x1b")
			require.Less(t, len(errs), 1000)
		})
	}
}

// What we cannot do is said, with what to do about it, and the command goes on.
func TestTracesThatAreNotPossible(t *testing.T) {
	c := collect(t)
	withoutEngine(t)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	_, errs := runHere(t, cli.ExitSandbox, "run", "x.py")
	require.True(t, strings.HasPrefix(errs, `sandbox: warning: there are no traces: OTEL_EXPORTER_OTLP_PROTOCOL "grpc": must be http/protobuf or http/json`+"\n"+
		"sandbox: hint: set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf, and the port of the collector for HTTP (usually 4318) in the endpoint\n"), errs)
	require.Empty(t, c.spans)
}

// A run that ends is a span with its ten steps.
func TestEngineTraces(t *testing.T) {
	c := collect(t)
	inTask(t, map[string]string{"x.py": "print('in no span')\nraise SystemExit(3)"})
	_, errs := runHere(t, 3, "run", "--label", "team=a", "x.py")
	require.NotContains(t, errs, "traces")
	command, run := c.named(t, "sandbox run"), c.named(t, "run")
	require.Empty(t, command.ParentSpanId)
	require.Equal(t, "exited", attribute(run, "evalbox.run.status"))
	require.True(t, strings.HasPrefix(attribute(run, "evalbox.image.id"), "sha256:"))
	require.NotEmpty(t, attribute(run, "evalbox.engine"))
	require.DirExists(t, filepath.Join("state", "runs", attribute(run, "evalbox.run.id")))
	require.NotEqual(t, otlp.Status_STATUS_CODE_ERROR, run.GetStatus().GetCode())
	for _, step := range []string{"plan", "image", "lease", "stage", "prepare", "start", "stream", "end", "result", "remove"} {
		span := c.named(t, step)
		require.Equal(t, run.SpanId, span.ParentSpanId, step)
		require.Less(t, span.StartTimeUnixNano, run.EndTimeUnixNano, step)
	}
	require.Len(t, c.spans, 12)
	require.Contains(t, c.services, "evalbox")
	for _, span := range c.spans {
		require.NotContains(t, span.String(), "in no span")
	}
}
