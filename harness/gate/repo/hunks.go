package repo

import (
	"bytes"
	"fmt"

	"github.com/pmezard/go-difflib/difflib"
)

const (
	// maxPairs bounds how many pairs of equal lines two texts may have, and maxLines how
	// many lines, for their difference to be looked for: what the library does grows with
	// the product of both. Other texts are shown as replaced.
	maxPairs = 100_000
	maxLines = 10_000
	// contextLines is how many equal lines are shown around a difference.
	contextLines = 3
)

// writeHunks writes the difference of two lists of lines that are not the same.
func writeHunks(to *bytes.Buffer, a, b []string) {
	// What is equal at both ends costs the library time and tells nothing.
	head := 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	before, after := min(head, contextLines), min(tail, contextLines)
	offset := head - before
	a, b = a[offset:len(a)-tail+after], b[offset:len(b)-tail+after]
	for _, group := range groups(a, b, before, after) {
		first, last := group[0], group[len(group)-1]
		fmt.Fprintf(to, "@@ -%s +%s @@\n", span(first.I1, last.I2, offset), span(first.J1, last.J2, offset))
		for _, code := range group {
			if code.Tag == 'e' {
				writeLines(to, ' ', a[code.I1:code.I2])
				continue
			}
			writeLines(to, '-', a[code.I1:code.I2])
			writeLines(to, '+', b[code.J1:code.J2])
		}
	}
}

// groups are the differences, with equal lines around them.
func groups(a, b []string, before, after int) [][]difflib.OpCode {
	if !costly(a, b) {
		return difflib.NewMatcher(a, b).GetGroupedOpCodes(contextLines)
	}
	var group []difflib.OpCode
	if before > 0 {
		group = append(group, difflib.OpCode{Tag: 'e', I1: 0, I2: before, J1: 0, J2: before})
	}
	group = append(group, difflib.OpCode{Tag: 'r', I1: before, I2: len(a) - after, J1: before, J2: len(b) - after})
	if after > 0 {
		group = append(group, difflib.OpCode{Tag: 'e', I1: len(a) - after, I2: len(a), J1: len(b) - after, J2: len(b)})
	}
	return [][]difflib.OpCode{group}
}

func costly(a, b []string) bool {
	if max(len(a), len(b)) > maxLines {
		return true
	}
	count := make(map[string]int, len(a))
	for _, line := range a {
		count[line]++
	}
	pairs := 0
	for _, line := range b {
		pairs += count[line]
	}
	return pairs > maxPairs
}

// span is a range of lines as a patch has it: the first one and how many, or the one
// before for none.
func span(from, to, offset int) string {
	switch n := to - from; n {
	case 1:
		return fmt.Sprint(offset + from + 1)
	case 0:
		return fmt.Sprintf("%d,0", offset+from)
	default:
		return fmt.Sprintf("%d,%d", offset+from+1, n)
	}
}

func writeLines(to *bytes.Buffer, mark byte, lines []string) {
	for _, line := range lines {
		to.WriteByte(mark)
		to.WriteString(line)
	}
}
