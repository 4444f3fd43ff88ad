package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/evalbox/evalbox/harness/gate"
	"github.com/evalbox/evalbox/harness/gate/evidence"
	gatereport "github.com/evalbox/evalbox/harness/gate/report"
	"github.com/evalbox/evalbox/internal/text"
)

// A Gate is the content of a gate directory.
type Gate struct {
	gate.Report

	// Problems say why the directory is not as its run left it; none if it is.
	Problems []gate.Problem
	// Times are how long the gates took, and Tails the last lines of those that failed, by index.
	Times map[int]gatereport.Times
	Tails map[int][]string
	// Environment is that of the gates, and Files are the hashes of the evidence.
	Environment evidence.EnvSnapshot
	Files       []evidence.HashedFile
	// Signed says that there is a signed statement.
	Signed bool
}

// GateDocument is the report of a gate.
func GateDocument(g Gate) Document {
	m, v := g.Manifest, g.Verdict
	d := Document{Kind: "Gate", Title: cmp.Or(m.Name, "gate"), Mark: Bad}
	d.Lead = "Verdict: " + string(v.Status) + "."
	switch {
	case len(g.Problems) > 0:
		d.Lead += " The directory is not as its run left it: see the problems."
	case v.Status == evidence.Pass:
		d.Mark = Good
	}
	if v.StopReason != "" && v.Status != evidence.Pass {
		d.Lead += " Stopped for " + string(v.StopReason) + "."
	}
	counts := v.EvidenceSummary.Counts
	commit := m.Repo.Commit
	if commit != "" && m.Repo.Dirty {
		commit += ", with changes"
	}
	passes := ""
	if m.Mode.Repeats > 1 {
		passes = text.Count(m.Mode.Repeats, "run") + " with the same logs, tests and outputs"
		if v.Status != evidence.Pass {
			passes = text.Count(m.Mode.Repeats, "run") + " asked for"
		}
	}
	d.Sections = []Section{
		{Title: "Verdict", Facts: facts(
			Fact{"Status", marked(textCell(string(v.Status)), d.Mark)}, Fact{"Gates", countCell(len(m.GateCommands))}, Fact{"Tests", textCell(gatereport.CountsText(counts))},
			Fact{"Repeats", textCell(passes)}, Fact{"Baseline", textCell(cmp.Or(m.Repo.BaselineCommit, m.Repo.BaselineRev))},
			Fact{"Attempts at the network counted by", textCell(v.EvidenceSummary.NetworkCounted)}, Fact{"Protected paths watched by the kernel", textCell(yes(v.EvidenceSummary.Watched))},
			Fact{"Signed", textCell(yes(g.Signed))},
		)},
		problems(g.Problems),
		gates(g),
		brokenTests(g),
		findings("Findings", v.Findings, Bad),
		findings("Warnings", v.Warnings, Warning),
		{Title: "Output of the gates that failed", Blocks: tails(g), Folded: true},
		allTests(g),
		gateEnforced(g),
		{Title: "Evidence", Facts: facts(
			Fact{"Wish", codeCell(v.WishSHA256)}, Fact{"Manifest of the evidence", codeCell(v.ManifestSHA256)}, Fact{"Behavior", codeCell(v.BehaviorHash)},
			Fact{"Image", codeCell(m.Toolchain.ImageID)}, Fact{"Commit", codeCell(commit)},
		), Tables: files(g.Files)},
	}
	d.Data = testsData(g)
	return d
}

func problems(all []gate.Problem) Section {
	if len(all) == 0 {
		return Section{}
	}
	t := Table{Columns: []string{"File", "Problem"}}
	for _, p := range all {
		t.Rows = append(t.Rows, []Cell{codeCell(p.File), marked(textCell(p.Detail), Bad)})
	}
	return Section{Title: "Problems of the directory", Tables: []Table{t}}
}

// gateMark is whether a gate ended as expected.
func gateMark(c evidence.CommandTests) (string, Mark) {
	switch {
	case !c.Started:
		return "not started", Warning
	case gatereport.Met(c):
		return "as expected", Good
	}
	return "failed", Bad
}

func gates(g Gate) Section {
	t := Table{Columns: []string{"Gate", "Command", "Result", "Ended", "Exit code", "Expected", "Tests", "Time"}}
	for _, c := range g.Tests.Commands {
		word, mark := gateMark(c)
		code, took := absent, absent
		if c.ExitCode != nil {
			code = countCell(*c.ExitCode)
		}
		if times, known := g.Times[c.Index]; known && times.Seconds > 0 {
			took = secondsCell(times.Seconds)
		}
		tests := gatereport.CountsText(c.Counts.Value())
		if tests == "" && c.Kind == evidence.KindCheck {
			tests = "a check"
		}
		t.Rows = append(t.Rows, []Cell{
			countCell(c.Index), codeCell(c.Command), marked(textCell(word), mark), textCell(strings.ReplaceAll(c.Ending, "_", " ")), code, countCell(c.ExpectExit), textCell(tests), took,
		})
	}
	s := Section{Title: "Gates", Tables: []Table{t}}
	if len(t.Rows) == 0 {
		s.Tables, s.Text = nil, []string{fmt.Sprintf("None of the %s ran.", text.Count(len(g.Manifest.GateCommands), "gate"))}
	}
	return s
}

