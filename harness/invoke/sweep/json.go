package sweep

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// DeterministicJSON writes a value in one way only: keys by their code points, no space,
// and no character escaped that need not be (MI-12). It takes nil, bool, string, int,
// int64, finite float64, json.Number, and lists ([]any) and objects (map[string]any) of
// these. Floats are spelled as Python does; a json.Number is written as it is.
func DeterministicJSON(value any) ([]byte, error) { return appendJSON(nil, value) }

// indentedJSON is the same with two spaces for each level and no newline at the end.
func indentedJSON(value any) ([]byte, error) {
	compact, err := DeterministicJSON(value)
	if err != nil {
		return nil, err
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, compact, "", "  "); err != nil {
		return nil, err
	}
	return indented.Bytes(), nil
}

func appendJSON(to []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case nil:
		return append(to, "null"...), nil
	case bool:
		return strconv.AppendBool(to, v), nil
	case string:
		return appendString(to, v)
	case json.Number:
		if !isNumber(string(v)) {
			return nil, fmt.Errorf("JSON: %s is no number", shown(string(v)))
		}
		return append(to, v...), nil
	case int, int64, float64:
		number, err := normal(v)
		if err != nil {
			return nil, fmt.Errorf("JSON: a number %w", err)
		}
		return appendJSON(to, number)
	case []any:
		return appendList(to, v)
	case map[string]any:
		return appendObject(to, v)
	}
	return nil, fmt.Errorf("JSON: cannot write a %T", value)
}

func appendList(to []byte, list []any) ([]byte, error) {
	to = append(to, '[')
	for i, element := range list {
		if i > 0 {
			to = append(to, ',')
		}
		var err error
		if to, err = appendJSON(to, element); err != nil {
			return nil, err
		}
	}
	return append(to, ']'), nil
}

func appendObject(to []byte, object map[string]any) ([]byte, error) {
	to = append(to, '{')
	for i, key := range slices.Sorted(maps.Keys(object)) {
		if i > 0 {
			to = append(to, ',')
		}
		var err error
		if to, err = appendString(to, key); err != nil {
			return nil, err
		}
		if to, err = appendJSON(append(to, ':'), object[key]); err != nil {
			return nil, err
		}
	}
	return append(to, '}'), nil
}

// appendString escapes what JSON demands. encoding/json escapes two line separators
// besides, in whatever way it is asked.
func appendString(to []byte, text string) ([]byte, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("JSON: %s is not UTF-8", shown(text))
	}
	const escaped, letters = "\"\\\n\r\t\b\f", `"\nrtbf`
	to = append(to, '"')
	for i := range len(text) {
		c := text[i]
		switch at := strings.IndexByte(escaped, c); {
		case at >= 0:
			to = append(to, '\\', letters[at])
		case c < ' ':
			to = fmt.Appendf(to, `\u%04x`, c)
		default:
			to = append(to, c)
		}
	}
	return append(to, '"'), nil
}
