package report

import (
	"fmt"
	"strings"
)

// Markdown is the document for a page that renders Markdown. Plots are not in it. A text with a
// character that could be markup is a code span, in which nothing is markup, HTML, a link or a mention.
func (d Document) Markdown() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s: %s\n\n", words(d.Kind), words(d.Title))
	paragraph(&b, d.Lead)
	for _, s := range d.shown() {
		if len(s.Text)+len(s.Facts)+len(s.Tables)+len(s.Blocks) == 0 {
			continue // plots alone
		}
		fmt.Fprintf(&b, "## %s\n\n", words(s.Title))
		for _, p := range s.Text {
			paragraph(&b, p)
		}
		shown, _ := head(s.Facts, maxFacts)
		for _, f := range shown {
			fmt.Fprintf(&b, "- %s: %s\n", words(f.Name), f.Value.markdown())
		}
		if len(shown) > 0 {
			b.WriteString("\n")
		}
		for _, t := range s.Tables {
			t.markdown(&b)
		}
		texts, left := head(s.Blocks, maxBlocks)
		for _, each := range texts {
			fmt.Fprintf(&b, "%s\n\n%s\n\n", words(each.Title), fenced(block(each.Text)))
		}
		paragraph(&b, leftOut(left, "text"))
	}
	return []byte(strings.TrimRight(b.String(), "\n") + "\n")
}

func (t Table) markdown(b *strings.Builder) {
	if t.Title != "" {
		fmt.Fprintf(b, "%s\n\n", words(t.Title))
	}
	rule := ""
	for _, name := range t.Columns {
		b.WriteString("| " + cell(words(name)) + " ")
		rule += "|---"
	}
	b.WriteString("|\n" + rule + "|\n")
	rows, left := head(t.Rows, maxRows)
	for _, row := range rows {
		for _, c := range row {
			b.WriteString("| " + cell(c.markdown()) + " ")
		}
		b.WriteString("|\n")
	}
	b.WriteString("\n")
	paragraph(b, leftOut(left, "row"))
}

func (c Cell) markdown() string {
	switch shown := line(c.Text); {
	case c.Code:
		return span(shown)
	case c.Mark == Bad || c.Mark == Warning:
		if shown = words(c.Text); !strings.HasPrefix(shown, "`") {
			return "**" + shown + "**"
		}
		return shown
	}
	return words(c.Text)
}

func paragraph(b *strings.Builder, s string) {
	if s != "" {
		b.WriteString(words(s) + "\n\n")
	}
}

// words is a text as it is if nothing in it can be markup, and else a code span.
func words(s string) string {
	s = line(s)
	if strings.ContainsAny(s, "\\`*_{}[]<>#|~@&$^") || strings.Contains(s, "://") || strings.Contains(strings.ToLower(s), "www.") || listItem(s) {
		return span(s)
	}
	return s
}

// listItem reports whether a text would begin a list or underline a heading.
func listItem(s string) bool {
	after := strings.TrimLeft(s, "0123456789")
	return strings.HasPrefix(s, "- ") || strings.HasPrefix(s, "+ ") || s != "" && strings.Trim(s, "-= ") == "" ||
		after != s && (strings.HasPrefix(after, ". ") || strings.HasPrefix(after, ") "))
}

// span is a code span.
func span(s string) string {
	fence := strings.Repeat("`", longest(s)+1)
	if strings.HasPrefix(s, "`") || strings.HasSuffix(s, "`") {
		s = " " + s + " "
	}
	return fence + s + fence
}

func fenced(s string) string {
	fence := strings.Repeat("`", max(longest(s)+1, 3))
	return fence + "text\n" + s + "\n" + fence
}

// longest is the length of the longest run of backticks.
func longest(s string) (most int) {
	run := 0
	for _, r := range s {
		if run++; r != '`' {
			run = 0
		}
		most = max(most, run)
	}
	return most
}

// cell is Markdown as a cell of a table, where a bar ends the cell, also within code. Renderers differ
// about two backslashes, so that a bar after one becomes a broken bar.
func cell(markdown string) string {
	return strings.ReplaceAll(strings.ReplaceAll(markdown, `\|`, `\¦`), "|", `\|`)
}
