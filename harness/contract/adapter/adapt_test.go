package adapter

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

const commandAdapter = `adapter_id: A
name: a
version: "1.0.0"
tool_id: T
type: cli
interface:
  cli:
    executable: cat
    base_args: ["-n"]
    arg_mapping: {a: "{a}", n: "-m {value}"}
    env_mapping: {level: LEVEL}
transforms:
  input: [{type: default, spec: {n: 3}}]
  output: [{type: parse, spec: json}, {type: extract, spec: "$.a"}]
errors:
  retry: {max_attempts: 2, backoff_ms: 20, retryable_codes: [4]}
  fallback: {adapter_id: B, condition: "5"}
sandbox_override: {timeout_ms: 5000, memory_mb: 128}
`

func TestAdapt(t *testing.T) {
	b := newBench(t, commandAdapter, adapterText("B", ""))
	b.box.program = prints(`{"a": [1]}`)
	o := b.carryOut(t, contract.Contract{ToolID: "T", Inputs: contract.Inputs{ // the first active one
		Parameters: map[string]any{"a": "x y", "level": int64(2)}, Arguments: []string{"-v"}, Environment: map[string]string{"LEVEL": "9", "B": "1"},
	}})
	require.True(t, o.Success, o.Error)
	require.Equal(t, []any{int64(1)}, o.Call.Value)
	require.Equal(t, "A", o.AdapterID)
	require.Equal(t, "run", o.Call.Operation)
	require.Equal(t, "cat", o.Call.Target)
	req := b.box.ran[0]
	require.Equal(t, []string{"cat", "-n", "x y", "-m", "3", "-v"}, req.Command)
	require.Equal(t, "9", req.Env["LEVEL"], "the contract takes precedence")
	require.Equal(t, "1", req.Env["B"])
	require.Equal(t, 5*time.Second, req.Limits.Timeout)
	require.Equal(t, 128*policy.MiB, req.Limits.Memory)

	// The contract may say less, and never gets more.
	o = b.carryOut(t, contract.Contract{ToolID: "T", AdapterID: "A", Sandbox: contract.Sandbox{TimeoutMS: new(int64(2000)), MemoryMB: new(int64(512))}})
	require.True(t, o.Success, o.Error)
	require.Equal(t, 2*time.Second, b.box.ran[1].Limits.Timeout)
	require.Equal(t, 128*policy.MiB, b.box.ran[1].Limits.Memory)

	// A command without an adapter runs as it stands; the same command may be named.
	o = b.carryOut(t, contract.Contract{ToolID: "T", Inputs: contract.Inputs{Command: "cat"}})
	require.Nil(t, o.Call)
	o = b.carryOut(t, contract.Contract{ToolID: "T", AdapterID: "A", Inputs: contract.Inputs{Command: "cat"}})
	require.True(t, o.Success, o.Error)
}

func TestAdaptRefuses(t *testing.T) {
	other := strings.Replace(strings.Replace(commandAdapter, "adapter_id: A", "adapter_id: V", 1), `"1.0.0"`, `"2.0.0"`, 1)
	b := newBench(t, commandAdapter, adapterText("B", ""), other,
		adapterText("L", "errors: {fallback: {adapter_id: L}}"), adapterText("W", "sandbox_override: {timeout_ms: 700000}"),
		strings.Replace(adapterText("S", "transforms: {input: [{type: validate, spec: json_schema}]}"), "T\n", "T\n", 1))
	for name, test := range map[string]struct {
		c    contract.Contract
		want string
	}{
		"an unknown adapter":   {contract.Contract{AdapterID: "Z"}, `CK-01: adapter_id "Z": No adapter found: there are A, B, V, L, W, S`},
		"an unknown operation": {contract.Contract{AdapterID: "A", Inputs: contract.Inputs{Operation: "walk"}}, `CK-01: inputs.operation "walk": is not an operation of A, which has run`},
		"another tool":         {contract.Contract{ToolID: "U", AdapterID: "A"}, `CK-01: adapter_id "A": is for tool T, and the contract names "U"`},
		"another version":      {contract.Contract{AdapterID: "V"}, `CK-01: adapter_id "V": is for version 2.0.0 of tool T, and the registry has "1"`},
		"another command":      {contract.Contract{AdapterID: "A", Inputs: contract.Inputs{Command: "python3"}}, `IV-01: inputs.command "python3": is not "cat", the command of adapter A; leave it out`},
		"an unknown parameter": {contract.Contract{AdapterID: "A", Inputs: contract.Inputs{Parameters: map[string]any{"z": "1"}}}, "CX-01: inputs.parameters.z: unknown parameter; there are a, n, level"},
		"an option":            {contract.Contract{AdapterID: "A", Inputs: contract.Inputs{Parameters: map[string]any{"a": "-rf"}}}, `CX-01: inputs.parameters.a: must not begin with "-"`},
		"the schema":           {contract.Contract{AdapterID: "S", Inputs: contract.Inputs{Parameters: map[string]any{"z": "1"}}}, "input transform 1 (validate): "},
		"a circle":             {contract.Contract{AdapterID: "L"}, "closes a circle: L -> L"},
		"a limit":              {contract.Contract{AdapterID: "W"}, "CX-02: sandbox.timeout_ms"},
		"no adapter":           {contract.Contract{ToolID: "U"}, "inputs.command"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.c.ToolID == "" {
				test.c.ToolID = "T"
			}
			o := b.carryOut(t, test.c)
			require.Equal(t, contract.StatusRefused, o.Status)
			require.False(t, o.Started)
			require.Nil(t, o.ExitCode)
			require.Contains(t, strings.Join(broken(o), "\n"), test.want)
		})
	}
	require.Empty(t, b.box.ran)
	o := b.carryOut(t, contract.Contract{ToolID: "T", AdapterID: "Z"})
	require.Equal(t, "No adapter found 'Z'", o.Error)
}

