package contract

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHints(t *testing.T) {
	for want, v := range map[string]Violation{
		"NUL byte":                          {Code: "IV-02", Rule: "must not have a NUL byte"},
		"without --strict":                  {Code: "IV-02", Rule: "must not have the character ; in strict mode"},
		"SANDBOX_ALLOW_PRIVATE_EGRESS=true": {Code: "CX-04", Rule: "is not public, and the policy permits public addresses only (allow_private_egress)"},
		"SANDBOX_ALLOW_EGRESS":              {Code: "CX-04", Rule: "the policy permits offline at most (allow_egress)"},
		"make another with":                 {Code: "CK-01", Field: "approval.expires_at", Rule: "has expired"},
		"working directory":                 {Code: "IV-05", Field: "inputs.input_files[0]", Rule: "does not exist"},
		"2030-01-31":                        {Code: "DT-01", Field: "determinism.clock", Rule: "must be a time of RFC 3339"},
		"libfaketime":                       {Code: "CX-01", Field: "determinism.clock", Rule: "needs libfaketime in the image"},
		"--host":                            {Code: "CX-02", Rule: "the engine's machine has 2"},
		"--dependency":                      {Code: "CX-03", Rule: "is outside of the root, nor below a folder of contract_dependencies"},
		"what each level opens":             {Code: "CX-03", Rule: "is not open to write at level minimal; it takes level extended"},
		"--profiles":                        {Code: "CX-02", Rule: "must be between 1 and 2 in profile contract"},
	} {
		require.Contains(t, v.hint(""), want)
	}
}
