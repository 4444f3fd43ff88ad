package spec

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSecretsOfAJobAreOnlyInItsEnvironment, however the job is written.
func TestSecretsOfAJobAreOnlyInItsEnvironment(t *testing.T) {
	plain := Job{RunID: "r1", Env: []string{"A=1"}, Secrets: []string{"KEY"}}
	job := plain.WithSecrets([]string{"KEY=hunter2"})
	require.Equal(t, []string{"A=1", "KEY=hunter2"}, job.ProgramEnv())
	require.Equal(t, []string{"A=1"}, plain.ProgramEnv())
	require.Equal(t, []string{"A=1"}, job.Env)

	for _, value := range []any{job, &job, Spec{Job: job}, []Job{job}, map[string]Job{"x": job}} {
		text, err := json.Marshal(value)
		require.NoError(t, err)
		var log strings.Builder
		for _, handler := range []slog.Handler{
			slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil),
		} {
			slog.New(handler).Info("job", "job", value)
		}
		for _, written := range []string{string(text), log.String(), fmt.Sprint(value), fmt.Sprintf("%+v %#v %s %q %x", value, value, value, value, value)} {
			require.NotContains(t, written, "hunter2")
			require.NotContains(t, written, fmt.Sprintf("%x", "hunter2"))
		}
	}
}
