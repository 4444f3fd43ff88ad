package normalize

import "bytes"

// feature is something that a line has, found in one walk over it. It decides which
// rules need to look at the line at all.
type feature uint16

const (
	hasDigit  feature = 1 << iota
	hasClock          // a digit, a colon, two digits and no third one
	hasUnit           // a digit, perhaps a space, and a unit of time
	hasLong           // at least eight digits in a row
	hasSlash          // a slash
	hasHex            // 0x
	hasDashes         // at least four
	hasPID            // pid, in any case
	hasEscape         // control sequences
	hasLabel          // an equals sign or a colon
)

// classes have a bit for each byte that begins a test.
var classes = func() (c [256]bool) {
	for _, b := range []byte("0123456789:/-xiI=\x1b\x9b") {
		c[b] = true
	}
	return c
}()

// featuresOf walks over a line once.
func featuresOf(line []byte) (has feature) {
	dashes, row := 0, 0
	for i, b := range line {
		if !classes[b] {
			continue
		}
		switch b {
		case ':':
			has |= hasLabel
			if clockAt(line, i) {
				has |= hasClock
			}
		case '=':
			has |= hasLabel
		case '/':
			has |= hasSlash
		case '-':
			if dashes++; dashes == 4 {
				has |= hasDashes
			}
		case 'x':
			if before(line, i) == '0' {
				has |= hasHex
			}
		case 'i', 'I':
			if before(line, i)|0x20 == 'p' && after(line, i+1)|0x20 == 'd' {
				has |= hasPID
			}
		case 0x1b, 0x9b:
			has |= hasEscape
		default:
			has |= hasDigit
			if i == 0 || !isDigit(line[i-1]) {
				row = 0
			}
			if row++; row == 8 {
				has |= hasLong
			}
			if !isDigit(after(line, i+1)) && has&hasUnit == 0 && unitFollows(line[i+1:]) {
				has |= hasUnit
			}
		}
	}
	return has
}

// clockAt says that a colon is like that of a clock.
func clockAt(line []byte, colon int) bool {
	return isDigit(before(line, colon)) && isDigit(after(line, colon+1)) && isDigit(after(line, colon+2)) && !isDigit(after(line, colon+3))
}

// unitFollows says that a text behind a number begins with a unit of time, or with what
// can lie between a number and one: "m30s", "e-05s".
func unitFollows(text []byte) bool {
	text = bytes.TrimPrefix(text, []byte(" "))
	next := after(text, 1)
	switch after(text, 0) {
	case 's':
		return !isWord(next) || next == 'e'
	case 'n', 'u':
		return next == 's'
	case 'm':
		return next == 's' || next == 'i' || isDigit(next)
	case 'h':
		return next == 'o' || isDigit(next)
	case 'e':
		return next == '-' || next == '+' || isDigit(next)
	case 0xc2, 0xce: // the micro sign and the letter
		return next == 0xb5 || next == 0xbc
	}
	return false
}

// marks begin lines that tell a test by its name, or the value of an assertion.
var marks = literals("E   ", ">   ", "=== ", "--- ", "not ok", "✓", "✔", "√", "✗", "✖", "×", "●", "FAIL: ", "ERROR: ", "FAILED ", "ERROR ")

// words stand in lines whose values matter: those of assertions, and IDs of tests.
var words = literals("AssertionError", "assert ", "assert(", ".py::", "::test", "::Test", "] PASSED", "] FAILED", "] ERROR", "] SKIPPED", "] XFAIL", "] XPASS")

// pairs are words that tell together that two values are compared.
var pairs = [][2][]byte{
	{[]byte("xpected"), []byte("got")}, {[]byte("xpected"), []byte("actual")}, {[]byte("xpected"), []byte("eceived")},
	{[]byte("xpected"), []byte("but")}, {[]byte("xpected"), []byte(" to ")}, {[]byte("got"), []byte("want")},
}

// valuesMatter says that a line has names of tests or values of assertions: a duration or
// a date in it is what is tested, not when.
func valuesMatter(line []byte) bool {
	text := bytes.TrimLeft(line, " \t")
	for _, mark := range marks {
		if bytes.HasPrefix(text, mark) {
			return true
		}
	}
	// A test point of TAP: "ok 1", "ok - name".
	if rest, ok := bytes.CutPrefix(text, []byte("ok ")); ok && len(rest) > 0 && (isDigit(rest[0]) || rest[0] == '-') {
		return true
	}
	for _, word := range words {
		if bytes.Contains(line, word) {
			return true
		}
	}
	for _, pair := range pairs {
		if bytes.Contains(line, pair[0]) && bytes.Contains(line, pair[1]) {
			return true
		}
	}
	return false
}
