package contract

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/contract"
)

// Flags that the contract did not use are reported.
func TestUnusedFlags(t *testing.T) {
	o := contract.Outcome{Executed: &contract.Executed{NetworkLevel: "offline"}}
	require.Empty(t, execFlags{}.unused(o))
	require.Len(t, execFlags{addHosts: []string{"a:1.2.3.4"}, approver: contract.Approver{Name: "Ada"}, approval: "x"}.unused(o), 3)
	used := contract.Outcome{Executed: &contract.Executed{NetworkLevel: "api"}, Approval: &contract.Approval{}}
	require.Empty(t, execFlags{addHosts: []string{"a:1.2.3.4"}, approver: contract.Approver{Name: "Ada"}}.unused(used))
	require.Empty(t, execFlags{approver: contract.Approver{Name: "Ada"}}.unused(contract.Outcome{}))
}
