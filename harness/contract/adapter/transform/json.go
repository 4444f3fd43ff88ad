package transform

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/evalbox/evalbox/internal/strict"
)

// json reads one document. Other than package encoding/json it refuses a key that is given
// twice, whose value would depend on the reader, and counts values while it reads.
func (c *counter) json(document string) (any, error) {
	// The check comes first: it has better messages than the decoder of tokens.
	var checked json.RawMessage
	if err := json.Unmarshal([]byte(document), &checked); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("is not JSON at byte %d: %w", syntax.Offset, err)
		}
		return nil, fmt.Errorf("is not JSON: %w", err)
	}
	decoder := json.NewDecoder(strings.NewReader(document))
	decoder.UseNumber()
	return c.value(decoder, 0)
}

// value reads one value of a document that is known to be JSON.
func (c *counter) value(decoder *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("is nested deeper than %d levels", maxDepth)
	}
	if err := c.add(); err != nil {
		return nil, err
	}
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case json.Number:
		return number(token), nil
	case json.Delim:
		if token == '{' {
			return c.object(decoder, depth)
		}
		return c.array(decoder, depth)
	}
	return token, nil
}

func (c *counter) array(decoder *json.Decoder, depth int) (any, error) {
	all := []any{}
	for decoder.More() {
		if len(all) == maxElements {
			return nil, errElements
		}
		element, err := c.value(decoder, depth+1)
		if err != nil {
			return nil, err
		}
		all = append(all, element)
	}
	_, err := decoder.Token() // the end of the list
	return all, err
}

func (c *counter) object(decoder *json.Decoder, depth int) (any, error) {
	all := map[string]any{}
	for decoder.More() {
		token, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		key, ok := token.(string)
		if !ok {
			return nil, fmt.Errorf("has the key %v, which is not text", token)
		}
		if _, twice := all[key]; twice {
			return nil, fmt.Errorf("the key %s is given twice in one object", strict.Quoted(key))
		}
		if all[key], err = c.value(decoder, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := decoder.Token() // the end of the object
	return all, err
}
