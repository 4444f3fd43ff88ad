package render

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/execute"
	"github.com/evalbox/evalbox/harness/gate/report"
	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
)

// maxShown bounds the findings, and the differences, that are named.
const maxShown = 10

// A GateView has facts for the lines on a gate that its report lacks.
type GateView struct {
	// Seconds are the durations of the gates themselves, by index.
	Seconds map[int]float64
	// Signed means that there is an attestation.
	Signed bool
	// Hint completes a hint.
	Hint func(hint string) string
}

// Gate says how the gates of a run ended, lists the findings against a pass with hints, and
// gives the verdict in a last line.
func Gate(r gate.Report, view GateView, p Palette) (lines []string) {
	for _, c := range r.Tests.Commands {
		lines = append(lines, gateLine(c, view.Seconds, len(r.Manifest.Gates), p))
		lines = append(lines, harmless(failedTests(c))...)
	}
	lines = append(lines, harmless(Findings(r.Verdict, view.Hint))...)
	return append(lines, verdictLine(r, view.Signed, p))
}

// gateLine is one line on a gate.
func gateLine(c evidence.CommandTests, seconds map[int]float64, all int, p Palette) string {
	parts := []string{fmt.Sprintf("gate %d/%d", c.Index, all), text.Brief(c.Command)}
	word := p.Good("ok")
	switch {
	case !c.Started:
		word = p.Bad("not started")
	case c.ExitCode == nil || *c.ExitCode != c.ExpectExit:
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

// maxFailed bounds the failed tests of a gate that are named.
const maxFailed = 5

// failedTests name the failed tests of a gate, with their messages.
func failedTests(c evidence.CommandTests) (lines []string) {
	more := c.Counts.Value().Broken()
	for _, test := range c.Cases {
		if test.Outcome != evidence.Failed && test.Outcome != evidence.Errored || len(lines) == maxFailed {
			continue
		}
		shown := fmt.Sprintf("gate %d: %s: %s", c.Index, test.Outcome, text.Brief(test.ID))
		if test.Message != "" {
			shown += ": " + text.Brief(test.Message)
		}
		lines = append(lines, shown)
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

// Findings are the findings against a pass, and hints; hint completes a hint.
func Findings(v evidence.Verdict, hint func(string) string) (lines []string) {
	for i, f := range v.Findings {
		if i == maxShown {
			lines = append(lines, fmt.Sprintf("and %d more findings", len(v.Findings)-maxShown))
			break
		}
		shown := string(f.Reason)
		if f.Gate > 0 {
			shown += fmt.Sprintf(" in gate %d", f.Gate)
		}
		lines = append(lines, shown+": "+text.Fit(text.OneLine(f.Detail), 2*text.Most))
	}
	hinted := map[evidence.StopReason]bool{}
	for _, f := range v.Findings {
		if shown := f.Reason.Hint(); shown != "" && !hinted[f.Reason] && len(hinted) < 3 {
			hinted[f.Reason] = true
			lines = append(lines, "hint: "+hint(shown))
		}
	}
	return lines
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
			lines = append(lines, "hint: --workspace names a folder with the files of the recorded run; everything in it counts, other gate directories as well")
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