// Retries and the fallback are those of the document; errors name the step.
func TestAdaptFailures(t *testing.T) {
	b := newBench(t, commandAdapter, adapterText("B", ""))
	var results []result.Result
	b.box.program = func(sandbox.Request, io.Reader, io.Writer) result.Result {
		next := results[0]
		results = results[1:]
		next.Status = result.StatusExited
		return next
	}
	call := func(all ...result.Result) contract.Outcome {
		t.Helper()
		results = all
		o := b.call(t, "", nil)
		require.Empty(t, results)
		return o
	}
	o := call(result.Result{ExitCode: 4}, result.Result{Stdout: `{"a": 7}`})
	require.True(t, o.Success, o.Error)
	require.Equal(t, int64(7), o.Call.Value)
	o = call(result.Result{ExitCode: 4}, result.Result{ExitCode: 5}, result.Result{Stdout: "plain"})
	require.True(t, o.Success, o.Error)
	require.Equal(t, "plain", o.Call.Value)
	require.Equal(t, "B", o.Call.AdapterID)
	require.Len(t, o.Call.Attempts, 3)
	o = call(result.Result{ExitCode: 6})
	require.Equal(t, "A", o.Call.AdapterID, "6 is not the condition of the fallback")

	o = call(result.Result{Stdout: "{"})
	require.False(t, o.Success)
	require.Contains(t, o.Error, "output transform 1 (parse): ")
	o = call(result.Result{Stdout: `{"b": 1}`})
	require.Contains(t, o.Error, "output transform 2 (extract): ")
	o = call(result.Result{Stdout: `{"a": 1`, StdoutBytes: 99, StdoutTruncated: true})
	require.Contains(t, o.Error, "the output is longer than what is captured")
	o = call(result.Result{Stdout: `{"a": 1}`, Stderr: "x", StderrBytes: 99, StderrTruncated: true})
	require.True(t, o.Success, "only stderr is cut: %s", o.Error)
}

// The status of an attempt that a fallback waits for.
func TestConditions(t *testing.T) {
	for condition, want := range map[string][]string{
		"": {"any", "code", "timeout", "unreachable", "blocked", "start"}, "any": {"any", "code", "timeout", "unreachable", "blocked", "start"},
		"timeout": {"timeout"}, "unavailable": {"blocked", "start"}, "429, 503": {"code"}, "-32603": nil,
	} {
		holds, err := parseCondition(condition)
		require.NoError(t, err)
		for name, o := range map[string]contract.Outcome{
			"any": {Status: "exited"}, "code": {Call: &contract.Call{Code: new(503)}}, "timeout": {TimedOut: true},
			"unreachable": {Status: "unreachable"}, "blocked": {Status: "blocked"}, "start": {Status: "start_failed"},
		} {
			require.Equal(t, strings.Contains(strings.Join(want, " "), name), holds(o), "%q for %s", condition, name)
		}
	}
	for _, condition := range []string{"429,", "never", "4.5", " ", "Timeout"} {
		_, err := parseCondition(condition)
		require.ErrorContains(t, err, "must be any, timeout, unavailable, or codes", condition)
	}
}
