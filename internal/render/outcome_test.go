package render

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/result"
)

func TestOutcomeLine(t *testing.T) {
	code := func(n int) *int { return &n }
	limits := &contract.Executed{TimeoutMS: 1500, MemoryMB: 64}
	meaning := func(n int, ctx result.ExitContext) *result.ExitMeaning {
		m := result.ExplainExit(n, ctx)
		return &m
	}
	extend := &result.ExitMeaning{Action: "extend_timeout_or_fail"}
	differs := []contract.Difference{{What: "exit_code", Problem: "differs", Expected: "0", Got: "3"}}
	kept := []contract.Folder{{Source: "/p", NotWritten: []string{"2 changes: too much"}}}
	for want, o := range map[string]contract.Outcome{
		"success · exited 0 · 0.00s": {Success: true, Status: "exited", ExitCode: code(0), Exit: meaning(0, result.ExitContext{})},
		"success · exited 7 · 0.00s": {Success: true, Status: "exited", ExitCode: code(7), Exit: meaning(7, result.ExitContext{})},
		"failed · exited 3 (log and handle) · 0.00s": {
			Status: "exited", ExitCode: code(3), Exit: meaning(3, result.ExitContext{}), Differences: differs, Error: "exit code differs"},
		"failed · exited 0, expected 7 · 0.00s": {Status: "exited", ExitCode: code(0), Exit: meaning(0, result.ExitContext{}),
			Differences: []contract.Difference{{What: "exit_code", Problem: "differs", Expected: "7", Got: "0"}}},
		"interrupted · 0.00s · nothing was carried over": {
			Status: "canceled", ExitCode: code(143), Exit: extend, Error: "canceled", Differences: differs, Folders: kept},
		"failed · timed out after 1.50s (extend timeout or fail) · 0.00s": {
			Status: "timed_out", TimedOut: true, ExitCode: code(143), Signal: 9, Exit: extend, Executed: limits, Error: "Execution timed out"},
		"failed · killed for memory (limit 64MiB; more memory or fail) · 0.00s": {
			Status: "out_of_memory", ExitCode: code(137), Signal: 9, Exit: meaning(137, result.ExitContext{OOM: true}), Executed: limits, Differences: differs},
		"failed · exit code 139 (SIGSEGV; log signal number) · 0.00s": {
			Status: "signaled", ExitCode: code(139), Signal: 11, Exit: meaning(139, result.ExitContext{}), Differences: differs},
		"failed · exit code 143 (SIGTERM) · 0.00s": {
			Status: "signaled", ExitCode: code(143), Signal: 15, Exit: extend, Differences: differs},
		"failed · engine lost · it is gone · 0.00s": {Status: "engine_lost", Error: "it is gone"},
		"success · exited 0 · 0.00s · 5 requests, 3 refused": {
			Success: true, Status: "exited", ExitCode: code(0), Network: &result.Network{Requests: 5, Refused: 3}},
		"success · exited 0 · 0.00s · 1 request · 1 output file · 1 artifact · output cut": {
			Success: true, Status: "exited", ExitCode: code(0), Network: &result.Network{Requests: 1}, Truncated: true,
			OutputFiles: make([]contract.OutputFile, 1), Artifacts: make([]contract.Artifact, 1)},
		"success · exited 0 · 0.00s · 2 output files, not carried over: in the record": {
			Success: true, Status: "exited", ExitCode: code(0), OutputFiles: make([]contract.OutputFile, 2), Folders: kept},
		"success · exited 0 · 0.00s · 2 output files, not all carried over: in the record": {
			Success: true, Status: "exited", ExitCode: code(0), OutputFiles: make([]contract.OutputFile, 2),
			Folders: []contract.Folder{{Written: 1, NotWritten: []string{"x"}}}},
	} {
		o.Evidence.RunID = "r1"
		require.Equal(t, want+" · id r1", outcomeLine(o, false))
	}
}

// Violations stand in the order of the document, and one long value does not move the rest.
func TestViolationLines(t *testing.T) {
	long := strings.Repeat("x", 200)
	require.Equal(t, []string{
		"f:2   IV-01  tool_id  is none",
		"f:10  IV-02  a " + long + "  is long",
		"f     CK-01  root     is none",
	}, Violations("f", []contract.Violation{
		{Code: "CK-01", Field: "root", Rule: "is none"},
		{Code: "IV-02", Line: 10, Field: "a", Value: long, Rule: "is long"},
		{Code: "IV-01", Line: 2, Field: "tool_id", Rule: "is none"},
	}))
}
