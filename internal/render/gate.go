package render

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/execute"
	"github.com/evalbox/evalbox/harness/gate/report"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
)

const (
	// maxShown bounds the findings, and the differences, that are named.
	maxShown = 10
	// maxFailed bounds the failed tests of a gate that are named.
	maxFailed = 20
)

// A GateView has facts for the lines on a gate that its report lacks.
type GateView struct {
	// Seconds are the durations of the gates themselves, by index.
	Seconds map[int]float64
	// Signed means that there is an attestation.
	Signed bool
	// Output are the last lines of the output of the gates that failed, by index; nil if it was
	// shown already.
	Output map[int][]string
	// Hint completes a hint.
	Hint func(hint string) string
}

// Gate says how the gates of a run ended, with the end of the output of those that failed and
// their failed tests. It lists the findings against a pass with hints, and gives the verdict in
// a last line.
func Gate(r gate.Report, view GateView, p Palette) (lines []string) {
	for _, c := range r.Tests.Commands {
		lines = append(lines, gateLine(c, view.Seconds, len(r.Manifest.Gates), p))
		for _, line := range view.Output[c.Index] {
			lines = append(lines, "| "+terminal.Line(text.Fit(line, 2*text.Most)))
		}
		lines = append(lines, harmless(failedTests(c))...)
	}
	lines = append(lines, harmless(findings(r.Verdict, r.Tests, view.Hint))...)
	return append(lines, verdictLine(r, view.Signed, p))
}

// gateLine is one line on a gate.
func gateLine(c evidence.CommandTests, seconds map[int]float64, all int, p Palette) string {
	parts := []string{fmt.Sprintf("gate %d/%d", c.Index, all), text.Brief(c.Command)}
	word := p.Good("ok")
	switch {
	case !c.Started:
		word = p.Bad("not started")
	case !report.Met(c):
		word = p.Bad("failed")
		parts = append(parts, gateEnding(c))
	}
	if counts := report.CountsText(c.Counts.Value()); counts != "" {
		parts = append(parts, counts)
	} else if c.Kind == evidence.KindTests {
		parts = append(parts, "no tests")
	}
	if took, ok := seconds[c.Index]; ok {
		parts = append(parts, text.Seconds(took))
	}
	return word + " · " + terminal.Line(strings.Join(parts, " · "))
}

