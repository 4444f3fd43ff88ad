package result

import (
	"bytes"
	"unicode/utf8"
)

// startPlain starts a traceback when l ends with the marker.
func (s *TracebackScanner) startPlain(l textLine) {
	prefix, ok := bytes.CutSuffix(l.text, tracebackMarker)
	if !ok || bytes.HasSuffix(prefix, innerGroupTitle) {
		return
	}
	indent := prefix[:indentLen(prefix)]
	if l.gap > 0 && len(indent) >= l.cut {
		return // its depth is not known
	}
	s.startBlock(blockPlain)
	s.indent = append(s.indent[:0], indent...)
	s.prefixed = len(indent) < len(prefix)
	_, _ = s.block.Write(tracebackMarker)
}

// plainLine handles a line inside of a traceback. It reports whether the line
// is used up, so that it cannot start another block.
func (s *TracebackScanner) plainLine(l textLine) bool {
	if s.prefixed && !s.framed {
		if depth, ok := frameDepth(l.text); ok {
			s.indent = append(s.indent[:0], l.text[:depth]...)
		}
	}
	rest, ok := bytes.CutPrefix(l.text, s.indent)
	if ok && indentLen(rest) > 0 {
		s.framed = true
		s.add(l)
		return true
	}
	s.kind = blockNone
	if !ok || !startsText(rest) || bytes.Equal(rest, tracebackMarker) || s.prefixed && !s.framed {
		return false
	}
	s.add(l)
	s.complete()
	return false // "Error: Traceback (…):" is the end of one and a start
}

// groupLine handles a line inside of a group: with a margin it belongs to it,
// and without one it ends it. It reports whether the line is used up.
func (s *TracebackScanner) groupLine(l textLine) bool {
	rest := l.text[indentLen(l.text):]
	if len(rest) == 0 || rest[0] != '|' && rest[0] != '+' {
		s.endGroup()
		return false
	}
	s.closed = l.gap == 0 && len(rest) > 1 && rest[0] == '+' && len(bytes.Trim(rest[1:], "-")) == 0
	s.add(l)
	return true
}

// endGroup ends an open block. A group whose last line closes it is complete.
func (s *TracebackScanner) endGroup() {
	if s.kind == blockGroup && s.closed {
		s.complete()
	}
	s.kind = blockNone
}

// startBlock opens an empty block in place of any other.
func (s *TracebackScanner) startBlock(kind blockKind) {
	s.block.reset()
	s.kind, s.prefixed, s.framed, s.closed = kind, false, false, false
}

// add appends a line to the open block. The dropped middle of a line is longer
// than what the block can keep after it, so it is dropped there as well and
// need only be counted.
func (s *TracebackScanner) add(l textLine) {
	if s.block.total > 0 {
		_, _ = s.block.Write([]byte{'\n'})
	}
	_, _ = s.block.Write(l.text[:l.cut])
	s.block.skip(l.gap)
	_, _ = s.block.Write(l.text[l.cut:])
}

// complete makes the open block the answer.
func (s *TracebackScanner) complete() {
	s.last, s.block = s.block, s.last
	s.found = true
}

// startsGroup reports whether l is the header of an outermost group.
func (l textLine) startsGroup() bool {
	return l.gap == 0 && bytes.Equal(l.text[indentLen(l.text):], groupMarker)
}

// indentLen counts the spaces and tabs at the start of b. Other white space,
// such as a form feed, does not indent.
func indentLen(b []byte) int {
	n := 0
	for n < len(b) && (b[n] == ' ' || b[n] == '\t') {
		n++
	}
	return n
}

// frameDepth returns the depth of the block that a frame line of CPython, which
// is indented by two spaces, belongs to.
func frameDepth(b []byte) (depth int, ok bool) {
	n := indentLen(b)
	if !bytes.HasPrefix(b[n:], []byte("File ")) || !bytes.HasSuffix(b[:n], []byte("  ")) {
		return 0, false
	}
	return n - 2, true
}

// startsText reports whether b starts with a character that is not white space.
func startsText(b []byte) bool {
	r, size := utf8.DecodeRune(b)
	return size > 0 && !isSpace(r)
}
