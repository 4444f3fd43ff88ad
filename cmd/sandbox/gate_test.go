package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/wish"
	"github.com/evalbox/evalbox/internal/settings"
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

// TestFailedLines: the first failed tests are named with what they said; the rest is
// counted.
func TestFailedLines(t *testing.T) {
	c := evidence.CommandTests{Index: 2, Counts: evidence.Counts{Failed: maxFailed + 3, Errored: 1}}
	c.Cases = []evidence.Case{{ID: "a", Outcome: evidence.Passed}, {ID: "b", Outcome: evidence.Errored, Message: "no\nmodule x"}}
	for range maxFailed + 1 {
		c.Cases = append(c.Cases, evidence.Case{ID: "t.py::t", Outcome: evidence.Failed})
	}
	lines := failedLines(c)
	require.Len(t, lines, maxFailed+1)
	assert.Equal(t, "gate 2: error: b: no module x", lines[0])
	assert.Equal(t, "gate 2: failed: t.py::t", lines[1])
	assert.Equal(t, "gate 2: and 4 more; all are in evidence/tests.json of the gate directory", lines[maxFailed])
	c.Counts, c.Cases = evidence.Counts{Failed: 1}, nil
	assert.Empty(t, failedLines(c), "only numbers are known")
}

func TestProvenText(t *testing.T) {
	r := gate.Report{Dir: "out", Verdict: evidence.Verdict{Status: evidence.Pass}}
	r.Manifest.Mode.Repeats, r.Manifest.Repo.BaselineRev, r.Manifest.Repo.BaselineCommit = 3, "main", "abc"
	assert.Equal(t, "PASS · 0 gates, the same 3 times, no worse than main · evidence in out", verdictLine(r, false, palette(false)))
	r.Verdict.Status, r.Verdict.StopReason = evidence.Blocked, evidence.ReasonRegression
	assert.Equal(t, "BLOCKED · REGRESSION · 0 gates · evidence in out", verdictLine(r, false, palette(false)))
}

func TestProblemText(t *testing.T) {
	for want, p := range map[string]gate.Problem{
		"a/b: is missing":           {File: "a/b", Detail: "a/b is missing"},
		"a/b: is not the one":       {File: "a/b", Detail: `"a/b" is not the one`},
		"a/b: names c":              {File: "a/b", Detail: "names c"},
		"the folder cannot be read": {Detail: "the folder cannot be read"},
	} {
		assert.Equal(t, want, problemText(p))
	}
}

// TestReportsAreNoPartOfTheWorkspace: what is sealed on the spot leaves them out, a sealed
// wish has to.
func TestReportsAreNoPartOfTheWorkspace(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "work", "ci"), 0o755))
	require.NoError(t, os.Symlink("work", filepath.Join(dir, "link")))
	t.Chdir(dir)
	options := func(exclude ...string) *gate.Options {
		o := &gate.Options{WishDir: dir}
		o.Lock.Wish.IOBoundary, o.Lock.Wish.Exclude = "work", exclude
		return o
	}
	o := options("dist")
	require.NoError(t, (&gateFlags{junit: "link/ci/junit.xml", summary: "page.md"}).checkReports(o))
	assert.Equal(t, []string{"dist", "ci/junit.xml"}, o.Lock.Wish.Exclude)
	assert.Equal(t, []string{"work/ci/junit.xml"}, o.Ignore)

	o = options("ci/")
	o.Sealed = true
	require.NoError(t, (&gateFlags{junit: "work/ci/junit.xml"}).checkReports(o))
	assert.Equal(t, []string{"ci/"}, o.Lock.Wish.Exclude, "a sealed wish stays as it is")
	err := (&gateFlags{summary: "work/page.md"}).checkReports(o)
	require.ErrorContains(t, err, "output work/page.md: lies in the workspace")
	assert.Contains(t, hint(err), "exclude")
	require.NoError(t, (&gateFlags{junit: "x.xml", summary: "-"}).checkReports(o))
}

// TestCheckWish: what could never be run is not sealed, and what protects nothing is told.
func TestCheckWish(t *testing.T) {
	dir := t.TempDir()
	var out strings.Builder
	a := &app{}
	a.streams.Err = &out
	w, err := wish.FromCommand([]string{"pytest"})
	require.NoError(t, err)
	w.ProtectedPaths = []string{"secrets"}
	require.NoError(t, a.checkWish(w, filepath.Join(dir, "wish.yaml")))
	assert.Equal(t, "sandbox: warning: secrets is not there, and so it is not protected\n", out.String())
	w.IOBoundary = "none"
	err = a.checkWish(w, filepath.Join(dir, "wish.yaml"))
	require.Error(t, err)
	assert.Contains(t, hint(err), "io_boundary")
	w.GateCommands = nil
	require.ErrorContains(t, a.checkWish(w, "wish.yaml"), "names no command")
}

// TestAllowUnobserved: the flag is in the wish that is sealed on the spot, and so in the
// lock and its hash.
func TestAllowUnobserved(t *testing.T) {
	for _, allowed := range []bool{false, true} {
		f := gateFlags{command: []string{"pytest"}, mode: modeExecute, repeats: 1, allowUnobserved: allowed}
		o, err := f.options(t.Context(), settings.Settings{})
		require.NoError(t, err)
		assert.Equal(t, allowed, o.Lock.Wish.AllowUnobserved)
	}
}
