// Package logline reads logs of strangers line by line with bounded memory, and knows
// what a terminal would not show of them.
package logline

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"regexp"
	"unicode/utf8"
)

// ControlPattern (RE2) matches control sequences of terminals: colours and movements
// (CSI), titles and links (OSC), strings, other escapes, and an escape that begins
// nothing.
const ControlPattern = `(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-Z\\^-~]|\x1b`

var control = regexp.MustCompile(ControlPattern)

// spaceWithin is how far back from its end a piece is cut at a space.
const spaceWithin = 4 << 10

// Reserve is how many bytes a piece that goes on stays below the limit of a reader, so
// that a mark finds room in its line.
const Reserve = 64

// Piece is a line, or a part of one that is too long to be kept in memory.
type Piece struct {
	// Text has no line feed at its end. It is valid until the next call.
	Text []byte
	// LF says that a line feed came after it, More that its line goes on. With neither,
	// the text ended.
	LF, More bool
}

// Reader reads lines, and those longer than a limit in pieces. It is not safe for
// concurrent use.
type Reader struct {
	r    *bufio.Reader
	most int
	skip int
}

// NewReader reads pieces of less than most bytes; most is at least 8 KiB.
func NewReader(r io.Reader, most int) *Reader {
	return &Reader{r: bufio.NewReaderSize(r, most), most: most}
}

// Reset begins with another text.
func (l *Reader) Reset(r io.Reader) {
	l.r.Reset(r)
	l.skip = 0
}

// Next is the next piece; io.EOF after the last one. A line feed at the very end begins
// no further line.
func (l *Reader) Next() (Piece, error) {
	_, _ = l.r.Discard(l.skip) // what was peeked is there
	l.skip = 0
	for searched := 0; ; {
		text, _ := l.r.Peek(l.r.Buffered()) // what is buffered is there
		if end := bytes.IndexByte(text[searched:], '\n'); end >= 0 {
			l.skip = searched + end + 1
			return Piece{Text: text[:searched+end], LF: true}, nil
		}
		if len(text) >= l.most {
			l.skip = Border(text[:l.most-Reserve])
			return Piece{Text: text[:l.skip], More: true}, nil
		}
		searched = len(text)
		if _, err := l.r.Peek(len(text) + 1); err != nil {
			if !errors.Is(err, io.EOF) || len(text) == 0 {
				return Piece{}, err
			}
			// What was read before the error lies in the buffer, perhaps elsewhere.
			text, _ = l.r.Peek(len(text))
			l.skip = len(text)
			return Piece{Text: text}, nil
		}
	}
}

// Border is where a text is cut that goes on: after its last space if one is near, else
// between two characters.
func Border(text []byte) int {
	near := max(len(text)-spaceWithin, 1)
	if space := bytes.LastIndexByte(text[near:], ' '); space >= 0 {
		return near + space + 1
	}
	for back := 1; back < utf8.UTFMax && back < len(text); back++ {
		if b := text[len(text)-back]; utf8.RuneStart(b) {
			if !utf8.FullRune(text[len(text)-back:]) {
				return len(text) - back
			}
			break
		}
	}
	return len(text)
}

// Each calls visit with every line, without control sequences and carriage returns at
// its end. Of a longer line it has the first most bytes, and cut is true. The line is
// valid during the call.
func Each(r io.Reader, most int, visit func(line []byte, cut bool)) error {
	lines := NewReader(r, most)
	for inside := false; ; {
		piece, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !inside {
			visit(Plain(piece.Text), piece.More)
		}
		inside = piece.More
	}
}

// Plain is a line as a terminal shows it: without control sequences, and without
// carriage returns at its end. It may share the memory of line.
func Plain(line []byte) []byte {
	line = bytes.TrimRight(line, "\r")
	if bytes.IndexByte(line, 0x1b) >= 0 || bytes.Contains(line, []byte("\u009b")) {
		line = control.ReplaceAll(line, nil)
	}
	return line
}
