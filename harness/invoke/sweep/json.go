package sweep

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// asPython writes numbers as Python does: a float has a point or an exponent, and a
// json.Number keeps its spelling.
var asPython = jsonv2.WithMarshalers(jsonv2.JoinMarshalers(
	jsonv2.MarshalToFunc(func(out *jsontext.Encoder, n json.Number) error {
		if !isNumber(n) {
			return fmt.Errorf("%s is not a number", shown(string(n)))
		}
		return out.WriteValue(jsontext.Value(n))
	}),
	jsonv2.MarshalToFunc(func(out *jsontext.Encoder, f float64) error {
		n, err := floatNumber(f)
		if err != nil {
			return fmt.Errorf("a number %w", err)
		}
		return out.WriteValue(jsontext.Value(n))
	}),
))

// DeterministicJSON writes a value in one way only: keys by their code points, no space,
// and no character escaped that need not be (MI-12). Floats are spelled as Python does; a
// json.Number is written as it is.
func DeterministicJSON(value any) ([]byte, error) { return marshal(value) }

// indentedJSON is the same with two spaces for each level and no newline at the end.
func indentedJSON(value any) ([]byte, error) { return marshal(value, jsontext.WithIndent("  ")) }

func marshal(value any, opts ...jsonv2.Options) ([]byte, error) {
	text, err := jsonv2.Marshal(value, append(opts, jsonv2.Deterministic(true), asPython)...)
	if err != nil {
		return nil, fmt.Errorf("JSON: %w", err)
	}
	return text, nil
}

// spelled reads a number as a json.Number, which keeps its spelling.
var spelled = jsonv2.WithUnmarshalers(jsonv2.UnmarshalFromFunc(func(in *jsontext.Decoder, value *any) error {
	if in.PeekKind() != '0' {
		return errors.ErrUnsupported // the default is right
	}
	n, err := in.ReadValue()
	*value = json.Number(n)
	return err
}))

// readObject reads a JSON object in which each key is given once, and every escape is a
// whole character. The error is a sentence about the text.
func readObject(text []byte) (map[string]any, error) {
	var object map[string]any
	err := jsonv2.Unmarshal(text, &object, spelled)
	var syntax *jsontext.SyntacticError
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &syntax):
		return nil, fmt.Errorf("has the key %s twice in one object", shown(syntax.JSONPointer.LastToken()))
	case len(bytes.TrimSpace(text)) == 0:
		return nil, errors.New("is not JSON: it is empty")
	case errors.As(err, &syntax):
		return nil, fmt.Errorf("is not JSON: %w, at byte %d", syntax.Err, syntax.ByteOffset)
	case err != nil || object == nil: // JSON of another type
		return nil, errors.New("must be a JSON object")
	}
	return object, nil
}

// isNumber reports whether a text is a number of JSON.
func isNumber(n json.Number) bool {
	value := jsontext.Value(n)
	return value.Kind() == '0' && value.IsValid() && strings.TrimSpace(string(n)) == string(n)
}
