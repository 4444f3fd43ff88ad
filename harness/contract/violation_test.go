package contract

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
)

// Every violation has the hint that helps with it, also those that only the sandbox finds.
func TestHints(t *testing.T) {
	strict := testRules(t)
	strict.Strict = true
	for want, text := range map[string]string{
		"NUL byte":              inputs(`arguments: ["a\0b"]`),
		"without --strict":      inputs("arguments: [a;b]"),
		"2030-01-31":            base("determinism: {clock: tomorrow}"),
		"what each level opens": inSandbox("filesystem: {level: minimal, write: [out]}"),
		"--profiles":            inSandbox("timeout_ms: 1"),
		"sandbox contract tool": "tool_id: T-9\ninputs: {command: five}\n",
		"sandbox contract new":  base("metadata: {requested_at: x}"),
	} {
		x := strict.Examine([]byte(text))
		require.Len(t, x.Violations, 1, text)
		require.Contains(t, Hints(x.Violations, "")[0], want)
	}
	run := &execution{}
	run.Effective.Contract.Sandbox.Network.Allow = []string{"10.0.0.1"}
	for want, err := range map[string]error{
		"SANDBOX_ALLOW_PRIVATE_EGRESS=true": &policy.FieldError{Field: "allow-host", Entry: 1},
		"SANDBOX_ALLOW_EGRESS or":           &policy.FieldError{Field: "network level"},
		"--host":                            &policy.FieldError{Field: "cpus", Rule: "the engine's machine has 2"},
	} {
		require.Contains(t, Hints(run.refusals(errors.Join(err)), "")[0], want)
	}
	for want, v := range map[string]Violation{
		"make another with": {Code: "CK-01", Field: "approval.expires_at"},
		"working directory": {Code: "IV-05", Field: "inputs.input_files[0]"},
		"root /x;":          {Code: "IV-03", Field: "inputs.working_directory"},
		"--root":            {Code: "CX-03", Field: "root"},
	} {
		require.Contains(t, Hints([]Violation{v}, "/x")[0], want)
	}
}
