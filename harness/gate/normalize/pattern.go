package normalize

import (
	"bytes"
	"regexp"
	"strings"
)

// pattern is an expression with hints: texts in lower case of which every line that
// matches contains one. They save most lines from the expression, because Go's engine is
// slow where an expression does not begin with a literal text.
type pattern struct {
	*regexp.Regexp
	hints [][]byte
	// filter is a further test of the line in lower case; nil for none.
	filter func(lower []byte) bool
}

// compile takes the hints joined by "|"; none for an expression that is always tried.
func compile(hints, expression string) pattern {
	p := pattern{Regexp: regexp.MustCompile(expression)}
	for hint := range strings.SplitSeq(hints, "|") {
		if hint != "" {
			p.hints = append(p.hints, []byte(hint))
		}
	}
	return p
}

func (p pattern) mayMatch(lower []byte) bool {
	if p.filter != nil && !p.filter(lower) {
		return false
	}
	for _, hint := range p.hints {
		if bytes.Contains(lower, hint) {
			return true
		}
	}
	return len(p.hints) == 0
}

// lowered appends a line to dst with its ASCII letters in lower case.
func lowered(dst, line []byte) []byte {
	dst = append(dst, line...)
	for i, b := range dst {
		if 'A' <= b && b <= 'Z' {
			dst[i] = b + 'a' - 'A'
		}
	}
	return dst
}
