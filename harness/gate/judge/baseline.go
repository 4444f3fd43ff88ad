package judge

import (
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// compared looks at whether a gate is worse than on the baseline (RO-04): more tests that
// fail than before, or one that failed there not and does now.
func (j *judgement) compared(r evidence.CommandTests) {
	if j.in.Manifest.Baseline == "" {
		return
	}
	if r.Baseline == nil {
		j.against(evidence.ReasonIncomplete, r.Index, evidence.TestsFile, "Gate %d (%s) has no result on the baseline.", r.Index, shortened(r.Command))
		return
	}
	before := r.Baseline.Counts.Failed + r.Baseline.Counts.Errored
	now := r.Counts.Failed + r.Counts.Errored
	known := map[string]bool{}
	for _, id := range r.Baseline.FailingTests {
		known[id] = true
	}
	var fresh []string
	for _, one := range r.Cases {
		failed := one.Outcome == evidence.Failed || one.Outcome == evidence.Errored
		// A list that is shorter than its number does not tell which ones failed.
		if failed && len(r.Baseline.FailingTests) >= before && !known[one.ID] {
			fresh = append(fresh, one.ID)
		}
	}
	switch {
	case now > before:
		j.against(evidence.ReasonRegression, r.Index, r.Command, "Gate %d (%s) has %d failing tests, and had %d on the baseline%s.", r.Index, shortened(r.Command), now, before, namedTests(fresh))
	case len(fresh) > 0:
		j.against(evidence.ReasonRegression, r.Index, r.Command, "Gate %d (%s) has failing tests that did not fail on the baseline%s.", r.Index, shortened(r.Command), namedTests(fresh))
	}
}

// namedTests are the first of some tests for the end of a sentence.
func namedTests(ids []string) string {
	const most = 5
	if len(ids) == 0 {
		return ""
	}
	var short []string
	for _, id := range ids[:min(len(ids), most)] {
		short = append(short, shortened(id))
	}
	if len(ids) > most {
		short = append(short, "…")
	}
	return ": " + strings.Join(short, ", ")
}
