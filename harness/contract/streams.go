package contract

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// cutMark replaces the bytes of a stream that were left out.
const cutMark = "\n[... cut ...]\n"

// leastCapture is the smallest part of a stream that a run keeps, in bytes. A run puts its own
// mark where it cuts, so smaller limits are applied here.
const leastCapture = 4 << 10

// mostShown bounds a text in a message, in bytes.
const mostShown = 120

// quoted is a value for a message; empty for none.
func quoted(text string) string {
	if text == "" {
		return ""
	}
	return strict.Quoted(text)
}

// stream is one stream of a run.
type stream struct {
	name string
	// text is the part that the run kept, with invalid bytes replaced. It may contain the
	// run's own mark.
	text string
	// raw is the whole stream. It is nil if the run did not keep everything, or could not
	// read it again; unreadable then says why. The text alone does not distinguish an invalid
	// byte from the character that replaces it.
	raw        []byte
	unreadable string
	// bytes is the length of the whole stream.
	bytes int64
	// cut says that the stream is longer than its limit.
	cut bool
}

// stream returns one stream of a run, of which limit bytes are captured.
func (run *execution) stream(name, text string, bytes int64, truncated bool, limit policy.Size) stream {
	s := stream{name: name, text: text, bytes: bytes, cut: truncated || bytes > int64(limit)}
	switch {
	case s.cut:
	case !strings.ContainsRune(text, utf8.RuneError):
		s.raw = []byte(text)
	default:
		raw, err := fsx.Read(filepath.Join(run.record, name+".log"), int64(limit))
		if err == nil && int64(len(raw)) != bytes {
			err = fmt.Errorf("the record holds %d of its %d bytes", len(raw), bytes)
		}
		if err != nil {
			s.unreadable = fsx.Cause(err).Error()
			break
		}
		s.raw = raw
	}
	return s
}

// isText reports whether the stream is UTF-8, as far as it is known.
func (s stream) isText() bool {
	if s.raw != nil {
		return utf8.Valid(s.raw)
	}
	return !strings.ContainsRune(s.text, utf8.RuneError)
}

// captured is the text of the outcome: the whole stream, or within limit bytes its beginning
// and its end with a mark between them. If the mark leaves no room, it is the beginning alone.
// Shortened says that something is left out.
func (s stream) captured(limit int64) (text string, shortened bool) {
	if limit <= 0 {
		return "", s.bytes > 0
	}
	text = s.text
	if !s.cut && int64(len(text)) <= limit {
		return text, false
	}
	room, mark := int(limit)-len(cutMark), cutMark
	if room < len(cutMark) {
		room, mark = int(limit), ""
	}
	head, tail := min(room-room/2, len(text)), max(len(text)-room/2, 0)
	if mark == "" {
		head, tail = min(room, len(text)), len(text)
	}
	for head > 0 && head < len(text) && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail = max(tail, head); tail < len(text) && !utf8.RuneStart(text[tail]); {
		tail++
	}
	return text[:head] + mark + text[tail:], true // the run's own mark is in the middle
}

// compare returns the difference between the stream and the expectation, nil for none. Bytes
// are compared, except for line ends at the very end: a pattern may match the stream with them
// or without them. A stream that was cut always differs.
func (s stream) compare(want Stream) *Difference {
	d := &Difference{What: s.name, Problem: differs}
	shown := s.text
	if s.raw != nil {
		shown = string(s.raw)
	}
	switch {
	case want.Expected != nil:
		expected := trimEnd(*want.Expected)
		if s.raw != nil && expected == trimEnd(shown) {
			return nil
		}
		d.Expected, d.Got = firstDifference(expected, trimEnd(shown))
	case want.Pattern != nil:
		pattern, err := regexp.Compile(*want.Pattern) // the rules compiled it before
		if err == nil && s.raw != nil && (pattern.Match(s.raw) || pattern.MatchString(trimEnd(shown))) {
			return nil
		}
		d.Expected = "a match of " + text.Short(*want.Pattern, mostShown)
		d.Got = fmt.Sprintf("%q", text.Short(trimEnd(shown), mostShown))
		if s.raw != nil {
			d.Got = "none in " + d.Got
		}
	default:
		return nil
	}
	switch {
	case s.cut:
		d.Got += " (not all was captured)"
	case s.unreadable != "":
		d.Got += fmt.Sprintf(" (not UTF-8, and it could not be read again: %s)", s.unreadable)
	case !s.isText():
		d.Got += " (not UTF-8)"
	}
	return d
}

func trimEnd(text string) string { return strings.TrimRight(text, "\r\n") }

// firstDifference shows the first line in which two texts differ, of each; of a long line, the
// part that begins shortly before the difference.
func firstDifference(expected, got string) (string, string) {
	const before = 40
	a, b := strings.Split(expected, "\n"), strings.Split(got, "\n")
	i, both := 0, min(len(a), len(b))
	for i < both && a[i] == b[i] {
		i++
	}
	if i == len(a) && i == len(b) { // the same as far as it was captured
		i = 0
	}
	from := 0
	if i < both && max(len(a[i]), len(b[i])) > mostShown {
		same := 0
		for same < min(len(a[i]), len(b[i])) && a[i][same] == b[i][same] {
			same++
		}
		for from = max(0, same-before); from > 0 && !utf8.RuneStart(a[i][from]); {
			from--
		}
	}
	show := func(lines []string) string {
		switch {
		case i >= len(lines):
			return fmt.Sprintf("no line %d", i+1)
		case from == 0:
			return fmt.Sprintf("line %d: %q", i+1, text.Short(lines[i], mostShown))
		}
		return fmt.Sprintf("line %d from byte %d: %q", i+1, from+1, text.Short("…"+lines[i][from:], mostShown))
	}
	return show(a), show(b)
}
