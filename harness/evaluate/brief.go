package evaluate

import (
	"bytes"
	"errors"
)

// printed are the members of an evaluation that hold what a script printed, as they are
// in the wire form.
var printed = [][]byte{[]byte(`"stdout"`), []byte(`"stderr"`), []byte(`"error_traceback"`), []byte(`"error_summary"`)}

var errCutObject = errors.New("unexpected end of JSON input")

// withoutTexts returns the object of a line without the members that hold what a script
// printed. Those are skipped, and not looked at any closer; everything else is taken over
// as it stands, well formed or not.
func withoutTexts(line []byte) ([]byte, error) {
	line = bytes.TrimSpace(line)
	if len(line) == 0 || line[0] != '{' {
		return line, nil
	}
	short := append(make([]byte, 0, min(len(line), 4<<10)), '{')
	for at := 1; ; {
		end, key, err := memberEnd(line, at)
		if err != nil {
			return nil, err
		}
		if !isPrinted(key) {
			if len(short) > 1 {
				short = append(short, ',')
			}
			short = append(short, line[at:end]...)
		}
		if line[end] == '}' {
			return append(short, line[end:]...), nil
		}
		at = end + 1
	}
}

func isPrinted(key []byte) bool {
	for _, name := range printed {
		if bytes.Equal(key, name) {
			return true
		}
	}
	return false
}

// memberEnd finds the comma or the brace that ends the member at a place, and its key with
// its quotes.
func memberEnd(line []byte, at int) (end int, key []byte, err error) {
	depth := 0
	for i := at; i < len(line); {
		switch c := line[i]; c {
		case '"':
			after, err := stringEnd(line, i)
			if err != nil {
				return 0, nil, err
			}
			if key == nil {
				key = line[i:after]
			}
			i = after
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i, key, nil
			}
			depth--
		case ',':
			if depth == 0 {
				return i, key, nil
			}
		}
		i++
	}
	return 0, nil, errCutObject
}

// stringEnd is where a string that begins at a quote is over. Long texts are skipped from
// quote to quote.
func stringEnd(line []byte, at int) (int, error) {
	for i := at + 1; ; {
		quote := bytes.IndexByte(line[i:], '"')
		if quote < 0 {
			return 0, errCutObject
		}
		i += quote + 1
		escapes := 0
		for line[i-2-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i, nil
		}
	}
}
