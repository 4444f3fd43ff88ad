package render

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
)

func TestGateLines(t *testing.T) {
	zero, three := 0, 3
	counts := &evidence.Counts{Total: 2, Passed: 1, Failed: 1}
	for want, c := range map[string]evidence.CommandTests{
		"ok · gate 1/2 · pytest · 1 failed, 1 passed · 1.50s": {Index: 1, Command: "pytest", Started: true, ExitCode: &zero, Ending: "exited", Counts: counts},
		"ok · gate 2/2 · ruff":                                {Index: 2, Command: "ruff", Kind: evidence.KindCheck, Started: true, ExitCode: &zero, Ending: "exited"},
		"ok · gate 2/2 · true · no tests":                     {Index: 2, Command: "true", Kind: evidence.KindTests, Started: true, ExitCode: &zero, Ending: "exited"},
		"failed · gate 2/2 · x · exited 3, expected 0":        {Index: 2, Command: "x", Kind: evidence.KindCheck, Started: true, ExitCode: &three, Ending: "exited"},
		"failed · gate 2/2 · x · timed out":                   {Index: 2, Command: "x", Kind: evidence.KindCheck, Started: true, Ending: "timed_out"},
		"failed · gate 2/2 · x · out of memory":               {Index: 2, Command: "x", Kind: evidence.KindCheck, Started: true, ExitCode: &three, Ending: "out_of_memory"},
		"not started · gate 2/2 · x":                          {Index: 2, Command: "x", Kind: evidence.KindCheck},
	} {
		assert.Equal(t, want, gateLine(c, map[int]float64{1: 1.5}, 2, Palette(false)))
	}
	r := gate.Report{Dir: "gate.out", Verdict: evidence.Verdict{Status: evidence.Blocked, StopReason: evidence.ReasonNetwork}}
	assert.Equal(t, "BLOCKED · NETWORK_ACCESS_WHEN_OFFLINE · 0 gates · evidence in gate.out, signed", verdictLine(r, true, Palette(false)))
	r.Verdict.Status = evidence.Pass
	assert.Equal(t, "PASS · 0 gates · evidence in gate.out", verdictLine(r, false, Palette(false)))
}

// TestFindingLines: many findings are counted, each kind has its hint once, and a
// stranger's text stays within its line.
func TestFindingLines(t *testing.T) {
	v := evidence.Verdict{}
	for range maxShown + 5 {
		v.Findings = append(v.Findings, evidence.Finding{Reason: evidence.ReasonGateFailed, Gate: 1, Detail: "one\ntwo\x1b[2J" + strings.Repeat("x", 5000)})
	}
	again := func(hint string) string { return hint + " again" }
	lines := Findings(v, again)
	require.Len(t, lines, maxShown+2)
	assert.Equal(t, "and 5 more findings", lines[maxShown])
	assert.Equal(t, "hint: "+evidence.ReasonGateFailed.Hint()+" again", lines[maxShown+1])
	assert.NotContains(t, lines[0], "\n")
	assert.Less(t, len(lines[0]), 600)
	shown := strings.Join(Gate(gate.Report{Verdict: v}, GateView{Hint: again}, false), "\n")
	assert.Contains(t, shown, "one two^[[2Jxxx")
	assert.NotContains(t, shown, "\x1b")
}

// TestWarningLines: the warnings stand before the findings, bounded in number and length.
func TestWarningLines(t *testing.T) {
	v := evidence.Verdict{Status: evidence.Pass}
	for range maxShown + 2 {
		v.Warnings = append(v.Warnings, evidence.Finding{Reason: evidence.ReasonIncomplete, Gate: 1, Detail: "No test\nwas seen\x1b." + strings.Repeat("x", 5000)})
	}
	lines := Gate(gate.Report{Verdict: v, Dir: "out"}, GateView{}, false)
	require.Len(t, lines, maxShown+2)
	assert.Regexp(t, `^warning: No test was seen\^\[[.]xxx`, lines[0])
	assert.Less(t, len(lines[0]), 700)
	assert.Equal(t, "and 2 more warnings", lines[maxShown])
	assert.Equal(t, "PASS · 0 gates · evidence in out", lines[maxShown+1])
}

