package result

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDetectError(t *testing.T) {
	for _, c := range []struct {
		name string
		raw  ExecutionRawResult
		want bool
	}{
		{"clean", ExecutionRawResult{}, false},
		{"noise on stderr", ExecutionRawResult{Stderr: "Error: none\n"}, false},
		{"exit code", ExecutionRawResult{ExitCode: 2}, true},
		{"negative exit code", ExecutionRawResult{ExitCode: -11}, true},
		{"time limit", ExecutionRawResult{TimedOut: true}, true},
		{"marker", ExecutionRawResult{Stderr: "x " + marker + " y"}, true},
		{"marker on stdout", ExecutionRawResult{Stdout: marker}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, DetectError(c.raw))
		})
	}
}

func TestRawResultWireNames(t *testing.T) {
	text, err := json.Marshal(ExecutionRawResult{Stdout: "o", Stderr: "e", ExitCode: -1, DurationSeconds: 2.5, TimedOut: true})
	require.NoError(t, err)
	require.JSONEq(t, `{"stdout":"o","stderr":"e","exit_code":-1,"duration_seconds":2.5,"timed_out":true}`, string(text))
}
