package result

import (
	"bytes"
	"io"
)

// feed writes s to a scanner piece by piece. A conversion of the whole string
// would copy it, and streams may be 100 MB (EX-038).
func feed(w io.Writer, s string) {
	buf := make([]byte, min(len(s), 32<<10))
	for len(s) > 0 {
		n := copy(buf, s)
		s = s[n:]
		_, _ = w.Write(buf[:n]) // the scanners of this package never fail
	}
}

// needle finds a fixed text in a stream that arrives in pieces of any size. The
// text must hold its first byte only once: a failed match can then start again
// only at the byte that broke it, and nothing that was read is read again.
// The zero value is ready, at the start of a stream.
type needle struct {
	// matched counts the bytes of the text that end the stream so far.
	matched int
}

// find looks for text in the next piece of the stream. It returns the number
// of bytes of p that it used up: up to the end of the text when found, all of p
// otherwise.
func (n *needle) find(text, p []byte) (used int, found bool) {
	i := 0
	for n.matched > 0 && i < len(p) {
		if p[i] != text[n.matched] {
			n.matched = 0
			break
		}
		n.matched++
		i++
		if n.matched == len(text) {
			n.matched = 0
			return i, true
		}
	}
	if i == len(p) {
		return i, false
	}
	if j := bytes.Index(p[i:], text); j >= 0 {
		return i + j + len(text), true
	}
	tail := p[max(i, len(p)-len(text)+1):]
	if k := bytes.LastIndexByte(tail, text[0]); k >= 0 && bytes.HasPrefix(text, tail[k:]) {
		n.matched = len(tail) - k
	}
	return len(p), false
}

// isSpace reports whether Python's \s matches r in a str pattern. It is not
// unicode.IsSpace, which leaves out U+001C to U+001F.
func isSpace(r rune) bool {
	switch {
	case r >= '\t' && r <= '\r', r >= 0x1c && r <= ' ':
		return true
	case r == 0x85, r == 0xa0, r == 0x1680:
		return true
	case r >= 0x2000 && r <= 0x200a:
		return true
	case r == 0x2028, r == 0x2029, r == 0x202f, r == 0x205f, r == 0x3000:
		return true
	}
	return false
}