// TestFindingsThatFollow: consequences are one line, without hints of their own.
func TestFindingsThatFollow(t *testing.T) {
	v := evidence.Verdict{Findings: []evidence.Finding{
		{Reason: evidence.ReasonGateFailed, Gate: 1, Subject: "x", Detail: "It failed."},
		{Reason: evidence.ReasonNoTests, Gate: 1, Subject: "x", Detail: "No test."},
		{Reason: evidence.ReasonIncomplete, Gate: 1, Subject: evidence.TestsFile, Detail: "No report."},
	}}
	same := func(hint string) string { return hint }
	assert.Equal(t, []string{
		"GATE_FAILED in gate 1: It failed.",
		"as a result: PASS_WITHOUT_TEST_EXECUTION in gate 1, EVIDENCE_INCOMPLETE in gate 1",
		"hint: " + evidence.ReasonGateFailed.Hint(),
	}, Findings(v, same))
	one := 1
	tests := evidence.Tests{Commands: []evidence.CommandTests{{
		Index: 1, Started: true, Ending: "exited", ExitCode: &one, Cases: []evidence.Case{{ID: "a", Outcome: evidence.Failed}},
	}}}
	assert.Equal(t, []string{
		"as a result: GATE_FAILED in gate 1, PASS_WITHOUT_TEST_EXECUTION in gate 1, EVIDENCE_INCOMPLETE in gate 1",
	}, findings(v, tests, same))
}

// TestFailedLines: the first failed tests are named with what they said; the rest is
// counted.
func TestFailedLines(t *testing.T) {
	c := evidence.CommandTests{Index: 2, Counts: &evidence.Counts{Failed: maxFailed + 3, Errored: 1}}
	c.Cases = []evidence.Case{{ID: "a", Outcome: evidence.Passed}, {ID: "b", Outcome: evidence.Errored, Message: "no\nmodule x"}}
	for range maxFailed + 1 {
		c.Cases = append(c.Cases, evidence.Case{ID: "t.py::t", Outcome: evidence.Failed})
	}
	lines := failedTests(c)
	require.Len(t, lines, maxFailed+1)
	assert.Equal(t, "b: no", lines[0])
	assert.Equal(t, "t.py::t", lines[1])
	assert.Equal(t, "gate 2: and 4 more failing tests; all are in evidence/tests.json of the gate directory", lines[maxFailed])
	c.Counts, c.Cases = &evidence.Counts{Failed: 1}, nil
	assert.Empty(t, failedTests(c), "only numbers are known")
}

func TestProvenText(t *testing.T) {
	r := gate.Report{Dir: "out", Verdict: evidence.Verdict{Status: evidence.Pass}}
	r.Manifest.Mode.Repeats, r.Manifest.Repo.BaselineRev, r.Manifest.Repo.BaselineCommit = 3, "main", "abc"
	assert.Equal(t, "PASS · 0 gates, the same 3 times, no worse than main · evidence in out", verdictLine(r, false, Palette(false)))
	r.Verdict.Status, r.Verdict.StopReason = evidence.Blocked, evidence.ReasonRegression
	assert.Equal(t, "BLOCKED · REGRESSION · 0 gates · evidence in out", verdictLine(r, false, Palette(false)))
}

func TestProblemText(t *testing.T) {
	for want, p := range map[string]gate.Problem{
		"a/b: is missing":              {File: "a/b", Detail: "a/b is missing"},
		"a/b: is not the one":          {File: "a/b", Detail: `"a/b" is not the one`},
		"a/b: names c":                 {File: "a/b", Detail: "names c"},
		"the directory cannot be read": {Detail: "the directory cannot be read"},
	} {
		assert.Equal(t, want, Problem(p))
	}
}
