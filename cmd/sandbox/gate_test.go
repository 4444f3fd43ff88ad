package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// TestGateHints: whatever stops a gate, there is something to try.
func TestGateHints(t *testing.T) {
	source, err := os.ReadFile("../../harness/gate/evidence/verdict.go")
	require.NoError(t, err)
	reasons := regexp.MustCompile(`Reason\w+ +StopReason = "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	for _, reason := range reasons {
		if name := evidence.StopReason(reason[1]); name != evidence.ReasonPass {
			assert.NotEmpty(t, gateHints[name], name)
		}
	}
	assert.Len(t, gateHints, len(reasons)-1)
}

func TestGateCode(t *testing.T) {
	for status, code := range map[evidence.Status]int{
		evidence.Pass: 0, evidence.Blocked: 1, evidence.NeedInfo: 3, "": 1, "pass": 1,
	} {
		assert.Equal(t, code, gateCode(evidence.Verdict{Status: status}), status)
	}
	for outcome, code := range map[gate.Outcome]int{gate.ReplaySame: 0, gate.ReplayDifferent: 1, gate.ReplayCannot: 3, "": 1} {
		assert.Equal(t, code, replayCode(gate.ReplayReport{Outcome: outcome}), outcome)
	}
}

func TestGateLines(t *testing.T) {
	zero, three := 0, 3
	live := &gateLive{seconds: map[int]float64{1: 1.5}}
	counts := evidence.Counts{Total: 2, Passed: 1, Failed: 1}
	for want, c := range map[string]evidence.CommandTests{
		"ok · gate 1/2 · pytest · 1 failed, 1 passed · 1.50s": {Index: 1, Command: "pytest", Started: true, ExitCode: &zero, Ending: "exited", Counts: counts},
		"ok · gate 2/2 · ruff":                                {Index: 2, Command: "ruff", Kind: evidence.KindCheck, Started: true, ExitCode: &zero, Ending: "exited"},
		"ok · gate 2/2 · true · no tests":                     {Index: 2, Command: "true", Kind: evidence.KindTests, Started: true, ExitCode: &zero, Ending: "exited"},
		"failed · gate 2/2 · x · exited 3, expected 0":        {Index: 2, Command: "x", Kind: evidence.KindCheck, Started: true, ExitCode: &three, Ending: "exited"},
		"failed · gate 2/2 · x · timed out":                   {Index: 2, Command: "x", Kind: evidence.KindCheck, Started: true, Ending: "timed_out"},
		"failed · gate 2/2 · x · out of memory":               {Index: 2, Command: "x", Kind: evidence.KindCheck, Started: true, ExitCode: &three, Ending: "out_of_memory"},
		"not started · gate 2/2 · x":                          {Index: 2, Command: "x", Kind: evidence.KindCheck},
	} {
		assert.Equal(t, want, gateLine(c, live, 2, palette(false)))
	}
	r := gate.Report{Dir: "gate.out", Verdict: evidence.Verdict{Status: evidence.Blocked, StopReason: evidence.ReasonNetwork}}
	assert.Equal(t, "BLOCKED · NETWORK_ACCESS_WHEN_OFFLINE · 0 gates · evidence in gate.out, signed", verdictLine(r, true, palette(false)))
	r.Verdict.Status = evidence.Pass
	assert.Equal(t, "PASS · 0 gates · evidence in gate.out", verdictLine(r, false, palette(false)))
}

// TestFindingLines: many findings are counted, each kind has its hint once, and a
// stranger's text stays within its line.
func TestFindingLines(t *testing.T) {
	v := evidence.Verdict{}
	for range maxShown + 5 {
		v.Findings = append(v.Findings, evidence.Finding{Reason: evidence.ReasonGateFailed, Gate: 1, Detail: "one\ntwo\x1b[2J" + strings.Repeat("x", 5000)})
	}
	a := &app{}
	lines := a.findingLines(v)
	require.Len(t, lines, maxShown+2)
	assert.Equal(t, "and 5 more findings", lines[maxShown])
	assert.Equal(t, "hint: "+gateHints[evidence.ReasonGateFailed], lines[maxShown+1])
	assert.NotContains(t, lines[0], "\n")
	assert.Less(t, len(lines[0]), 600)
	var out strings.Builder
	a.streams.Err = &out
	require.NoError(t, a.printLines(lines))
	assert.NotContains(t, out.String(), "\x1b")
}

func TestIsLock(t *testing.T) {
	for text, want := range map[string]bool{
		`{"schema": "evalbox/wish-lock/v1"}`: true, ` {"schema":"evalbox/wish-lock/v2"}`: true,
		`{"schema": "evalbox/wish/v1"}`: false, `schema: evalbox/wish-lock/v1`: false, ``: false, `{`: false, `[]`: false,
	} {
		assert.Equal(t, want, isLock([]byte(text)), text)
	}
}
