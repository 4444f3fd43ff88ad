package report

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // for the page
	"encoding/base64"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/internal/plot"
)

//go:embed page.html.tmpl
var pageText string

//go:embed page.css
var pageStyle string

//go:embed page.js
var pageScript string

var page = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"line": line, "lines": block, "rows": func(t Table) [][]Cell { rows, _ := head(t.Rows, maxRows); return rows },
		"leftRows": func(t Table) string { return leftOut(len(t.Rows)-min(len(t.Rows), maxRows), "row") },
		"sortKey":  sortKey, "leftBlocks": func(b []Block) string { return leftOut(len(b)-min(len(b), maxBlocks), "text") },
		"blocks": func(b []Block) []Block { shown, _ := head(b, maxBlocks); return shown },
		"facts":  func(f []Fact) []Fact { shown, _ := head(f, maxFacts); return shown },
		"long":   func(c Cell) bool { return len(c.Text) > maxShort },
		"id":     func(i int) string { return "part-" + strconv.Itoa(i+1) },
	}).Parse(pageText))
})

// maxShort is the length of a text that stays on one line in a table.
const maxShort = 64

// sortKey is what the script sorts a cell by; empty for the text itself.
func sortKey(c Cell) string {
	switch {
	case c.Number != nil:
		return digits(*c.Number)
	case c.Text == absent.Text:
		return "none"
	}
	return ""
}

// HTML is the document as one file that needs no other: no network, no font, no script but its own.
// Its content security policy permits exactly its own style and script, by their hashes.
func (d Document) HTML() []byte {
	style, script := plot.CSS+pageStyle, strings.TrimSpace(pageScript)
	var out bytes.Buffer
	err := page().Execute(&out, struct {
		Document
		Sections []Section
		Policy   string
		Style    template.CSS
		Script   template.JS
	}{
		d, d.shown(), fmt.Sprintf("default-src 'none'; style-src %s; script-src %s; base-uri 'none'; form-action 'none'", source(style), source(script)),
		template.CSS(style), template.JS(script), //nolint:gosec // both are files of this package
	})
	if err != nil {
		panic(err) // the template fits these types
	}
	return out.Bytes()
}

// source is a text as a source of a content security policy.
func source(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// shown are the sections with content.
func (d Document) shown() (sections []Section) {
	for _, s := range d.Sections {
		if !s.empty() {
			sections = append(sections, s)
		}
	}
	return sections
}
