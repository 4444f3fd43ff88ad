package report

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
)

const (
	// maxRows bounds each table and list, maxCell a text in it in bytes. CI systems show a
	// mebibyte.
	maxRows = 50
	maxCell = 500
)

// Markdown is the evidence as a page: the verdict, the gates, the findings, the failing
// tests and the hashes. Each part shows 50 entries at most and counts the rest. All text of
// the tests is in code spans, where nothing is markup.
func Markdown(in Input) []byte {
	var b strings.Builder
	v := in.Verdict
	fmt.Fprintf(&b, "## Gate %s: %s\n\n", code(cmp.Or(in.Manifest.Name, "gate")), code(string(v.Status)))
	if v.Status != evidence.Pass {
		fmt.Fprintf(&b, "Stopped for %s.\n\n", code(string(v.StopReason)))
	}
	comparisons(&b, in)
	gatesTable(&b, in)
	findingsList(&b, v)
	failingList(&b, in.Tests)
	hashesTable(&b, in)
	return []byte(b.String())
}

// comparisons says what a pass was compared with.
func comparisons(b *strings.Builder, in Input) {
	if in.Verdict.Status != evidence.Pass {
		return // a difference is a finding
	}
	if n := in.Manifest.Mode.Repeats; n > 1 {
		fmt.Fprintf(b, "Run %d times, with the same logs, tests and outputs.\n\n", n)
	}
	if in.Manifest.Baseline == "" {
		return
	}
	before := 0
	for _, c := range in.Tests.Commands {
		if c.Baseline != nil {
			before += c.Baseline.Counts.Value().Broken()
		}
	}
	fmt.Fprintf(b, "Compared with the baseline %s: failing tests there: %d, now: %d.\n\n",
		code(cmp.Or(in.Manifest.Repo.BaselineCommit, in.Manifest.Repo.BaselineRev)), before, in.Verdict.EvidenceSummary.Counts.Broken())
}

func gatesTable(b *strings.Builder, in Input) {
	if len(in.Tests.Commands) == 0 {
		if n := len(in.Manifest.GateCommands); n > 0 {
			fmt.Fprintf(b, "None of the %d gates ran.\n\n", n)
		} else {
			fmt.Fprint(b, "There are no gates.\n\n")
		}
		return
	}
	fmt.Fprint(b, "| | gate | ended | expected | tests |\n|---|---|---|---|---|\n")
	for _, c := range head(in.Tests.Commands) {
		sign := "❌"
		if met(c) {
			sign = "✅"
		}
		tests := CountsText(c.Counts.Value())
		if c.Kind == evidence.KindCheck && tests == "" {
			tests = "check"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %d | %s |\n", sign, cell(c.Command), cell(ended(c)), c.ExpectExit, cmp.Or(tests, "none"))
	}
	fmt.Fprint(b, "\n")
	rest(b, len(in.Tests.Commands))
}

func findingsList(b *strings.Builder, v evidence.Verdict) {
	list(b, "Findings", v.Findings, func(f evidence.Finding) {
		fmt.Fprint(b, code(string(f.Reason)))
		if f.Gate > 0 {
			fmt.Fprintf(b, " in gate %d", f.Gate)
		}
		fmt.Fprintf(b, ": %s", code(f.Detail))
	})
}

func failingList(b *strings.Builder, tests evidence.Tests) {
	var failing []evidence.Case
	for _, c := range tests.Commands {
		for _, one := range c.Cases {
			if one.Outcome == evidence.Failed || one.Outcome == evidence.Errored {
				failing = append(failing, one)
			}
		}
	}
	list(b, "Failing tests", failing, func(c evidence.Case) {
		fmt.Fprint(b, code(c.ID))
		if first := firstLine(c.Message); first != "" {
			fmt.Fprintf(b, ": %s", code(first))
		}
	})
}

// list writes a section with an item for each value, if there are values.
func list[T any](b *strings.Builder, title string, all []T, item func(T)) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "### %s\n\n", title)
	for _, one := range head(all) {
		fmt.Fprint(b, "- ")
		item(one)
		fmt.Fprint(b, "\n")
	}
	fmt.Fprint(b, "\n")
	rest(b, len(all))
}

func hashesTable(b *strings.Builder, in Input) {
	fmt.Fprint(b, "### Evidence\n\n| | |\n|---|---|\n")
	commit := in.Manifest.Repo.Commit
	if commit != "" && in.Manifest.Repo.Dirty {
		commit += ", with changes"
	}
	for _, row := range [][2]string{
		{"wish", in.Verdict.WishSHA256},
		{"evidence.manifest", in.Verdict.ManifestSHA256},
		{"behavior", in.Verdict.BehaviorHash},
		{"image", in.Manifest.Toolchain.ImageID},
		{"commit", commit},
	} {
		if row[1] != "" {
			fmt.Fprintf(b, "| %s | %s |\n", row[0], cell(row[1]))
		}
	}
}

func head[T any](all []T) []T { return all[:min(maxRows, len(all))] }

// rest counts the entries that are not shown.
func rest(b *strings.Builder, n int) {
	if n > maxRows {
		fmt.Fprintf(b, "… and %d more\n\n", n-maxRows)
	}
}

// code is an untrusted text as a code span of one line, in which nothing is markup, HTML, a
// link or a mention.
func code(untrusted string) string {
	span := text.Short(text.OneLine(harmless(untrusted)), maxCell)
	if span == "" {
		return ""
	}
	longest, run := 0, 0
	for _, r := range span {
		if run++; r != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	if strings.HasPrefix(span, "`") || strings.HasSuffix(span, "`") {
		span = " " + span + " "
	}
	return fence + span + fence
}

// cell is a text as a code span in a table, where a bar ends the cell unless a backslash
// is before it, also within code. Renderers differ about two backslashes, so that a bar
// after one becomes a broken bar.
func cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(code(text), `\|`, `\¦`), "|", `\|`)
}
