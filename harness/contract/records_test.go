package contract

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/schematest"
)

// An execution whose controller died gets an outcome once, and a class.
func TestSettleAbandoned(t *testing.T) {
	store, err := record.Open(t.TempDir())
	require.NoError(t, err)
	record := func(id string, files map[string]string) {
		dir := store.RecordDir(id)
		require.NoError(t, os.MkdirAll(dir, 0o700))
		spec, err := json.Marshal(spec.Spec{Schema: spec.SchemaV1, Job: spec.Job{
			RunID: id, Command: []string{"cat"}, Labels: map[string]string{labelHash: testHash},
			Trees: []spec.JobTree{{Source: "/project", Target: "/repo"}},
		}})
		require.NoError(t, err)
		files["spec.json"] = string(spec)
		for name, text := range files {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		}
	}
	written := func(level string) string {
		c := Contract{ExecutionID: "e-1", ToolID: "TL-020", Inputs: Inputs{Command: "cat"}}
		c.Sandbox.Network.Level = level
		text, err := c.WithDefaults(testProfiles(t)).YAML()
		require.NoError(t, err)
		return string(text)
	}
	text := written("")
	record("r-session", map[string]string{ContractFile: text})
	record("r-evidence", map[string]string{ContractFile: written("open")})
	record("r-run", map[string]string{})
	adopted, err := result.Result{ID: "r-adopted", Recovered: true, Status: result.StatusExited, Fault: result.FaultNone, Explanation: "The program exited with 0."}.Encode()
	require.NoError(t, err)
	record("r-adopted", map[string]string{ContractFile: text, "result.json": string(adopted)})
	record("r-damaged", map[string]string{ContractFile: "tool_id: ["})
	record("r-settled", map[string]string{ContractFile: text, OutcomeFile: "{}"})

	runs, err := SettleAbandoned(store)
	require.ErrorContains(t, err, "record r-damaged: ")
	require.ElementsMatch(t, []string{"r-session", "r-evidence", "r-adopted"}, runs)
	kept, err := store.Get("r-adopted")
	require.NoError(t, err)
	o, err := ReadOutcome(kept)
	require.NoError(t, err)
	require.Equal(t, StatusAbandoned, o.Status)
	require.True(t, o.Started)
	require.Contains(t, o.Error, "another process finished the run")
	require.NoError(t, store.Remove("r-adopted"))
	kept, err = store.Get("r-session")
	require.NoError(t, err)
	o, err = ReadOutcome(kept)
	require.NoError(t, err)
	require.Equal(t, StatusAbandoned, o.Status)
	require.True(t, o.Started)
	require.False(t, o.Success)
	require.Nil(t, o.ExitCode)
	require.Equal(t, "e-1", o.ExecutionID)
	require.Equal(t, testHash, o.ContractSHA256)
	require.Equal(t, []string{"cat"}, o.Executed.Command)
	require.Equal(t, "/project", o.Folders[0].Source)
	encoded, err := o.Encode()
	require.NoError(t, err)
	schematest.Valid(t, schematest.Load(t, OutcomeSchemaJSON), encoded)

	for class, id := range map[string]string{RetainSession: "r-session", RetainEvidence: "r-evidence"} {
		expired, err := FindExpired(store, class, time.Now().Add(time.Hour))
		require.ErrorContains(t, err, "r-settled")
		require.Len(t, expired, 1)
		require.Equal(t, id, expired[0].RunID)
	}
	runs, _ = SettleAbandoned(store)
	require.Empty(t, runs)
}
