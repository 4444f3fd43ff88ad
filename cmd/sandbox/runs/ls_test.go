package runs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/render"
	"github.com/evalbox/evalbox/result"
)

// A record of a contract shows the contract, not the command that ran inside.
func TestRecordedContract(t *testing.T) {
	dir := t.TempDir()
	kept := record.Record{
		ID: "r1", Dir: dir, State: record.Lost, Created: time.Unix(0, 0),
		Spec: spec.Spec{Job: spec.Job{Command: []string{"sh", "-c", "for lib in", "python3"}, Labels: map[string]string{"contract.execution_id": "e-1"}}},
	}
	keep := func(name string, text []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	keep(contract.ContractFile, []byte("tool_id: TL-010\nexecution_id: e-1\ninputs: {command: python3, arguments: [-c, \"a\\nb\"]}\n"))

	c := contract.OfRecord(kept)
	require.Equal(t, []string{"python3", "-c", "a\nb"}, listed(kept, c).Command)
	require.Equal(t, &listedContract{ExecutionID: "e-1", ToolID: "TL-010"}, listed(kept, c).Contract)
	require.Equal(t, "lost", render.RecordStatus(kept, c))
	text := render.Record(kept, contract.OfRecord(kept), render.Final{}, "")
	for _, want := range []string{"status     lost\n", "its own process died; its program may still run", "finish it with: sandbox adopt r1\n", "there is no outcome\n", "tool       TL-010\n", "command    python3 -c a\\nb\n"} {
		require.Contains(t, text, want)
	}

	kept.State, kept.Result = record.Finished, &result.Result{ID: "r1", Status: result.StatusExited}
	o := contract.Outcome{
		Schema: contract.OutcomeSchemaV1, ExecutionID: "e-1", ToolID: "TL-010", Status: "exited", Error: "stdout differs",
		Differences: []contract.Difference{
			{What: "output_file", Path: "x", Problem: "extra"},
			{What: "stdout", Problem: "differs", Expected: `"a"`, Got: `"b"`},
			{What: "output_file", Path: "y", Problem: "missing", Got: "it was not written"},
		},
		Approval: &contract.Approval{ApprovedBy: "Ada", Reason: "a test", Levels: []string{"network:open"}},
	}
	encoded, err := o.Encode()
	require.NoError(t, err)
	keep(contract.OutcomeFile, encoded)
	c = contract.OfRecord(kept)
	require.Equal(t, `failed: stdout differs: expected "a", got "b"`, render.RecordStatus(kept, c))
	require.Equal(t, "stdout differs", listed(kept, c).Contract.Error)
	require.False(t, *listed(kept, c).Contract.Success)
	text = render.Record(kept, contract.OfRecord(kept), render.Final{}, "")
	for _, want := range []string{
		"contract   failed: stdout differs", "\n           output file \"y\" is missing", "approval   network:open, by Ada: a test\n",
		"outcome    " + filepath.Join(dir, contract.OutcomeFile) + "\n",
	} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, `"x"`)

	keep(contract.OutcomeFile, []byte("{"))
	require.Contains(t, render.Record(kept, contract.OfRecord(kept), render.Final{}, ""), "warning    outcome: outcome.json: ")

	// A run that was no contract is as ever.
	kept.Spec.Job.Labels = nil
	require.Nil(t, contract.OfRecord(kept))
	require.Nil(t, listed(kept, nil).Contract)
	require.Equal(t, "exited 0", render.RecordStatus(kept, contract.OfRecord(kept)))
}
