package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/report"
	"github.com/evalbox/evalbox/internal/format"
	"github.com/evalbox/evalbox/internal/settings"
)

// gated is what `gate run --json` prints.
type gated struct {
	evidence.Verdict
	// Dir is the gate directory; Signed says that there is an attestation.
	Dir    string `json:"dir"`
	Signed bool   `json:"signed"`
}

// maxShown bounds the findings that are told.
const maxShown = 10

// showGate tells a gate to people, and to programs if they asked.
func (a *app) showGate(r gate.Report, live *gateLive, s settings.Settings, signed bool) error {
	if !s.Quiet && (!s.JSON || a.errTerminal) {
		p := a.palette()
		var lines []string
		for _, c := range r.Tests.Commands {
			lines = append(lines, gateLine(c, live, len(r.Manifest.Gates), p))
			lines = append(lines, failedLines(c)...)
		}
		lines = append(lines, a.findingLines(r.Verdict)...)
		err := patiently(func() error { return a.printLines(append(lines, verdictLine(r, signed, p))) })
		if errors.Is(err, errStuck) {
			return errReaderGone
		}
		if err != nil {
			return err
		}
	}
	if !s.JSON {
		return nil
	}
	err := a.printJSON(gated{r.Verdict, r.Dir, signed})
	if err != nil && !errors.Is(err, errReaderGone) {
		a.code = exitSandbox // whoever asked for the verdict did not get it
	}
	return err
}

// printLines prints lines of ours on stderr, which may begin with a colour.
func (a *app) printLines(lines []string) error {
	for _, line := range lines {
		if _, err := fmt.Fprintf(a.streams.Err, "sandbox: %s\n", outcomeText(line, a.palette())); err != nil {
			return readerGone(err)
		}
	}
	return nil
}

// gateLine is one line on a gate.
func gateLine(c evidence.CommandTests, live *gateLive, all int, p palette) string {
	parts := []string{fmt.Sprintf("gate %d/%d", c.Index, all), format.Brief(c.Command)}
	word := p.good("ok")
	switch {
	case !c.Started:
		word = p.bad("not started")
	case c.ExitCode == nil || *c.ExitCode != c.ExpectExit:
		word = p.bad("failed")
		parts = append(parts, gateEnding(c))
	}
	if counts := report.CountsText(c.Counts); counts != "" {
		parts = append(parts, counts)
	} else if c.Kind == evidence.KindTests {
		parts = append(parts, "no tests")
	}
	if seconds, ok := live.seconds[c.Index]; ok {
		parts = append(parts, format.Seconds(seconds))
	}
	return strings.Join(append([]string{word}, parts...), " · ")
}

// maxFailed bounds the failed tests of a gate that are named.
const maxFailed = 5

// failedLines name the tests of a gate that failed, with what they said.
func failedLines(c evidence.CommandTests) (lines []string) {
	more := c.Counts.Failed + c.Counts.Errored
	for _, test := range c.Cases {
		if test.Outcome != evidence.Failed && test.Outcome != evidence.Errored || len(lines) == maxFailed {
			continue
		}
		text := fmt.Sprintf("gate %d: %s: %s", c.Index, test.Outcome, format.Brief(test.ID))
		if test.Message != "" {
			text += ": " + format.Brief(test.Message)
		}
		lines = append(lines, text)
		more--
	}
	if len(lines) > 0 && more > 0 {
		lines = append(lines, fmt.Sprintf("gate %d: and %d more; all are in evidence/tests.json of the gate directory", c.Index, more))
	}
	return lines
}

// gateEnding is how a gate ended that did not end as expected.
func gateEnding(c evidence.CommandTests) string {
	if c.Ending != "exited" || c.ExitCode == nil {
		return strings.ReplaceAll(c.Ending, "_", " ")
	}
	return fmt.Sprintf("exited %d, expected %d", *c.ExitCode, c.ExpectExit)
}

// findingLines tell what speaks against a pass, and what to try.
func (a *app) findingLines(v evidence.Verdict) (lines []string) {
	told := map[evidence.StopReason]bool{}
	for i, f := range v.Findings {
		if i == maxShown {
			lines = append(lines, fmt.Sprintf("and %d more findings", len(v.Findings)-maxShown))
			break
		}
		text := string(f.Reason)
		if f.Gate > 0 {
			text += fmt.Sprintf(" in gate %d", f.Gate)
		}
		lines = append(lines, text+": "+format.Short(format.OneLine(f.Detail), 2*format.Most))
	}
	for _, f := range v.Findings {
		if hint := gateHints[f.Reason]; hint != "" && !told[f.Reason] && len(told) < 3 {
			told[f.Reason] = true
			lines = append(lines, "hint: "+a.repeatFlags(hint))
		}
	}
	return lines
}

// verdictLine is the last line on a gate.
func verdictLine(r gate.Report, signed bool, p palette) string {
	v := r.Verdict
	text := p.good(string(v.Status))
	if v.Status != evidence.Pass {
		text = p.bad(string(v.Status)) + " · " + string(v.StopReason)
	}
	text += " · " + format.Count(len(r.Tests.Commands), "gate")
	if counts := report.CountsText(v.EvidenceSummary.Counts); counts != "" {
		text += ", " + counts
	}
	if v.Status == evidence.Pass {
		text += provenText(r.Manifest)
	}
	text += " · evidence in " + r.Dir
	if signed {
		text += ", signed"
	}
	return text
}

// provenText is what a pass says beside that the gates passed.
func provenText(m evidence.RunManifest) (text string) {
	if n := m.Mode.Repeats; n > 1 {
		text += fmt.Sprintf(", the same %d times", n)
	}
	if m.Repo.BaselineCommit != "" {
		text += ", no worse than " + format.Brief(m.Repo.BaselineRev)
	}
	return text
}
