package trial_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/trial"
	"github.com/evalbox/evalbox/internal/schematest"
)

func TestSchemasMatchTheirTypes(t *testing.T) {
	job, result, event := schematest.Load(t, trial.JobSchemaJSON), schematest.Load(t, trial.ResultSchemaJSON), schematest.Load(t, trial.EventSchemaJSON)
	schematest.Match(t, job, reflect.TypeFor[trial.Job]())
	schematest.Match(t, result, reflect.TypeFor[trial.Result]())
	schematest.Match(t, event, reflect.TypeFor[trial.Event]())
	require.Equal(t, schematest.Names([]trial.Verdict{trial.Passed, trial.Failed, trial.Refused, trial.Inconclusive}), schematest.Enum(t, result, "verdict"))
	require.Equal(t, schematest.Names([]trial.EventKind{trial.EventWaiting, trial.EventStarted, trial.EventRetry, trial.EventKnown, trial.EventEnded, trial.EventNote}),
		schematest.Enum(t, event, "kind"))
}

// TestFilesOfALogFitTheirSchemas: every document of a log does, also of a job that nothing
// is known of but its end.
func TestFilesOfALogFitTheirSchemas(t *testing.T) {
	dir := t.TempDir()
	log := openLog(t, dir)
	seed, score := uint64(7), 0.5
	h := &fake{run: func(_ context.Context, job trial.Job, emit func(trial.Event)) (trial.Result, error) {
		emit(trial.Event{Kind: trial.EventStarted, Run: "r1", Role: "program"})
		if job.ID == "bare" {
			return trial.Result{Verdict: trial.Refused}, nil
		}
		return trial.Result{
			Verdict: trial.Passed, Reason: "completed", Score: &score, Ranking: &trial.Ranking{Task: "t", Direction: "minimize", Valid: true, Resource: 3}, Runs: []trial.RunRef{{ID: "r1", Role: "program"}},
			Problems: []trial.Problem{{Code: "x", Source: "a.yaml", Line: 1, Field: "f", Rule: "must not", Hint: "do"}},
			Files:    []trial.File{{Path: "a", Size: 1, SHA256: "00"}}, Detail: json.RawMessage(`{"schema":"x"}`),
		}, nil
	}}
	_, err := trial.Queue{Log: log}.Run(t.Context(), h, slices.Values([]trial.Job{
		{ID: "bare"}, {ID: "full", Name: "n", Parent: "b", Key: "k", Seed: &seed, Spec: json.RawMessage(`{"a":1}`)},
	}))
	require.NoError(t, err)
	checked := 0
	for pattern, schema := range map[string][]byte{
		"jobs/*/job.json": trial.JobSchemaJSON, "jobs/*/result.json": trial.ResultSchemaJSON, "index.jsonl": trial.ResultSchemaJSON, "jobs/*/events.jsonl": trial.EventSchemaJSON,
	} {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		for _, path := range paths {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			for line := range strings.Lines(string(content)) {
				schematest.Valid(t, schematest.Load(t, schema), []byte(line))
				checked++
			}
		}
	}
	require.Equal(t, 2+2+2+6, checked)
	schematest.Invalid(t, schematest.Load(t, trial.ResultSchemaJSON), []byte(`{"schema":"evalbox/trial/v1"}`))
	schematest.Invalid(t, schematest.Load(t, trial.JobSchemaJSON), []byte(`{"schema":"evalbox/job/v1","id":"../x","kind":"gate"}`))
}
