package judge

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// severity lists all reasons against a pass, the most severe first: forbidden acts before
// missing proofs, and damaged evidence before the content of the evidence. Class is the word
// of RO-09 for the reason.
var severity = []struct {
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
	// The last one: a gate without its program needs information only if nothing else is wrong.
	{evidence.ReasonMissingDependency, "NEED_INFO"},
}

// rank is the place of a reason in [severity]; -1 for one that does not stop a gate.
func rank(reason evidence.StopReason) int {
	for i, s := range severity {
		if s.reason == reason {
			return i
		}
	}
	return -1
}

// classOf is the word of RO-09 for a reason.
func classOf(reason evidence.StopReason) string {
	if i := rank(reason); i >= 0 {
		return severity[i].class
	}
	return "PASS"
}

// maxAlike bounds the findings of one reason for one gate in a verdict.
const maxAlike = 20

// ordered sorts findings by severity, then by gate, else in the order of their discovery. Of
// many alike it keeps the first ones and adds their number.
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