func brokenTests(g Gate) Section {
	t := Table{Columns: []string{"Gate", "Test", "Outcome", "Why"}}
	for _, c := range g.Tests.Commands {
		for _, test := range gatereport.Broken(c) {
			t.Rows = append(t.Rows, []Cell{countCell(c.Index), codeCell(test.ID), marked(textCell(string(test.Outcome)), Bad), textCell(gatereport.Reason(test))})
		}
	}
	if len(t.Rows) == 0 {
		return Section{}
	}
	return Section{Title: "Failing tests", Tables: []Table{t}}
}

func findings(title string, all []evidence.Finding, mark Mark) Section {
	t := Table{Columns: []string{"Reason", "Gate", "Subject", "Detail"}}
	for _, f := range all {
		at := absent
		if f.Gate > 0 {
			at = countCell(f.Gate)
		}
		t.Rows = append(t.Rows, []Cell{marked(textCell(string(f.Reason)), mark), at, codeCell(f.Subject), textCell(f.Detail)})
	}
	if len(t.Rows) == 0 {
		return Section{}
	}
	return Section{Title: title, Tables: []Table{t}}
}

func tails(g Gate) (blocks []Block) {
	for _, c := range g.Tests.Commands {
		if tail := g.Tails[c.Index]; len(tail) > 0 {
			blocks = append(blocks, Block{fmt.Sprintf("Gate %d: %s", c.Index, c.Command), strings.Join(tail, "\n")})
		}
	}
	return blocks
}

var outcomeMarks = map[evidence.Outcome]Mark{evidence.Passed: Good, evidence.XFailed: Good, evidence.Failed: Bad, evidence.Errored: Bad, evidence.Skipped: Warning, evidence.XPassed: Warning}

func allTests(g Gate) Section {
	s := Section{Title: "All tests"}
	t := Table{Columns: []string{"Gate", "Test", "Outcome"}}
	for _, c := range g.Tests.Commands {
		for _, test := range c.Cases {
			t.Rows = append(t.Rows, []Cell{countCell(c.Index), codeCell(test.ID), marked(textCell(string(test.Outcome)), outcomeMarks[test.Outcome])})
		}
		if c.CasesDropped > 0 {
			s.Text = append(s.Text, fmt.Sprintf("Of gate %d the evidence has left out %s.", c.Index, text.Count(c.CasesDropped, "test")))
		}
	}
	if len(t.Rows) > 0 {
		s.Tables = []Table{t}
	}
	return s
}

// testsData has a row for each test, and for a gate without tests a row of its own.
func testsData(g Gate) Table {
	t := Table{Columns: []string{"gate", "command", "gate_result", "test", "outcome", "message"}}
	for _, c := range g.Tests.Commands {
		word, _ := gateMark(c)
		first := []Cell{countCell(c.Index), textCell(c.Command), textCell(word)}
		for _, test := range c.Cases {
			t.Rows = append(t.Rows, append(first[:len(first):len(first)], textCell(test.ID), textCell(string(test.Outcome)), textCell(gatereport.Reason(test))))
		}
		if len(c.Cases) == 0 {
			t.Rows = append(t.Rows, append(first[:len(first):len(first)], absent, absent, absent))
		}
	}
	return t
}

func gateEnforced(g Gate) Section {
	m, e := g.Manifest, g.Environment
	network := "nothing"
	if m.Egress != nil && m.Egress.Level != "" {
		network = strings.TrimSpace(m.Egress.Level + " " + strings.Join(m.Egress.Allow, ", "))
	}
	return Section{Title: "What was enforced", Facts: facts(
		Fact{"Time limit of a gate", secondsOf(m.TimeoutCaps.TimeoutMS)}, Fact{"Memory", sizeOf(m.TimeoutCaps.MemoryBytes)}, Fact{"Disk", sizeOf(m.TimeoutCaps.DiskBytes)},
		Fact{"Processes and threads", countCell(m.TimeoutCaps.PIDs)}, Fact{"May reach", textCell(network)}, Fact{"Strict", textCell(yes(m.Mode.Strict))},
		Fact{"Claim grade", textCell(yes(m.Mode.ClaimGrade))}, Fact{"Protected paths", textCell(strings.Join(m.ProtectedPaths, ", "))},
		Fact{"Read-only paths", textCell(strings.Join(m.ReadOnlyPaths, ", "))}, Fact{"Image", textCell(e.Image)}, Fact{"Image locked", textCell(yes(e.ImageLocked))},
		Fact{"Engine", textCell(strings.TrimSpace(e.Engine + " " + e.Runtime))}, Fact{"Time zone and locale", textCell(strings.TrimSpace(e.Timezone + " " + e.Locale))},
	)}
}

func secondsOf(milliseconds int64) Cell {
	const perSecond = 1000
	if milliseconds <= 0 {
		return absent
	}
	return secondsCell(float64(milliseconds) / perSecond)
}

func sizeOf(bytes int64) Cell {
	if bytes <= 0 {
		return absent
	}
	return sizeCell(bytes)
}

func files(all []evidence.HashedFile) []Table {
	if len(all) == 0 {
		return nil
	}
	t := Table{Columns: []string{"File", "SHA-256"}}
	for _, f := range all {
		t.Rows = append(t.Rows, []Cell{codeCell(f.FilePath), codeCell(f.SHA256)})
	}
	return []Table{t}
}
