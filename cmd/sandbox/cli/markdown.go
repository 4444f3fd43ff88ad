package cli

import (
	"strings"
	"unicode/utf8"
)

// plainText is a page of Markdown as plain text. It understands what the pages contain:
// headings, paragraphs, lists, tables, and blocks of code, which are not wrapped.
func plainText(source string, width int) string {
	var b strings.Builder
	var paragraph, header []string
	indent := ""
	flush := func() {
		if len(paragraph) > 0 {
			b.WriteString(hang(wrap(inline(strings.Join(paragraph, " ")), indent, width-len(indent)), indent))
		}
		paragraph, indent = nil, ""
	}
	code := false
	for line := range strings.Lines(source) {
		line = strings.TrimRight(line, "\n")
		trimmed := strings.TrimSpace(line)
		if !strings.HasPrefix(trimmed, "|") {
			header = nil
		}
		switch {
		case strings.HasPrefix(trimmed, "```"):
			flush()
			code = !code
		case code:
			b.WriteString(strings.TrimRight("    "+line, " ") + "\n")
		case trimmed == "":
			flush()
			b.WriteString("\n")
		case strings.HasPrefix(line, "<!--") || strings.HasPrefix(line, "!["): // a mark for tests, a picture
		case strings.HasPrefix(line, "#"):
			flush()
			b.WriteString(strings.ToUpper(inline(strings.TrimLeft(line, "# "))) + "\n")
		case strings.HasPrefix(trimmed, "|-"): // the line between the head of a table and its rows
		case strings.HasPrefix(trimmed, "|"):
			flush()
			cells := tableCells(trimmed)
			if header == nil {
				header = cells
				continue
			}
			b.WriteString(tableRow(header, cells, width))
		default:
			if strings.HasPrefix(trimmed, "- ") || numbered(trimmed) {
				flush()
				indent = "  "
			}
			paragraph = append(paragraph, trimmed)
		}
	}
	flush()
	return strings.TrimRight(b.String(), "\n") + "\n"
}

func numbered(line string) bool {
	number, _, ok := strings.Cut(line, ". ")
	return ok && number != "" && strings.Trim(number, "0123456789") == ""
}

func tableCells(line string) []string {
	const bar = "\x00"
	line = strings.ReplaceAll(strings.Trim(line, "|"), `\|`, bar)
	var cells []string
	for cell := range strings.SplitSeq(line, "|") {
		cells = append(cells, inline(strings.TrimSpace(strings.ReplaceAll(cell, bar, "|"))))
	}
	return cells
}

// tableRow is the first cell of a row, and below it the others: the last without its heading,
// because it is the meaning of the first.
func tableRow(header, cells []string, width int) string {
	text := wrap(cells[0], "", width)
	for i, cell := range cells[1:] {
		switch {
		case cell == "":
		case i+2 < len(cells) && i+1 < len(header):
			text += wrap(header[i+1]+": "+cell, "    ", width)
		default:
			text += wrap(cell, "    ", width)
		}
	}
	return text
}

// inline is a text without marks: a link is its text, and code stands for itself.
func inline(text string) string {
	var b strings.Builder
	for text != "" {
		before, rest, ok := strings.Cut(text, "](")
		open := strings.LastIndex(before, "[")
		_, after, closed := strings.Cut(rest, ")")
		if !ok || open < 0 || !closed {
			break
		}
		b.WriteString(before[:open] + before[open+1:])
		text = after
	}
	b.WriteString(text)
	return strings.NewReplacer("`", "", "**", "").Replace(b.String())
}

// hang indents the lines of a text after the first.
func hang(text, indent string) string {
	first, rest, more := strings.Cut(strings.TrimSuffix(text, "\n"), "\n")
	if !more {
		return text
	}
	return first + "\n" + indent + strings.ReplaceAll(rest, "\n", "\n"+indent) + "\n"
}

// wrap breaks a text at spaces into lines of at most width columns.
func wrap(text, indent string, width int) string {
	var b strings.Builder
	column := 0
	for word := range strings.FieldsSeq(text) {
		length := utf8.RuneCountInString(word)
		switch {
		case column == 0:
			b.WriteString(indent)
			column = len(indent)
		case column+1+length > width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += length
	}
	return b.String() + "\n"
}
