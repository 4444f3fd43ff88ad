// Package brief takes a few members out of a large JSON object. It is for lists of many
// documents of this project, which show little of each: the other members are neither decoded
// nor checked, so reading takes a fraction of the time.
package brief

import (
	"bytes"
	"errors"
)

var errCut = errors.New("unexpected end of JSON input")

// Members returns the object with only the members whose key keep accepts, unchanged.
// Keys are compared as they are written, so escaped ones are not recognized. A text that
// is not an object is returned as it is.
func Members(object []byte, keep func(key string) bool) ([]byte, error) {
	object = bytes.TrimSpace(object)
	if len(object) == 0 || object[0] != '{' {
		return object, nil
	}
	short := append(make([]byte, 0, min(len(object), 4<<10)), '{')
	for at := 1; ; {
		end, key, err := memberEnd(object, at)
		if err != nil {
			return nil, err
		}
		if len(key) < 2 || keep(string(key[1:len(key)-1])) {
			if len(short) > 1 {
				short = append(short, ',')
			}
			short = append(short, object[at:end]...)
		}
		if object[end] == '}' {
			return append(short, object[end:]...), nil
		}
		at = end + 1
	}
}

// memberEnd finds the comma or the brace that ends the member at a place, and its key with
// its quotes.
func memberEnd(object []byte, at int) (end int, key []byte, err error) {
	depth := 0
	for i := at; i < len(object); {
		switch c := object[i]; c {
		case '"':
			after, err := stringEnd(object, i)
			if err != nil {
				return 0, nil, err
			}
			if key == nil {
				key = object[i:after]
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
	return 0, nil, errCut
}

// stringEnd is the end of a string that begins at a quote. It goes from quote to quote, so
// long texts are fast.
func stringEnd(object []byte, at int) (int, error) {
	for i := at + 1; ; {
		quote := bytes.IndexByte(object[i:], '"')
		if quote < 0 {
			return 0, errCut
		}
		i += quote + 1
		escapes := 0
		for object[i-2-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i, nil
		}
	}
}
