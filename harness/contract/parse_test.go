package contract

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/schematest"
	"github.com/evalbox/evalbox/policy"
)

// everything is a contract with every field.
const everything = `schema: evalbox/contract/v1
execution_id: x-1
tool_id: T-5
adapter_id: ADP-1
inputs:
  command: five
  operation: read
  parameters: {n: 1, list: [a, null, true], deep: {x: 2.5}}
  arguments: [-a, "b c"]
  environment: {A: "1"}
  working_directory: src
  input_files: [in.csv]
  stdin: |
    hello
sandbox:
  profile: contract
  timeout_ms: 5000
  memory_mb: 256
  cpu_cores: 2
  filesystem: {level: extended, read: [/opt/x], write: [out], deny: [.git]}
  network: {level: api, enabled: true, allow: ["*.example.com:443"], deny: [bad.example.com]}
  processes: {max_children: 3, allow_fork: false}
outputs:
  stdout: {expected: hi}
  stderr: {pattern: "^$"}
  exit_code: 3
  output_files: [out/a]
  artifacts: [{path: out/b, mime_type: text/csv}]
  capture: {stdout_bytes: 10, stderr_bytes: 10, output_files_bytes: 10, artifacts_bytes: 10}
determinism: {seed: 7, clock: 2026-01-31T12:00:00Z}
metadata: {requested_by: me, requested_at: 2026-01-31T12:00:00Z, purpose: test, evidence_ref: "https://example.com/1"}
`

func TestParse(t *testing.T) {
	c, err := Parse([]byte(everything), "c.yaml")
	require.NoError(t, err)
	nothingIsZero(t, reflect.ValueOf(c), "contract")
	require.Equal(t, "hello\n", *c.Inputs.Stdin)

	// Its JSON is the same contract.
	text, err := json.Marshal(c)
	require.NoError(t, err)
	again, err := Parse(text, "c.json")
	require.NoError(t, err)
	require.Equal(t, c, again)
	schematest.Valid(t, schematest.Load(t, ContractSchemaJSON), text)

	_, violations, stripped := testRules(t).Validate(c)
	require.Len(t, violations, 1, "there are no adapters")
	require.Equal(t, "adapter_id", violations[0].Field)
	c.AdapterID = ""
	_, violations, _ = testRules(t).Validate(c)
	require.Len(t, violations, 2, "they are for adapters")
	require.Empty(t, stripped)
}

// nothingIsZero makes sure that a sample has every field.
func nothingIsZero(t *testing.T, v reflect.Value, path string) {
	t.Helper()
	require.False(t, v.IsZero(), path)
	if v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[Stream]() {
		for i := range v.NumField() {
			nothingIsZero(t, v.Field(i), path+"."+v.Type().Field(i).Name)
		}
	}
}

func TestLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.yaml")
	require.NoError(t, os.WriteFile(path, []byte(everything), 0o600))
	c, err := Load(path)
	require.NoError(t, err)
	require.Equal(t, "five", c.Inputs.Command)

	require.NoError(t, os.WriteFile(path, []byte("tool_id: 5\nx: 1\n"), 0o600))
	_, err = Load(path)
	var refused *RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, path+":1: CX-01: tool_id 5: must be text: put it in quotes, is a number\n"+
		path+`:2: CX-01: x: unknown key "x"; there are adapter_id, determinism, execution_id, inputs, metadata, outputs, sandbox, schema, tool_id`, err.Error())

	require.NoError(t, os.WriteFile(path, make([]byte, MaxDocument+100), 0o600))
	_, err = Load(path)
	require.ErrorContains(t, err, "has more than 4MiB")
	_, err = Load(filepath.Join(t.TempDir(), "missing.yaml"))
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotErrorAs(t, err, &refused)
}

// TestSchemas holds the schemas and the types together.
func TestSchemas(t *testing.T) {
	contract := schematest.Load(t, ContractSchemaJSON)
	schematest.Match(t, contract, reflect.TypeFor[Contract](), "Contract.tool_id")
	require.Equal(t, SchemaV1, *contract.Properties["schema"].Const)
	require.Equal(t, schematest.Names(policy.FilesystemLevels()), schematest.Enum(t, contract.Defs["filesystem"], "level"))
	require.Equal(t, schematest.Names(policy.NetworkLevels()), schematest.Enum(t, contract.Defs["network"], "level"))

	outcome := schematest.Load(t, OutcomeSchemaJSON)
	schematest.Match(t, outcome, reflect.TypeFor[Outcome]())
	require.Equal(t, OutcomeSchemaV1, *outcome.Properties["schema"].Const)
	require.Equal(t, ApprovalSchemaV1, *outcome.Defs["approval"].Properties["schema"].Const)

	for _, good := range []string{
		`{"tool_id":"T","inputs":{"command":"x"}}`,
		`{"tool_id":"T","inputs":{"command":"x","stdin":null},"outputs":{"stdout":"captured","artifacts":["x",{"path":"y"}]}}`,
	} {
		schematest.Valid(t, contract, []byte(good))
		_, err := Parse([]byte(good), "x")
		require.NoError(t, err)
	}
	for _, bad := range []string{
		`{"tool_id":"T","inputs":{"command":5}}`, `{"tool_id":"T","inputs":{"command":"x"},"extra":1}`, `{"tool_id":"T","inputs":{"command":"x"},"sandbox":{"timeout_ms":"5"}}`,
		`{"tool_id":"T","inputs":{"command":"x"},"outputs":{"stdout":"all"}}`, `{"tool_id":"T","inputs":{"command":"x"},"outputs":{"artifacts":[5]}}`,
	} {
		schematest.Invalid(t, contract, []byte(bad))
		_, err := Parse([]byte(bad), "x")
		require.Error(t, err)
	}
}

// FuzzParse: whatever a document holds, the answer is bounded, and what is accepted has
// one hash in every form.
func FuzzParse(f *testing.F) {
	f.Add([]byte(everything))
	f.Add([]byte(`{"inputs": {"command": "five", "stdin": "\ud83d\ude00"}, "tool_id": "T-5"}`))
	f.Add([]byte("inputs: &a {arguments: [*a]}\n"))
	f.Add([]byte("outputs: {stdout: {pattern: '(a{1000}){1000}'}, artifacts: [x]}\n"))
	rules := testRules(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 1<<16 {
			return
		}
		x := rules.Examine(text)
		c, e, violations, stripped := x.Contract, x.Effective, x.Violations, x.Stripped
		require.LessOrEqual(t, len(violations), maxViolations+1)
		require.LessOrEqual(t, len(stripped), maxViolations+1)
		for _, v := range violations {
			require.NotEmpty(t, v.Code)
			require.Less(t, len(v.String()), 6000)
		}
		if len(violations) > 0 {
			return
		}
		again, err := json.Marshal(c)
		require.NoError(t, err)
		d, err := Parse(again, "x")
		require.NoError(t, err)
		require.Equal(t, e.ContractSHA256, d.SHA256(rules.Profiles))
	})
}
