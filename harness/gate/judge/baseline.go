package judge

import (
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
)

// compared looks at whether a gate is worse than on the baseline (RO-04): more tests that
// fail than before, one that did not fail there and does now, or one that passed there and
// proves nothing now.
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
		j.against(evidence.ReasonRegression, r.Index, r.Command, "Gate %d (%s) has %s, and had %d on the baseline%s.", r.Index, shortened(r.Command), text.Count(now, "failing test"), before, namedTests(fresh))
	case len(fresh) > 0:
		j.against(evidence.ReasonRegression, r.Index, r.Command, "Gate %d (%s) has failing tests that did not fail on the baseline%s.", r.Index, shortened(r.Command), namedTests(fresh))
	}
	j.vanished(r)
}

// vanished looks for tests that passed on the baseline and neither pass nor fail now: they
// were removed or renamed, or are skipped or expected to fail. There are never to be fewer
// proofs than before. Names are compared where both sides have all of them, else numbers.
func (j *judgement) vanished(r evidence.CommandTests) {
	b := *r.Baseline
	before, now := b.Counts.Succeeded(), r.Counts.Succeeded()
	if r.CasesDropped > 0 || len(r.Cases) == 0 && r.Counts.Total > 0 || len(b.PassingTests) < before {
		if lost := before - now - r.Counts.Failed - r.Counts.Errored; lost > 0 {
			j.against(evidence.ReasonRegression, r.Index, r.Command, "Gate %d (%s) has %s, and had %d on the baseline.",
				r.Index, shortened(r.Command), text.Count(now, "passing test"), before)
		}
		return
	}
	there := map[string]bool{}
	for _, one := range r.Cases {
		proves := one.Outcome == evidence.Passed || one.Outcome == evidence.XPassed
		fails := one.Outcome == evidence.Failed || one.Outcome == evidence.Errored
		there[one.ID] = there[one.ID] || proves || fails
	}
	var lost []string
	for _, id := range b.PassingTests {
		if !there[id] {
			lost = append(lost, id)
		}
	}
	if len(lost) > 0 {
		j.against(evidence.ReasonRegression, r.Index, r.Command,
			"Gate %d (%s) lacks %s of the baseline, now removed, skipped or expected to fail%s. Tests are compared by name: a renamed one counts as removed.",
			r.Index, shortened(r.Command), text.Count(len(lost), "passing test"), namedTests(lost))
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
