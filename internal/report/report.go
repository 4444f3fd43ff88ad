// Package report makes documents of batches, sweeps, gates and runs for people: plain data first
// ([Document]), and then one file of HTML, Markdown or CSV. Everything is pure: equal facts give
// equal bytes, and no time of writing is in them.
//
// All texts are untrusted: names, output, tracebacks, paths. The writers shorten them, make visible
// what would hide or reorder text, and never let them become markup, script or a formula.
package report

import (
	"fmt"
	"html/template"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/internal/terminal"
	"github.com/evalbox/evalbox/internal/text"
)

// Bounds of a document. What exceeds them is left out, and counted.
const (
	maxRows   = 1000    // of a table, apart from that of the CSV
	maxCell   = 300     // characters of a cell
	maxBlock  = 6 << 10 // bytes of a block
	maxBlocks = 40      // of a section
	maxFacts  = 60      // of a section
)

// A Document is a report.
type Document struct {
	// Kind is what the report is about, such as "Batch", and Title its name.
	Kind, Title string
	// Lead is a sentence with the outcome, and Mark whether that is good.
	Lead     string
	Mark     Mark
	Sections []Section
	// Data is the table of the CSV, with every row and all digits.
	Data Table
}

// A Section is a part of a document. Whatever is empty is left out; so is a section that is empty.
type Section struct {
	Title string
	// Text are paragraphs.
	Text   []string
	Facts  []Fact
	Plots  []template.HTML // of package plot
	Tables []Table
	// Blocks are texts of programs. Folded says that the reader opens them.
	Blocks []Block
	Folded bool
}

func (s Section) empty() bool {
	return len(s.Text)+len(s.Facts)+len(s.Plots)+len(s.Tables)+len(s.Blocks) == 0
}

// A Fact is a value with its name.
type Fact struct {
	Name  string
	Value Cell
}

// A Block is a text with several lines, such as a traceback.
type Block struct{ Title, Text string }

// A Table has a cell for each column in each row.
type Table struct {
	Title   string
	Columns []string
	Rows    [][]Cell
}

// A Mark says how a reader is to take a value.
type Mark int

const (
	Plain Mark = iota
	Good
	Bad
	Warning
)

// String is the class of the mark in [Document.HTML].
func (m Mark) String() string {
	switch m {
	case Good:
		return "good"
	case Bad:
		return "bad"
	case Warning:
		return "warning"
	case Plain:
	}
	return "plain"
}

// A Cell is a value. Number, if not nil, is what it is sorted by.
type Cell struct {
	Text   string
	Number *float64
	Mark   Mark
	// Spark is a small plot after the text.
	Spark template.HTML
	// Code says that the text is an ID, a hash or a path.
	Code bool
}

// absent is the cell of a missing value.
var absent = Cell{Text: "–"}

func textCell(s string) Cell {
	if s == "" {
		return absent
	}
	return Cell{Text: s}
}

func codeCell(s string) Cell {
	c := textCell(s)
	c.Code = s != ""
	return c
}

func marked(c Cell, m Mark) Cell {
	c.Mark = m
	return c
}

// numberCell is a number with the digits that a reader compares.
func numberCell(v *float64) Cell {
	if v == nil {
		return absent
	}
	return Cell{Text: strconv.FormatFloat(*v, 'g', 6, 64), Number: v}
}

func countCell[N ~int | ~int64](n N) Cell {
	return Cell{Text: strconv.FormatInt(int64(n), 10), Number: new(float64(n))}
}

func sizeCell(bytes int64) Cell {
	return Cell{Text: text.Size(bytes), Number: new(float64(bytes))}
}

func secondsCell(seconds float64) Cell {
	return Cell{Text: text.Seconds(seconds), Number: new(seconds)}
}

// facts leaves out those without a value.
func facts(all ...Fact) []Fact {
	var kept []Fact
	for _, f := range all {
		if f.Value.Text != "" && f.Value.Text != absent.Text {
			kept = append(kept, f)
		}
	}
	return kept
}

// head returns the first elements, and how many are left out.
func head[T any](all []T, most int) (shown []T, left int) {
	return all[:min(len(all), most)], max(len(all)-most, 0)
}

// leftOut says how many are not shown.
func leftOut(n int, noun string) string {
	if n == 0 {
		return ""
	}
	return "Left out: " + strings.Replace(text.Count(n, noun), " ", " further ", 1) + "."
}

// line is an untrusted text on one line, bounded.
func line(s string) string { return lineOf(s, maxCell) }

func lineOf(s string, most int) string {
	const bytes = 4 // of a character at most
	return text.Fit(terminal.Line(text.OneLine(text.Short(s, bytes*most))), most)
}

// block is an untrusted text with lines. The middle of a long one is left out.
func block(s string) string {
	if len(s) > maxBlock {
		const half = maxBlock / 2
		first, last := text.Short(s, half), s[len(s)-half:]
		if at := strings.IndexByte(last, '\n'); at >= 0 {
			last = last[at+1:]
		}
		s = fmt.Sprintf("%s\n[… %d bytes are left out …]\n%s", strings.TrimSuffix(first, "…"), len(s)-len(first)-len(last), last)
	}
	return terminal.Text(strings.Trim(s, "\r\n"))
}
