package judge

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// gravity has all reasons against a pass, the gravest first: what the gate may not do
// comes before what it was told to show, and what spoils the evidence before what the
// evidence says. Class is the reason's word in the vocabulary of RO-09.
var gravity = []struct {
	reason evidence.StopReason
	class  string
}{
	{evidence.ReasonModeViolation, "INVARIANT_VIOLATION"},
	{evidence.ReasonToolsDisabled, "BLOCKED"},
	{evidence.ReasonNotSealed, "INVARIANT_VIOLATION"},
	{evidence.ReasonNoCommands, "NULL_INPUT"},
	{evidence.ReasonNoWorkspace, "NULL_INPUT"},
	{evidence.ReasonToolRefused, "SECURITY_BLOCKED"},
	{evidence.ReasonDirty, "INVARIANT_VIOLATION"},
	{evidence.ReasonTampered, "INVARIANT_VIOLATION"},
	{evidence.ReasonOutsideBoundary, "INVARIANT_VIOLATION"},
	{evidence.ReasonNetwork, "CLAIM_POWER_INSUFFICIENT"},
	{evidence.ReasonUnpinned, "CLAIM_POWER_INSUFFICIENT"},
	{evidence.ReasonEnvironment, "ENVIRONMENT_MISMATCH"},
	{evidence.ReasonUndeclared, "INVARIANT_VIOLATION"},
	{evidence.ReasonTimeout, "BLOCKED"},
	{evidence.ReasonGateFailed, "BLOCKED"},
	{evidence.ReasonRegression, "INVARIANT_VIOLATION"},
	{evidence.ReasonNoTests, "EVIDENCE_INCOMPLETE"},
	{evidence.ReasonIncomplete, "EVIDENCE_INCOMPLETE"},
	{evidence.ReasonNondeterministic, "NON_REPRODUCIBLE"},
	{evidence.ReasonNonReproducible, "NON_REPRODUCIBLE"},
	// The last one: what lacks a program needs information only if nothing else is wrong.
	{evidence.ReasonMissingDependency, "NEED_INFO"},
}

// rank is the place of a reason in the order of gravity, -1 for one that speaks against
// nothing.
func rank(reason evidence.StopReason) int {
	for i, g := range gravity {
		if g.reason == reason {
			return i
		}
	}
	return -1
}

// classOf is the word of RO-09 for a reason.
func classOf(reason evidence.StopReason) string {
	if i := rank(reason); i >= 0 {
		return gravity[i].class
	}
	return "PASS"
}

// maxAlike bounds how many findings of one reason a verdict has for one gate.
const maxAlike = 20

// ordered are the findings, gravest first, then by gate, else as they were found. Of many
// alike the first ones are kept, and one more says how many there are.
func ordered(findings []evidence.Finding) []evidence.Finding {
	sorted := slices.Clone(findings)
	slices.SortStableFunc(sorted, func(a, b evidence.Finding) int {
		return cmp.Or(cmp.Compare(rank(a.Reason), rank(b.Reason)), cmp.Compare(a.Gate, b.Gate))
	})
	kept := []evidence.Finding{}
	for len(sorted) > 0 {
		first := sorted[0]
		alike := 0
		for alike < len(sorted) && sorted[alike].Reason == first.Reason && sorted[alike].Gate == first.Gate {
			alike++
		}
		kept = append(kept, sorted[:min(alike, maxAlike)]...)
		if more := alike - maxAlike; more > 0 {
			kept = append(kept, evidence.Finding{Reason: first.Reason, Gate: first.Gate, Detail: fmt.Sprintf("There are %d more findings of this kind.", more)})
		}
		sorted = sorted[alike:]
	}
	return kept
}
