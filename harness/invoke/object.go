package invoke

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"
)

// parseObject reads one JSON object in UTF-8. Values stay as they are written, so that
// no number is rounded. Path and line are for the error.
func parseObject(text []byte, path string, line int64) (map[string]json.RawMessage, *ArtifactError) {
	if !utf8.Valid(text) {
		return nil, artifactError(path, line, KindInvalidJSON, "is not UTF-8 text")
	}
	var object map[string]json.RawMessage
	err := json.Unmarshal(text, &object)
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &syntax):
		return nil, artifactError(path, line, KindInvalidJSON, "is not valid JSON: %v, at byte %d", syntax, syntax.Offset)
	case err != nil || object == nil:
		return nil, artifactError(path, line, KindNotObject, "is not a JSON object but %s", typeOf(text))
	case tooDeep(text):
		return nil, artifactError(path, line, KindInvalidJSON, "is nested deeper than %d levels", maxDepth)
	}
	return object, nil
}

// maxDepth bounds how deep a value is nested, far above what people mean, and below what
// its readers can bear.
const maxDepth = 1000

// tooDeep says that valid JSON is nested too deep.
func tooDeep(text []byte) bool {
	if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) <= maxDepth {
		return false
	}
	depth, inString := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && (c == '[' || c == '{'):
			if depth++; depth > maxDepth {
				return true
			}
		case !inString && (c == ']' || c == '}'):
			depth--
		}
	}
	return false
}

// typeOf names the type of a valid JSON value.
func typeOf(text []byte) string {
	text = bytes.TrimSpace(text)
	if len(text) == 0 {
		return "nothing"
	}
	switch text[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// without are the names that an object lacks.
func without(object map[string]json.RawMessage, names []string) (missing []string) {
	for _, name := range names {
		if _, has := object[name]; !has {
			missing = append(missing, name)
		}
	}
	return missing
}
