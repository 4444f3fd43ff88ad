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

// cutMark stands where bytes of a stream were left out.
const cutMark = "\n[... cut ...]\n"

// leastCapture is what a run keeps of each stream at least, in bytes: as the run puts
// its own mark where it cuts, what is to be shorter is cut here.
const leastCapture = 4 << 10

// stream is one stream of a run.
type stream struct {
	name string
	// text is what the run kept, as text; it may have the run's own mark in its middle.
	text string
	// raw are the bytes of the whole stream. They are nil where the run did not keep all,
	// and where it is unreadable, which is why: text alone does not tell a byte that is
	// no text from the character that stands for it.
	raw        []byte
	unreadable string
	// bytes is the length of the whole stream.
	bytes int64
	// cut says that not all was captured.
	cut bool
}

// stream is what a run kept of one stream, limit bytes of which are captured.
func (run *execution) stream(name, text string, bytes int64, truncated bool, limit policy.Size) stream {
	s := stream{name: name, text: text, bytes: bytes, cut: truncated || bytes > int64(limit)}
	switch {
	case s.cut:
	case !strings.ContainsRune(text, utf8.RuneError):
		s.raw = []byte(text)
	case run.record == "":
		s.unreadable = "there is no record that holds its bytes"
	default:
		raw, err := readRegular(filepath.Join(run.record, name+".log"), int64(limit))
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

// isText says whether the stream is UTF-8, as far as that is known.
func (s stream) isText() bool {
	if s.raw != nil {
		return utf8.Valid(s.raw)
	}
	return !strings.ContainsRune(s.text, utf8.RuneError)
}

// captured is the stream as the outcome holds it: all of it, or as much of its beginning
// and its end as fits into limit bytes, with a line between them, or of its beginning
// alone where that line takes all the room. What is no text takes more room than it has
// bytes. Shortened says that something is left out.
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
	// The run's own mark is somewhere in the middle, and is left out.
	return text[:head] + mark + text[tail:], true
}

// compare says how the stream differs from what the contract expects; nil if it does not.
// Bytes are compared, but for line ends at the very end. What was not captured as a whole
// differs: nobody saw the rest.
func (s stream) compare(want Stream) *Difference {
	d := &Difference{What: s.name, Problem: "differs"}
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
		// The pattern was compiled when the contract was checked.
		pattern, err := regexp.Compile(*want.Pattern)
		if err == nil && s.raw != nil && pattern.Match(s.raw) {
			return nil
		}
		d.Expected = "a match of " + text.Short(*want.Pattern, mostShown)
		d.Got = fmt.Sprintf("none in %q", text.Short(trimEnd(shown), mostShown))
		if s.raw == nil {
			d.Got = fmt.Sprintf("%q", text.Short(trimEnd(shown), mostShown))
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

// firstDifference is the first line in which two texts differ, of each.
func firstDifference(expected, got string) (string, string) {
	a, b := strings.Split(expected, "\n"), strings.Split(got, "\n")
	for i := range max(len(a), len(b)) {
		if i < len(a) && i < len(b) && a[i] == b[i] {
			continue
		}
		from := 0
		if i < len(a) && i < len(b) {
			from = window(a[i], b[i])
		}
		return lineText(a, i, from), lineText(b, i, from)
	}
	return lineText(a, 0, 0), lineText(b, 0, 0)
}

func lineText(lines []string, i, from int) string {
	if i >= len(lines) {
		return fmt.Sprintf("no line %d", i+1)
	}
	line, at := lines[i], ""
	if from > 0 && from <= len(line) {
		line, at = "…"+line[from:], fmt.Sprintf(" from byte %d", from+1)
	}
	return fmt.Sprintf("line %d%s: %q", i+1, at, text.Short(line, mostShown))
}

// window is where two lines are shown from, so that what differs is to be seen: 0, or
// shortly before it.
func window(a, b string) int {
	const before = 40
	same := 0
	for same < min(len(a), len(b)) && a[same] == b[same] {
		same++
	}
	from := same - before
	if same < 2*before || max(len(a), len(b)) <= mostShown {
		return 0
	}
	for from > 0 && !utf8.RuneStart(a[from]) {
		from--
	}
	return from
}

// mostShown is how much of a text messages show, in bytes.
const mostShown = 120

// quoted is a value for a message.
func quoted(text string) string {
	if text == "" {
		return ""
	}
	return strict.Quoted(text)
}
