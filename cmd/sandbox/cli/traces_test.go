package cli

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWantsTraces(t *testing.T) {
	const endpoint, exporter, protocol = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_PROTOCOL"
	for name, test := range map[string]struct {
		environ map[string]string
		want    bool
		err     string
	}{
		"nothing":             {map[string]string{}, false, ""},
		"another signal":      {map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://c:1"}, false, ""},
		"an endpoint":         {map[string]string{endpoint: "http://127.0.0.1:4318"}, true, ""},
		"one of traces":       {map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://c:4318/v1/traces"}, true, ""},
		"an exporter":         {map[string]string{exporter: "otlp"}, true, ""},
		"no traces":           {map[string]string{exporter: "none", endpoint: "http://c:1"}, false, ""},
		"disabled":            {map[string]string{"OTEL_SDK_DISABLED": "True", endpoint: "http://c:1"}, false, ""},
		"not disabled":        {map[string]string{"OTEL_SDK_DISABLED": "1", endpoint: "http://c:1"}, true, ""},
		"JSON":                {map[string]string{endpoint: "http://c:1", protocol: "http/json"}, true, ""},
		"grpc, unused":        {map[string]string{protocol: "grpc"}, false, ""},
		"grpc":                {map[string]string{endpoint: "http://c:4317", protocol: "grpc"}, false, `OTEL_EXPORTER_OTLP_PROTOCOL "grpc": must be http/protobuf or http/json`},
		"grpc of traces":      {map[string]string{endpoint: "http://c:4317", protocol: "http/json", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, false, `OTEL_EXPORTER_OTLP_TRACES_PROTOCOL "grpc": must be`},
		"another exporter":    {map[string]string{exporter: "console"}, false, `OTEL_TRACES_EXPORTER "console": must be otlp or none`},
		"no URL":              {map[string]string{endpoint: "collector:4318"}, false, "OTEL_EXPORTER_OTLP_ENDPOINT: must be a URL of a collector"},
		"nothing but a space": {map[string]string{endpoint: " "}, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := wantsTraces(func(name string) string { return test.environ[name] })
			require.Equal(t, test.want, want)
			if test.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.err)
			require.NotEmpty(t, (&App{}).Hints(err))
		})
	}
}

func TestNoTraces(t *testing.T) {
	var none *traces
	require.Nil(t, none.box(nil))
	require.NoError(t, none.end())
}
