package evidence

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	// maxDepth bounds how deep a value is nested.
	maxDepth = 64
	// maxValues bounds how many values a document has: in memory each takes far
	// more than its text.
	maxValues = 4_000_000
)

// Decode reads one JSON document that anybody may have written into v, a pointer to a
// zero value. It is stricter than [json.Unmarshal], so that a document that was cut or
// edited is not quietly read as something weaker: a key that is given twice or in other
// letters, null or another type where v has none, a number that does not fit, a key of v
// that is missing (pointers and omitempty apart), text after the document and bytes that
// are not UTF-8 are errors with the path of the value. Keys that v does not have are
// passed over.
func Decode(text []byte, v any) error { return decode(text, v, maxValues) }

func decode(text []byte, v any, most int) error {
	if !utf8.Valid(text) {
		return errors.New("is not UTF-8 text")
	}
	var raw json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		var syntax *json.SyntaxError
		if errors.As(err, &syntax) {
			return fmt.Errorf("is not one valid JSON document: %w, at byte %d", syntax, syntax.Offset)
		}
		return err
	}
	into := reflect.TypeOf(v)
	if into == nil || into.Kind() != reflect.Pointer {
		return fmt.Errorf("cannot be decoded into %T", v)
	}
	c := &checker{decoder: json.NewDecoder(bytes.NewReader(text)), most: most}
	c.decoder.UseNumber()
	if err := c.value(into.Elem(), nil, 0); err != nil {
		return err
	}
	return json.Unmarshal(text, v)
}

// place is where a value is, told only when something is wrong with it.
type place struct {
	in    *place
	key   *string // nil for an element of a list
	index int
}

func (p *place) path() string {
	switch {
	case p == nil:
		return ""
	case p.key == nil:
		return fmt.Sprintf("%s[%d]", p.in.path(), p.index)
	}
	return join(p.in.path(), *p.key)
}

func (p *place) String() string { return named(p.path()) }

// checker walks through a valid document beside the type that it is to become.
type checker struct {
	decoder *json.Decoder
	// values counts what was seen, most is how much there may be.
	values, most int
}

var (
	jsonUnmarshaler = reflect.TypeFor[json.Unmarshaler]()
	textUnmarshaler = reflect.TypeFor[encoding.TextUnmarshaler]()
	anything        = reflect.TypeFor[any]()
)

// value checks the next value. A type of anything takes whatever there is.
func (c *checker) value(t reflect.Type, at *place, depth int) error {
	if c.values++; c.values > c.most {
		return fmt.Errorf("has more than %d values", c.most)
	}
	if depth > maxDepth {
		return fmt.Errorf("%s is nested deeper than %d levels", at, maxDepth)
	}
	token, err := c.decoder.Token()
	if err != nil {
		return err
	}
	nullable := t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	want := wanted(t)
	if token == nil {
		if nullable || want == "anything" {
			return nil
		}
		return fmt.Errorf("%s must be %s, is null", at, want)
	}
	if is := kindOf(token); want != "anything" && is != want {
		return fmt.Errorf("%s must be %s, is %s", at, want, is)
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return c.object(t, at, depth)
		}
		return c.array(t, at, depth)
	case json.Number:
		return fits(token, t, at)
	}
	return nil
}

// wanted is the JSON kind of a type.
func wanted(t reflect.Type) string {
	switch {
	case t.Implements(jsonUnmarshaler) || reflect.PointerTo(t).Implements(jsonUnmarshaler):
		return "anything"
	case t.Implements(textUnmarshaler) || reflect.PointerTo(t).Implements(textUnmarshaler):
		return "a string"
	case t.Kind() == reflect.String && t != reflect.TypeFor[json.Number]():
		return "a string"
	case t.Kind() == reflect.Bool:
		return "a boolean"
	case t.Kind() == reflect.Struct, t.Kind() == reflect.Map:
		return "an object"
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		return "a string" // base64
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array:
		return "an array"
	case t.Kind() == reflect.Interface:
		return "anything"
	}
	return "a number"
}

func kindOf(token json.Token) string {
	switch token := token.(type) {
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case json.Delim:
		if token == '{' {
			return "an object"
		}
		return "an array"
	}
	return "a number"
}

// fits says whether a number is one of the type.
func fits(n json.Number, t reflect.Type, at *place) error {
	var err error
	switch t.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		_, err = strconv.ParseInt(n.String(), 10, t.Bits())
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		_, err = strconv.ParseUint(n.String(), 10, t.Bits())
	default:
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s must be a whole number of %d bits, is %.40s", at, t.Bits(), n)
	}
	return nil
}

func (c *checker) array(t reflect.Type, at *place, depth int) error {
	inner := anything
	if k := t.Kind(); wanted(t) == "an array" && (k == reflect.Slice || k == reflect.Array) {
		inner = t.Elem()
	}
	for i := 0; c.decoder.More(); i++ {
		if err := c.value(inner, &place{in: at, index: i}, depth+1); err != nil {
			return err
		}
	}
	_, err := c.decoder.Token()
	return err
}

func (c *checker) object(t reflect.Type, at *place, depth int) error {
	var fields map[string]field
	inner := anything
	if wanted(t) == "an object" {
		switch t.Kind() {
		case reflect.Struct:
			fields = fieldsOf(t)
		case reflect.Map:
			inner = t.Elem()
		}
	}
	seen := map[string]bool{}
	for c.decoder.More() {
		token, err := c.decoder.Token()
		if err != nil {
			return err
		}
		key, ok := token.(string)
		if !ok {
			return fmt.Errorf("%s has a key that is no string", at)
		}
		if seen[key] {
			return fmt.Errorf("%s has the key %q twice", at, key)
		}
		seen[key] = true
		of := inner
		if fields != nil {
			known, has := fields[key]
			if of = known.of; !has {
				if of, err = unknown(key, fields, at); err != nil {
					return err
				}
			}
		}
		if err := c.value(of, &place{in: at, key: &key}, depth+1); err != nil {
			return err
		}
	}
	for name, f := range fields {
		if !f.optional && !seen[name] {
			return fmt.Errorf("%s has no key %q", at, first(name, fields, seen))
		}
	}
	_, err := c.decoder.Token()
	return err
}

// first is the missing key that comes first, so that the same document always gets the
// same error.
func first(name string, fields map[string]field, seen map[string]bool) string {
	for other, f := range fields {
		if !f.optional && !seen[other] && other < name {
			name = other
		}
	}
	return name
}

// unknown keys are anything, unless they are a known one in other letters, which
// encoding/json takes for it.
func unknown(key string, fields map[string]field, at *place) (reflect.Type, error) {
	for name := range fields {
		if strings.EqualFold(name, key) {
			return nil, fmt.Errorf("%s has the key %q, which must be written %q", at, key, name)
		}
	}
	return anything, nil
}

// field is a field of a struct in its wire form.
type field struct {
	of       reflect.Type
	optional bool
}

func fieldsOf(t reflect.Type) map[string]field {
	fields := map[string]field{}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || f.Anonymous && name == "" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		optional := f.Type.Kind() == reflect.Pointer || strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")
		fields[name] = field{f.Type, optional}
	}
	return fields
}
