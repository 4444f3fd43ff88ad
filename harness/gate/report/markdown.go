package report

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"sync"
	"text/template"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/text"
)

const (
	// maxRows bounds each table and list, maxCell a text in it in bytes. CI systems show a
	// mebibyte.
	maxRows = 50
	maxCell = 500
)

// page is the template of [Markdown]. All untrusted text goes through code or cell.
var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"cell": cell, "code": code, "counts": CountsText, "ended": ended, "reason": Reason, "met": Met,
	}).Parse(pageText))
})

const pageText = `## Gate {{code .Name}}: {{code .Verdict.Status}}

{{if ne .Verdict.Status "PASS"}}Stopped for {{code .Verdict.StopReason}}.

{{else}}{{with .Manifest.Mode.Repeats}}{{if gt . 1}}Run {{.}} times, with the same logs, tests and outputs.

{{end}}{{end}}{{if .Manifest.Baseline}}Compared with the baseline {{code .Base}}: failing tests there: {{.Before}}, now: {{.Verdict.EvidenceSummary.Counts.Broken}}.

{{end}}{{end}}{{with .Gates.Rows}}| | gate | ended | expected | tests |
|---|---|---|---|---|
{{range .}}| {{if met .}}✅{{else}}❌{{end}} | {{cell .Command}} | {{cell (ended .)}} | {{.ExpectExit}} | {{or (counts .Counts.Value) (and (eq .Kind "check") "check") "none"}} |
{{end}}
{{else}}{{with .Manifest.GateCommands}}None of the {{len .}} gates ran.{{else}}There are no gates.{{end}}

{{end}}{{template "more" .Gates}}{{with .Failing.Rows}}### Failing tests

{{range .}}- {{code .ID}}{{with reason .}}: {{code .}}{{end}}
{{end}}
{{end}}{{template "more" .Failing}}{{with .Findings.Rows}}### Findings

{{range .}}- {{code .Reason}}{{with .Gate}} in gate {{.}}{{end}}: {{code .Detail}}
{{end}}
{{end}}{{template "more" .Findings}}{{with .Warnings.Rows}}### Warnings

{{range .}}- {{code .Detail}}
{{end}}
{{end}}{{template "more" .Warnings}}{{with .Follow.Rows}}As a result:{{range $i, $f := .}}{{if $i}},{{end}} {{code .Reason}}{{with .Gate}} in gate {{.}}{{end}}{{end}}

{{end}}{{template "more" .Follow}}### Evidence

| | |
|---|---|
{{range .Hashes}}{{if index . 1}}| {{index . 0}} | {{cell (index . 1)}} |
{{end}}{{end}}{{define "more"}}{{with .More}}… and {{.}} more

{{end}}{{end}}`

// list is the first values of a list, and the number of the others.
type list[T any] struct {
	Rows []T
	More int
}

func head[T any](all []T) list[T] {
	rows := all[:min(maxRows, len(all))]
	return list[T]{rows, len(all) - len(rows)}
}

// Markdown is the evidence as a page: the verdict, the number of runs and the baseline of a
// pass, the gates, the failing tests, the findings, the warnings, what follows, and the hashes. Each part shows 50 entries
// at most and counts the rest. All text of the tests is in code spans, where nothing is
// markup.
func Markdown(in Input) []byte {
	m, v := in.Manifest, in.Verdict
	before := 0
	var failing []evidence.Case
	for _, c := range in.Tests.Commands {
		if c.Baseline != nil {
			before += c.Baseline.Counts.Value().Broken()
		}
		failing = append(failing, Broken(c)...)
	}
	causes, follow := Causes(v, in.Tests)
	commit := m.Repo.Commit
	if commit != "" && m.Repo.Dirty {
		commit += ", with changes"
	}
	var out bytes.Buffer
	err := page().Execute(&out, struct {
		Input
		Name, Base string
		Before     int
		Gates      list[evidence.CommandTests]
		Findings   list[evidence.Finding]
		Warnings   list[evidence.Finding]
		Follow     list[evidence.Finding]
		Failing    list[evidence.Case]
		Hashes     [][2]string
	}{
		in, cmp.Or(m.Name, "gate"), cmp.Or(m.Repo.BaselineCommit, m.Repo.BaselineRev), before, head(in.Tests.Commands), head(causes), head(v.Warnings), head(follow), head(failing),
		[][2]string{{"wish", v.WishSHA256}, {"evidence.manifest", v.ManifestSHA256}, {"behavior", v.BehaviorHash}, {"image", m.Toolchain.ImageID}, {"commit", commit}},
	})
	if err != nil {
		panic(err) // the template fits these types
	}
	return out.Bytes()
}

// code is an untrusted text as a code span of one line, in which nothing is markup, HTML, a
// link or a mention.
func code(untrusted any) string {
	span := text.Short(text.OneLine(harmless(fmt.Sprint(untrusted))), maxCell)
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
