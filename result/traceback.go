package result

import "bytes"

// maxTraceback bounds the raw bytes that are kept of one traceback, and of one
// line of stderr.
const maxTraceback = 256 << 10

// Marker texts of CPython. A group is printed with its own header and a margin
// on each line; the header of the outermost group is the only one with a plus.
var (
	tracebackMarker = []byte("Traceback (most recent call last):")
	groupMarker     = []byte("+ Exception Group Traceback (most recent call last):")
	innerGroupTitle = []byte("Exception Group ")
)

// ExtractTraceback returns the last complete Python traceback of stderr
// (EX-012), without a newline at its end. ok is false without one.
//
// A traceback starts at "Traceback (most recent call last):" at the end of a
// line, goes on with lines that are indented deeper, and ends with the exception
// line: the first line that is indented like the marker. Only that first line of
// a message is part of it, since further ones look like any other output. A block
// that ends in any other way, for example because the program was killed while it
// printed, is not complete. An exception group is
// returned whole, with its margin, when its closing line is there.
//
// A marker after other text on its line ("worker 3: Traceback …") counts only
// with an indented line after it; otherwise a frame line that carries the same
// prefix would pass for the exception. The block is then as deep as its first
// frame says, or as its line if that is not a frame of CPython.
//
// A carriage return before a newline is dropped. Of a traceback longer than
// 256 KiB the head and the tail are kept, as [HeadTail] does. Time is linear.
func ExtractTraceback(stderr string) (traceback string, ok bool) {
	var s TracebackScanner
	feed(&s, stderr)
	return s.Traceback()
}

// TracebackScanner is [ExtractTraceback] for a stream: write stderr to it in
// pieces of any size and ask at any time. The pieces do not change the answer.
// It keeps about 1 MiB at most, however long the stream and its lines are.
//
// The zero value is ready to use. It is not safe for concurrent use.
type TracebackScanner struct {
	marker needle
	seen   bool

	// line is the unfinished line.
	line HeadTail

	kind blockKind
	// block is the open block, last the last complete one.
	block, last HeadTail
	found       bool

	// Of an open plain block: the white space before its marker and exception
	// line; whether text stood before the marker; whether a line came after it.
	indent   []byte
	prefixed bool
	framed   bool
	// Of an open group: whether its last line closes it.
	closed bool
}

// blockKind is the kind of the open block.
type blockKind uint8

const (
	blockNone  blockKind = iota
	blockPlain           // a traceback
	blockGroup           // the traceback of an exception group
)

// Write scans the next piece of stderr. It returns len(p) and never an error.
func (s *TracebackScanner) Write(p []byte) (int, error) {
	n := len(p)
	if !s.seen {
		_, s.seen = s.marker.find(tracebackMarker, p)
	}
	s.line.limit, s.block.limit, s.last.limit = maxTraceback, maxTraceback, maxTraceback
	for {
		if s.kind == blockNone && s.line.total == 0 {
			p = skipLines(p)
		}
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			_, _ = s.line.Write(p)
			return n, nil
		}
		if s.line.total == 0 && i <= maxTraceback {
			s.endLine(textLine{text: p[:i], cut: i}) // the usual case: no copy
		} else {
			_, _ = s.line.Write(p[:i])
			s.flush()
		}
		p = p[i+1:]
	}
}

// skipLines drops the whole lines at the start of p that do not hold the marker
// and so cannot start a block. Nearly all output is dropped here, much faster
// than line by line.
func skipLines(p []byte) []byte {
	end := bytes.Index(p, tracebackMarker)
	if end < 0 {
		end = len(p)
	}
	return p[bytes.LastIndexByte(p[:end], '\n')+1:]
}

// SeenMarker reports whether the marker stands anywhere in the stream so far,
// as the error rule asks (EX-013): also in the middle of a line.
func (s *TracebackScanner) SeenMarker() bool { return s.seen }

// Traceback returns the last complete traceback as if the stream ended here.
// More may be written after it.
func (s *TracebackScanner) Traceback() (traceback string, ok bool) {
	if s.kind != blockNone {
		// The end of the stream ends a line and a group. On a copy, since the
		// stream may go on.
		end := s.clone()
		if end.line.total > 0 {
			end.flush()
		}
		end.endGroup()
		s = end
	}
	if !s.found {
		return "", false
	}
	return s.last.Text(), true
}

// clone returns an independent copy.
func (s *TracebackScanner) clone() *TracebackScanner {
	c := *s
	c.line, c.block, c.last = s.line.clone(), s.block.clone(), s.last.clone()
	c.indent = bytes.Clone(s.indent)
	return &c
}

// textLine is one line without its newline. Of a line longer than maxTraceback
// it holds the head text[:cut] and the tail text[cut:], with gap bytes between
// them dropped.
type textLine struct {
	text []byte
	cut  int
	gap  int64
}

// flush ends the unfinished line.
func (s *TracebackScanner) flush() {
	s.line.straighten()
	l := textLine{text: s.line.buf, cut: s.line.headLen()}
	l.gap = s.line.total - int64(len(l.text))
	s.endLine(l)
	s.line.reset()
}

// endLine handles one whole line.
func (s *TracebackScanner) endLine(l textLine) {
	l.text = bytes.TrimSuffix(l.text, []byte{'\r'})
	l.cut = min(l.cut, len(l.text))
	if s.kind == blockNone && !bytes.HasSuffix(l.text, tracebackMarker) {
		return
	}
	switch {
	case l.startsGroup():
		s.endGroup()
		s.startBlock(blockGroup)
		s.add(l)
		return
	case s.kind == blockGroup && s.groupLine(l), s.kind == blockPlain && s.plainLine(l):
		return
	}
	s.startPlain(l)
}
