package evaluate

import "strings"

// logicalLine is a line as Python's parser sees it: without comments, with strings
// blanked out, and joined where a bracket or a backslash carries it on.
type logicalLine struct {
	// number is the physical line that it begins in, from 1.
	number int
	// indent is the width of the white space before it; a tab reaches to the next
	// multiple of 8, as in Python.
	indent int
	text   string
}

// blank stands for a string: something that is neither a name nor white space.
const blank = '$'

// logicalLines takes a script apart. It knows as much of Python as that needs, gives
// some answer for any text, and reads it once.
func logicalLines(content string) []logicalLine {
	s := lineScanner{rest: content, physical: 1}
	for s.rest != "" {
		s.step()
	}
	s.end()
	return s.lines
}

type lineScanner struct {
	rest     string
	physical int
	depth    int // of open brackets
	text     strings.Builder
	current  logicalLine
	lines    []logicalLine
}

// step takes the next piece of the text.
func (s *lineScanner) step() {
	c := s.rest[0]
	switch {
	case c == '\n' || c == '\r':
		s.newline()
	case c == '#':
		end := strings.IndexAny(s.rest, "\r\n")
		if end < 0 {
			end = len(s.rest)
		}
		s.rest = s.rest[end:]
	case c == '\\' && len(s.rest) > 1 && (s.rest[1] == '\n' || s.rest[1] == '\r'):
		s.rest = s.rest[1:]
		s.skipNewline()
		s.add(' ')
	case c == '"' || c == '\'':
		s.skipString(c)
		s.add(blank)
	default:
		switch c {
		case '(', '[', '{':
			s.depth++
		case ')', ']', '}':
			s.depth = max(s.depth-1, 0)
		}
		s.rest = s.rest[1:]
		s.add(c)
	}
}

// add appends to the current line, which begins with what is no white space.
func (s *lineScanner) add(c byte) {
	if s.text.Len() == 0 {
		switch c {
		case ' ':
			s.current.indent++
			return
		case '\t':
			s.current.indent += 8 - s.current.indent%8
			return
		case '\f':
			s.current.indent = 0
			return
		case 0xef, 0xbb, 0xbf:
			if len(s.lines) == 0 && s.physical == 1 {
				return // a byte order mark
			}
		}
		s.current.number = s.physical
	}
	s.text.WriteByte(c)
}

// newline ends the current line, unless a bracket is open.
func (s *lineScanner) newline() {
	s.skipNewline()
	if s.depth > 0 {
		s.add(' ')
		return
	}
	s.end()
}

func (s *lineScanner) end() {
	if s.text.Len() > 0 {
		s.current.text = strings.TrimRight(s.text.String(), " \t\f")
		s.lines = append(s.lines, s.current)
		s.text.Reset()
	}
	s.current = logicalLine{}
}

// skipNewline takes LF, CR LF or CR.
func (s *lineScanner) skipNewline() {
	if strings.HasPrefix(s.rest, "\r\n") {
		s.rest = s.rest[1:]
	}
	s.rest = s.rest[1:]
	s.physical++
}

// skipString takes a string. One with single quotes ends with its line at the
// latest, as an error of the script.
func (s *lineScanner) skipString(quote byte) {
	triple := strings.Repeat(string(quote), 3)
	if strings.HasPrefix(s.rest, triple) {
		s.rest = s.rest[3:]
		for s.rest != "" && !strings.HasPrefix(s.rest, triple) {
			s.skipCharacter()
		}
		s.rest = s.rest[min(3, len(s.rest)):]
		return
	}
	s.rest = s.rest[1:]
	for s.rest != "" && s.rest[0] != quote && s.rest[0] != '\n' && s.rest[0] != '\r' {
		s.skipCharacter()
	}
	if s.rest != "" && s.rest[0] == quote {
		s.rest = s.rest[1:]
	}
}

// skipCharacter takes a character of a string, with the backslash before it.
func (s *lineScanner) skipCharacter() {
	if s.rest[0] == '\\' && len(s.rest) > 1 {
		s.rest = s.rest[1:]
	}
	if s.rest[0] == '\n' || s.rest[0] == '\r' {
		s.skipNewline()
		return
	}
	s.rest = s.rest[1:]
}
