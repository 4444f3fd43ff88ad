package normalize

import (
	"bytes"
	"regexp"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// rule is one rule with what makes it exact and fast. RE2 cannot look around a match, so
// the bytes beside it are tested here.
type rule struct {
	evidence.Rule
	re *regexp.Regexp
	// need are the features without which no line matches; any are texts of which a
	// line has one. Both spare the expression.
	need feature
	any  [][]byte
	// left and right say whether a match may begin or end there; nil is anywhere.
	left, right func(line []byte, at int) bool
	// keeps says that the rule leaves the lines alone whose values matter, except at
	// their very beginning, where logs have their time.
	keeps bool
}

// compiled makes a rule ready.
func (r rule) compiled() rule {
	r.re = regexp.MustCompile(r.Pattern)
	return r
}

// literals are the texts of which a line must have one.
func literals(texts ...string) (all [][]byte) {
	for _, t := range texts {
		all = append(all, []byte(t))
	}
	return all
}

// mayMatch is the cheap test before the expression.
func (r *rule) mayMatch(line []byte, has feature) bool {
	if has&r.need != r.need {
		return false
	}
	for _, text := range r.any {
		if bytes.Contains(line, text) {
			return true
		}
	}
	return len(r.any) == 0
}

// matches are the places of a line that the rule is about, with their groups. keep says
// that the values of the line matter.
func (r *rule) matches(line []byte, keep bool) [][]int {
	all := r.re.FindAllSubmatchIndex(line, -1)
	kept := all[:0]
	for _, m := range all {
		switch {
		case r.left != nil && !r.left(line, m[0]), r.right != nil && !r.right(line, m[1]):
		case r.keeps && keep && m[0] > margin(line):
		default:
			kept = append(kept, m)
		}
	}
	return kept
}

// apply appends the line with all matches replaced to dst, and counts them.
func (r *rule) apply(dst, line []byte, keep bool) ([]byte, int) {
	from, all := 0, r.matches(line, keep)
	for _, m := range all {
		dst = append(dst, line[from:m[0]]...)
		dst = r.re.Expand(dst, []byte(r.Replace), line, m)
		from = m[1]
	}
	return append(dst, line[from:]...), len(all)
}

// margin is where the text of a line begins, after spaces and an opening bracket.
func margin(line []byte) int {
	return len(line) - len(bytes.TrimLeft(line, " \t[("))
}

func isWord(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b == '_' || b >= 0x80
}

func isDigit(b byte) bool { return b >= '0' && b <= '9' }

// before and after are the bytes beside a place, a space at the ends of the line.
func before(line []byte, at int) byte {
	if at <= 0 {
		return ' '
	}
	return line[at-1]
}

func after(line []byte, at int) byte {
	if at >= len(line) {
		return ' '
	}
	return line[at]
}

// wordBegins and wordEnds: no name or number goes on there.
func wordBegins(line []byte, at int) bool { return !isWord(before(line, at)) }
func wordEnds(line []byte, at int) bool   { return !isWord(after(line, at)) }

// pathBegins: what follows is not the end of a longer path or name.
func pathBegins(line []byte, at int) bool {
	b := before(line, at)
	return !isWord(b) && b != '.' && b != '-' && b != '/'
}

// stampBegins: neither a longer number, nor an index, nor a part of a name.
func stampBegins(line []byte, at int) bool {
	switch b := before(line, at); b {
	case ':', '.', '/', '-':
		return false
	case '[':
		return !isWord(before(line, at-1))
	default:
		return !isWord(b)
	}
}

func stampEnds(line []byte, at int) bool {
	b := after(line, at)
	return !isWord(b) && b != ':' && (b != '.' && b != '-' || !isWord(after(line, at+1)))
}

// amountBegins: a number that stands alone, not one of a name, path, version or quoted
// value.
func amountBegins(line []byte, at int) bool {
	switch before(line, at) {
	case ' ', '\t', '(', '=', ':', ',', '"', '<', '>', '~', '+', '|':
		return true
	case '[':
		return !isWord(before(line, at-1))
	}
	return false
}

// spaced: after a space, or at the beginning.
func spaced(line []byte, at int) bool {
	b := before(line, at)
	return b == ' ' || b == '\t'
}
