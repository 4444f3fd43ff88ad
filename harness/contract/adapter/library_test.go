package adapter

import (
	"encoding/json"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

const libraryAdapter = `adapter_id: A
name: a
version: "1.0.0"
tool_id: T
type: sdk
interface:
  sdk:
    language: %s
    package: %s
    function_mapping: {dump: "%s", other: "%s"}
transforms: {input: [{type: validate, spec: json_schema}]}
`

func TestLibrary(t *testing.T) {
	b := newBench(t, fmt.Sprintf(libraryAdapter, "python", "json", "dumps(obj)", "loads(s)"))
	stdin := ""
	b.box.program = func(_ sandbox.Request, in io.Reader, _ io.Writer) result.Result {
		text, _ := io.ReadAll(in)
		stdin = string(text)
		return result.Result{Status: result.StatusExited, Stdout: "noise\nevalbox/answer/v1 {\"value\": [1, 12345678901234567890]}\n"}
	}
	o := b.call(t, "dump", map[string]any{"obj": "a'b\"; import evil"})
	require.True(t, o.Success, o.Error)
	require.Equal(t, []any{int64(1), json.Number("12345678901234567890")}, o.Call.Value)
	require.Equal(t, "python3", b.box.ran[0].Command[0])
	require.NotContains(t, fmt.Sprint(b.box.ran[0].Command), "evil", "values are data")
	require.Contains(t, stdin, "import evil")
	require.Equal(t, "python json dumps(obj)", o.Call.Target)

	for name, test := range map[string]struct {
		in   contract.Inputs
		want string
	}{
		"no operation":      {contract.Inputs{}, "inputs.operation"},
		"an unknown one":    {contract.Inputs{Operation: "x"}, `CK-01: inputs.operation "x": is not an operation of A, which has dump, other`},
		"a missing value":   {contract.Inputs{Operation: "dump"}, "input transform 1 (validate)"},
		"another value":     {contract.Inputs{Operation: "dump", Parameters: map[string]any{"obj": 1.5, "x": 1.5}}, `parameter "x" is not one of dumps(obj)`},
		"arguments":         {contract.Inputs{Operation: "dump", Parameters: map[string]any{"obj": 1.5}, Arguments: []string{"x"}}, "CX-01: inputs.arguments: are not for adapters of type sdk: give parameters"},
		"a stdin":           {contract.Inputs{Operation: "dump", Parameters: map[string]any{"obj": 1.5}, Stdin: new("x")}, "CX-01: inputs.stdin: is not for adapters of type sdk"},
		"another command":   {contract.Inputs{Operation: "dump", Parameters: map[string]any{"obj": 1.5}, Command: "cat"}, "IV-01: inputs.command"},
		"what is not plain": {contract.Inputs{Operation: "dump", Parameters: map[string]any{"obj": struct{}{}}}, "which is not plain data"},
	} {
		o := b.carryOut(t, contract.Contract{ToolID: "T", AdapterID: "A", Inputs: test.in})
		require.Equal(t, contract.StatusRefused, o.Status, name)
		require.Contains(t, fmt.Sprint(broken(o)), test.want, name)
	}
	require.Len(t, b.box.ran, 1)

	b.box.program = prints("not an answer")
	o = b.call(t, "dump", map[string]any{"obj": 1.5})
	require.False(t, o.Success)
	require.NotEmpty(t, o.Error)
	require.Nil(t, o.Call.Value)
	b.box.program = func(sandbox.Request, io.Reader, io.Writer) result.Result {
		return result.Result{Status: result.StatusExited, ExitCode: 1, Stdout: "\nevalbox/answer/v1 {\"error\": {\"type\": \"TypeError\", \"message\": \"bad obj\", \"traceback\": \"\"}}\n"}
	}
	o = b.call(t, "dump", map[string]any{"obj": 1.5})
	require.Contains(t, o.Error, "TypeError")
	require.Contains(t, o.Error, "bad obj")
	require.Equal(t, 1, *o.Call.Code)
}

// A parameter of Rust has the name without & and .into().
func TestRustLibrary(t *testing.T) {
	b := newBench(t, fmt.Sprintf(libraryAdapter, "rust", "std", "cmp::max(&a, b.into())", "cmp::min(a, b)"))
	b.box.program = prints("")
	o := b.call(t, "dump", map[string]any{"a": int64(1), "b": int64(2)})
	require.Empty(t, broken(o))
	require.Equal(t, "cargo", b.box.ran[0].Command[0])
	require.EqualValues(t, 101, b.box.ran[0].Limits.PIDs, "a compiler has processes")
	mount := b.box.ran[0].Mounts[1]
	require.Equal(t, "/host/evalbox/driver", mount.Target)
	require.NoDirExists(t, mount.Source)
	c := contract.Contract{ToolID: "T", AdapterID: "A", Inputs: contract.Inputs{Operation: "other", Parameters: map[string]any{"a": int64(1), "b": int64(2)}}}
	c.Sandbox.Processes.MaxChildren = new(int64(5))
	b.carryOut(t, c)
	require.EqualValues(t, 6, b.box.ran[1].Limits.PIDs, "nothing is widened")
}

func TestLibraryProblems(t *testing.T) {
	for document, want := range map[string]string{
		`{language: cobol, package: x, function_mapping: {a: b}}`:                     "interface.sdk.language",
		`{language: python, package: json}`:                                           "interface.sdk.function_mapping: must have at least one operation",
		`{language: python, package: json, function_mapping: {a: "f(x); import os"}}`: "interface.sdk.function_mapping.a",
	} {
		_, err := Parse([]byte("{adapter_id: A, name: n, version: 1.0.0, tool_id: T, type: sdk, sdk: "+document+"}"), "a.yaml")
		require.ErrorContains(t, err, want)
	}
	value, err := plain([]byte(`{"a": 12345678901234567890}`))
	require.NoError(t, err)
	require.Equal(t, map[string]any{"a": json.Number("12345678901234567890")}, value)
}