// failedTests name the failed tests of a gate, each with the line of its failure that matters.
func failedTests(c evidence.CommandTests) (lines []string) {
	failed := report.Broken(c)
	for _, test := range failed[:min(maxFailed, len(failed))] {
		shown := text.Fit(text.OneLine(test.ID), 2*text.Most)
		if reason := report.Reason(test); reason != "" {
			shown += ": " + text.Fit(reason, 2*text.Most)
		}
		lines = append(lines, shown)
	}
	if more := c.Counts.Value().Broken() - len(lines); len(lines) > 0 && more > 0 {
		lines = append(lines, fmt.Sprintf("gate %d: and %d more failing tests; all are in evidence/tests.json of the gate directory", c.Index, more))
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

// Findings are the findings of a verdict, and hints; hint completes a hint.
func Findings(v evidence.Verdict, hint func(string) string) []string {
	return findings(v, evidence.Tests{}, hint)
}

// findings are the warnings of a verdict, and its causes with their hints. What follows from them, or from the
// tests that failed, is one line.
func findings(v evidence.Verdict, tests evidence.Tests, hint func(string) string) (lines []string) {
	for i, w := range v.Warnings {
		if i == maxShown {
			lines = append(lines, fmt.Sprintf("and %d more warnings", len(v.Warnings)-maxShown))
			break
		}
		lines = append(lines, "warning: "+text.Fit(text.OneLine(w.Detail), 3*text.Most))
	}
	causes, consequences := report.Causes(v, tests)
	for i, f := range causes {
		if i == maxShown {
			lines = append(lines, fmt.Sprintf("and %d more findings", len(causes)-maxShown))
			break
		}
		lines = append(lines, reasonText(f)+": "+text.Fit(text.OneLine(f.Detail), 2*text.Most))
	}
	var follow []string
	for _, f := range consequences {
		if shown := reasonText(f); !slices.Contains(follow, shown) && len(follow) < maxShown {
			follow = append(follow, shown)
		}
	}
	if len(follow) > 0 {
		lines = append(lines, "as a result: "+strings.Join(follow, ", "))
	}
	hinted := map[evidence.StopReason]bool{}
	for _, f := range causes {
		if shown := f.Reason.Hint(); shown != "" && !hinted[f.Reason] && len(hinted) < 3 {
			hinted[f.Reason] = true
			lines = append(lines, "hint: "+hint(shown))
		}
	}
	return lines
}

// reasonText is the reason of a finding with its gate.
func reasonText(f evidence.Finding) string {
	if f.Gate > 0 {
		return fmt.Sprintf("%s in gate %d", f.Reason, f.Gate)
	}
	return string(f.Reason)
}

// verdictLine is the last line on a gate.
func verdictLine(r gate.Report, signed bool, p Palette) string {
	v := r.Verdict
	head, shown := p.Good(string(v.Status)), ""
	if v.Status != evidence.Pass {
		head, shown = p.Bad(string(v.Status)), " · "+string(v.StopReason)
	}
	shown += " · " + text.Count(len(r.Tests.Commands), "gate")
	if counts := report.CountsText(v.EvidenceSummary.Counts); counts != "" {
		shown += ", " + counts
	}
	if v.Status == evidence.Pass {
		shown += provenText(r.Manifest)
	}
	shown += " · evidence in " + r.Dir
	if signed {
		shown += ", signed"
	}
	return head + terminal.Line(shown)
}

// provenText names the further facts that a pass proves.
func provenText(m evidence.RunManifest) (shown string) {
	if n := m.Mode.Repeats; n > 1 {
		shown += fmt.Sprintf(", the same %d times", n)
	}
	if m.Repo.BaselineCommit != "" {
		shown += ", no worse than " + text.Brief(m.Repo.BaselineRev)
	}
	return shown
}

// Replay says how a replay ended.
func Replay(r gate.ReplayReport, p Palette) (lines []string) {
	for _, m := range r.Missing {
		lines = append(lines, fmt.Sprintf("missing: %s: %s", m.File, m.Detail))
	}
	for i, d := range r.Differences {
		if i == maxShown {
			lines = append(lines, fmt.Sprintf("and %d more differences", len(r.Differences)-maxShown))
			break
		}
		where := "differs: "
		if d.Gate > 0 {
			where += fmt.Sprintf("gate %d: ", d.Gate)
		}
		if d.Subject != "" {
			where += d.Subject + ": "
		}
		lines = append(lines, where+fmt.Sprintf("%s is %s, was %s", d.Signal, cmp.Or(d.Got, "not there"), cmp.Or(d.Want, "not there")))
	}
	if line := r.FirstLine; line != nil {
		lines = append(lines, fmt.Sprintf("differs: line %d of the log is %q, was %q", line.Line, text.Fit(line.Got, text.Most), text.Fit(line.Want, text.Most)))
	}
	lines = harmless(lines)
	commands := text.Count(len(r.Commands), "command")
	switch r.Outcome {
	case gate.ReplaySame:
		return append(lines, p.Good("the same")+" · "+commands+" · behavior "+terminal.Line(r.BehaviorHash))
	case gate.ReplayDifferent:
		return append(lines, p.Bad("different")+" · "+commands+" · "+text.Count(len(r.Differences), "difference"))
	case gate.ReplayCannot:
	}
	lines = append(lines, p.Odd("cannot be replayed")+" · nothing was compared")
	for _, m := range r.Missing {
		if m.File == "workspace" {
			lines = append(lines, "hint: name a directory with the files of the recorded run with --root; every file in it counts, also those of other gate directories")
		}
	}
	return lines
}

// GateStep names a step of a gate that begins; empty for one that takes no time.
func GateStep(e gate.Event) string {
	set := ""
	if e.Set != "" {
		set = e.Set + ", "
	}
	switch e.Stage {
	case execute.StageMoved:
		removed := ""
		if e.Removed != "" {
			removed = "; the oldest one, in " + e.Removed + ", was removed"
		}
		return "the earlier run moved to " + e.Moved + removed
	case execute.StageSnapshot:
		return "looking at image, workspace and tools"
	case execute.StageStart:
		return fmt.Sprintf("%sgate %d/%d · %s", set, e.Gate, e.Gates, text.Brief(e.Cmd))
	case execute.StageNormalize:
		return "normalizing, hashing and judging"
	case execute.StageEnd, execute.StageManifest, execute.StageHash, execute.StageJudge:
	}
	return ""
}

// Problem is a problem of a gate directory, with the name of its file once.
func Problem(p gate.Problem) string {
	detail := strings.TrimPrefix(p.Detail, strconv.Quote(p.File))
	if detail = strings.TrimPrefix(strings.TrimPrefix(detail, p.File), " "); p.File == "" {
		return detail
	}
	return p.File + ": " + detail
}
