// Package logline reads untrusted logs line by line with bounded memory, and removes the
// control sequences of terminals.
package logline

import (
	"bufio"
	"bytes"
	"io"
	"regexp"
	"sync"
)

// ControlPattern (RE2) matches control sequences of terminals: colours and movements
// (CSI), titles and links (OSC), strings, other escapes, and an escape that begins
// nothing.
const ControlPattern = `(?:\x1b\[|\x{9b})[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-Z\\^-~]|\x1b`

var control = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(ControlPattern) })

// Reserve is how many bytes a piece that goes on stays below the limit, so that a mark
// and a line feed find room in its line.
const Reserve = 64

// Pieces calls visit with every line. A piece ends with its line feed, which only the
// last line may lack. A line of more than most bytes comes in several pieces, and more is
// true for all but the last of them. A piece is valid during the call. Errors are those of
// the reader and of visit.
func Pieces(r io.Reader, most int, visit func(piece []byte, more bool) error) error {
	more := false
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, min(most, 64<<10)), most)
	lines.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		end := bytes.IndexByte(data, '\n') + 1
		more = end == 0 && len(data) >= most
		switch {
		case more:
			end = Border(data[:most-Reserve])
		case end == 0 && atEOF:
			end = len(data)
		}
		if end == 0 {
			return 0, nil, nil
		}
		return end, data[:end], nil
	})
	for lines.Scan() {
		if err := visit(lines.Bytes(), more); err != nil {
			return err
		}
	}
	return lines.Err()
}

// Border is where a text that goes on is cut: after its last space, or else at its end.
func Border(text []byte) int {
	if space := bytes.LastIndexByte(text, ' '); space >= 0 {
		return space + 1
	}
	return len(text)
}

// Each calls visit with every line, as [Plain] returns it. Of a longer line it has the
// first most bytes at most, and cut is true. The line is valid during the call.
func Each(r io.Reader, most int, visit func(line []byte, cut bool)) error {
	inside := false
	return Pieces(r, most, func(piece []byte, more bool) error {
		if !inside {
			visit(Plain(piece), more)
		}
		inside = more
		return nil
	})
}

// Plain is a line without control sequences, and without the line feed and carriage
// returns at its end. It may share the memory of line.
func Plain(line []byte) []byte {
	line = bytes.TrimRight(line, "\r\n")
	if bytes.IndexByte(line, 0x1b) >= 0 || bytes.Contains(line, []byte("\u009b")) {
		line = control().ReplaceAll(line, nil)
	}
	return line
}
