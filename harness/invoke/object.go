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
	if tooWide(text) {
		return nil, artifactError(path, line, KindTooMany, "has more than %d fields", maxFields)
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

// eachField calls each with every field of a valid object, in their order, and ends with
// its first error. The value is valid until the next call.
func eachField(object json.RawMessage, each func(name string, value json.RawMessage) error) error {
	in := json.NewDecoder(bytes.NewReader(object))
	if _, err := in.Token(); err != nil {
		return err
	}
	var value json.RawMessage
	for in.More() {
		token, err := in.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string) // it is one
		if err := in.Decode(&value); err != nil {
			return err
		}
		if err := each(name, value); err != nil {
			return err
		}
	}
	return nil
}

// eachItem calls each with every item of a valid array, as [eachField] does.
func eachItem(array json.RawMessage, each func(item json.RawMessage) error) error {
	in := json.NewDecoder(bytes.NewReader(array))
	if _, err := in.Token(); err != nil {
		return err
	}
	var item json.RawMessage
	for in.More() {
		if err := in.Decode(&item); err != nil {
			return err
		}
		if err := each(item); err != nil {
			return err
		}
	}
	return nil
}

// maxFields bounds how many fields an object has, and so what reading it takes.
const maxFields = 100_000

// tooWide says that an object has too many fields.
func tooWide(text []byte) bool {
	if bytes.Count(text, []byte(":")) <= maxFields || typeOf(text) != "an object" {
		return false
	}
	fields := 0
	err := eachField(text, func(string, json.RawMessage) error {
		if fields++; fields > maxFields {
			return errEnough
		}
		return nil
	})
	return errors.Is(err, errEnough)
}

// twice is the first field that a valid object of so many different fields has twice.
func twice(text []byte, fields int) (name string, found bool) {
	seen := make(map[string]bool, fields)
	_ = eachField(text, func(field string, _ json.RawMessage) error {
		if found = seen[field]; found {
			name = field
			return errEnough
		}
		seen[field] = true
		return nil
	})
	return name, found
}
