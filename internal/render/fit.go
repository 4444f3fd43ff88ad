package render

import (
	"slices"
	"strings"
)

const (
	// gap is the number of columns between two cells of a table.
	gap = 2
	// leastCell is the width to which cells are cut before anything else gives way.
	leastCell = 8
)

// Fit cuts the cells of a table so that no row is wider than a terminal with width columns. The
// widest cells are cut first, the first column last. Cells are harmless text on one line. A width
// of 0 or less cuts nothing.
func Fit(rows [][]string, width int) [][]string {
	if width <= 0 || len(rows) == 0 {
		return rows
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], columnsOf(cell))
		}
	}
	total := gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for least := leastCell; total > width && least > 0; {
		widest := 0 // a column beside the first one
		for i, w := range widths {
			if i > 0 && (widest == 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest == 0 || widths[widest] <= least {
			least--
			if first := widths[0]; first > max(least, width/2) {
				widths[0]--
				total--
			}
			continue
		}
		widths[widest]--
		total--
	}
	fitted := make([][]string, len(rows))
	for r, row := range rows {
		fitted[r] = slices.Clone(row)
		for i, cell := range row {
			fitted[r][i] = cut(cell, widths[i])
		}
	}
	return fitted
}

// Cut cuts one line of harmless text to a terminal with width columns, as [Fit] does.
func Cut(line string, width int) string {
	if width <= 0 {
		return line
	}
	return cut(line, width)
}

// cut returns at most width columns of a cell; "…" replaces the rest.
func cut(cell string, width int) string {
	if columnsOf(cell) <= width {
		return cell
	}
	var b strings.Builder
	left := width - 1
	for _, r := range cell {
		if left -= wide(r); left < 0 {
			break
		}
		b.WriteRune(r)
	}
	return b.String() + "…"
}

// columnsOf is the width of text at a terminal.
func columnsOf(text string) (n int) {
	for _, r := range text {
		n += wide(r)
	}
	return n
}

// wide is the width of a character, or more: from the first letters on that are twice as wide, all
// count twice.
func wide(r rune) int {
	if r >= 0x1100 && r != '…' {
		return 2
	}
	return 1
}
