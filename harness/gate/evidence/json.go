package evidence

import (
	"bytes"
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// canonical makes equal facts equal bytes: sorted keys, two spaces, LF, no escapes but those
// that JSON and JavaScript need. Names of foreign files may not be UTF-8; U+FFFD stands for
// their other bytes.
var canonical = json.JoinOptions(
	json.Deterministic(true), jsontext.AllowInvalidUTF8(true), jsontext.EscapeForJS(true),
	json.WithMarshalers(json.JoinMarshalers(refuseFloat[float32](), refuseFloat[float64]())),
)

var errFloat = errors.New("evidence has whole numbers and text only")

// refuseFloat refuses floating-point numbers: their text depends on the program that wrote it.
func refuseFloat[T float32 | float64]() *json.Marshalers {
	return json.MarshalFunc(func(T) ([]byte, error) { return nil, errFloat })
}

// Canonical encodes v as JSON with sorted keys, an indent of two spaces and LF. A nil list or
// map becomes an empty one, so that equal facts are equal bytes (RO-08). A floating-point
// number in v is an error.
func Canonical(v any) ([]byte, error) {
	text, err := json.Marshal(v, canonical)
	var semantic *json.SemanticError
	switch {
	case errors.Is(err, errFloat) && errors.As(err, &semantic):
		return nil, fmt.Errorf("%s is a floating-point number; %w", pathOf(semantic.JSONPointer), errFloat)
	case err != nil:
		return nil, err
	}
	value := jsontext.Value(text)
	if err := value.Format(canonical, jsontext.ReorderRawObjects(true), jsontext.Multiline(true), jsontext.WithIndent("  ")); err != nil {
		return nil, err
	}
	return append(value, '\n'), nil
}

// Decode reads one untrusted JSON document into v, a pointer. It is stricter than
// encoding/json, so that a document that was cut or edited is not read as a weaker one. Errors
// name the value. These are refused: bytes that are not UTF-8, text after the document, a key
// that is given twice or in other letters, a missing key (of a field that is not a pointer,
// omitempty, omitzero or tagged evidence:"optional"), null or another type, a number that does
// not fit. Unknown keys are ignored. v changes only if all of the document is right.
func Decode(text []byte, v any) error {
	into := reflect.ValueOf(v)
	if into.Kind() != reflect.Pointer || into.IsNil() {
		return fmt.Errorf("cannot be decoded into %T", v)
	}
	fresh := reflect.New(into.Type().Elem())
	if err := json.Unmarshal(text, fresh.Interface()); err != nil {
		return explained(text, err)
	}
	if err := complete(jsontext.NewDecoder(bytes.NewReader(text)), fresh.Type().Elem()); err != nil {
		return err
	}
	into.Elem().Set(fresh.Elem())
	return nil
}

// errSyntax is a text that is not JSON.
var errSyntax = errors.New("is not one valid JSON document")

// explained words an error of the decoder as those of complete. The library changes its words
// from process to process, and findings must be equal bytes.
func explained(text []byte, err error) error {
	var semantic *json.SemanticError
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &semantic):
		path, kind := pathOf(semantic.JSONPointer), semantic.JSONKind
		if t := semantic.GoType; t != nil {
			switch want := wanted(t); {
			case want != "anything" && kind != 0 && names[kind] != want:
				return mismatch(path, want, kind)
			case t.Kind() >= reflect.Int && t.Kind() <= reflect.Uintptr && kind == '0':
				return fmt.Errorf("%s must be a whole number of %d bits, is %.40s", path, t.Bits(), semantic.JSONValue)
			}
		}
		return fmt.Errorf("%s cannot be read: %w", path, cmp.Or(semantic.Err, errors.ErrUnsupported))
	case errors.Is(err, jsontext.ErrDuplicateName) && errors.As(err, &syntax):
		return fmt.Errorf("%s has the key %q twice", pathOf(syntax.JSONPointer.Parent()), syntax.JSONPointer.LastToken())
	case len(bytes.TrimSpace(text)) == 0:
		return fmt.Errorf("%w: it is empty", errSyntax)
	case errors.As(err, &syntax):
		at := min(max(0, syntax.ByteOffset), int64(len(text)))
		return fmt.Errorf("%w: %w, at line %d, byte %d", errSyntax, syntax.Err, 1+bytes.Count(text[:at], []byte("\n")), at)
	}
	return fmt.Errorf("%w: %w", errSyntax, err)
}

// complete checks what the decoder permits: null for a value, keys that are missing, and keys
// in other letters. It reads one value that became one of type t.
func complete(d *jsontext.Decoder, t reflect.Type) error {
	nullable := t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	want, kind := wanted(t), d.PeekKind()
	if kind == 'n' && !nullable && want != "anything" {
		_ = d.SkipValue() // the text is valid
		return mismatch(pathOf(d.StackPointer()), want, kind)
	}
	if want != "an object" && want != "an array" || kind != '{' && kind != '[' {
		return d.SkipValue()
	}
	var fields []field
	if t.Kind() == reflect.Struct {
		fields = fieldsOf(t)
	}
	seen := map[string]bool{}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != '}' && d.PeekKind() != ']' {
		of := reflect.TypeFor[any]()
		if t.Kind() != reflect.Struct {
			of = t.Elem()
		}
		if kind == '{' {
			f, err := readKey(d, fields, seen)
			if err != nil {
				return err
			}
			if f != nil {
				of = f.of
			}
		}
		if err := complete(d, of); err != nil {
			return err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	if i := slices.IndexFunc(fields, func(f field) bool { return !f.optional && !seen[f.name] }); i >= 0 {
		return fmt.Errorf("%s has no key %q", pathOf(d.StackPointer()), fields[i].name)
	}
	return nil
}

// readKey reads a key of an object, and returns its field; nil for none.
func readKey(d *jsontext.Decoder, fields []field, seen map[string]bool) (*field, error) {
	key, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	name := key.String()
	seen[name] = true
	i := indexOf(fields, name)
	if i < 0 {
		return nil, nil
	}
	if fields[i].name != name {
		return nil, fmt.Errorf("%s has the key %q, which must be written %q", pathOf(d.StackPointer().Parent()), name, fields[i].name)
	}
	return &fields[i], nil
}

// field is a field of a struct in its wire form.
type field struct {
	name     string
	of       reflect.Type
	optional bool
}

func fieldsOf(t reflect.Type) (fields []field) {
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || name == "-" || f.Anonymous && name == "" {
			continue
		}
		optional := f.Type.Kind() == reflect.Pointer || strings.Contains(options, "omit") || f.Tag.Get("evidence") == "optional"
		fields = append(fields, field{name, f.Type, optional})
	}
	return fields
}

// indexOf finds a key, or else the field that it is in other letters; -1 for none.
func indexOf(fields []field, key string) int {
	if i := slices.IndexFunc(fields, func(f field) bool { return f.name == key }); i >= 0 {
		return i
	}
	return slices.IndexFunc(fields, func(f field) bool { return strings.EqualFold(f.name, key) })
}

// wanted is the JSON kind of a type.
func wanted(t reflect.Type) string {
	pointer := reflect.PointerTo(t)
	switch kind := t.Kind(); {
	case kind == reflect.Interface, pointer.Implements(reflect.TypeFor[json.Unmarshaler]()):
		return "anything"
	case kind == reflect.String, pointer.Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return "a string"
	case kind == reflect.Bool:
		return "a boolean"
	case kind == reflect.Struct, kind == reflect.Map:
		return "an object"
	case kind == reflect.Slice, kind == reflect.Array:
		return "an array"
	}
	return "a number"
}

var names = map[jsontext.Kind]string{
	'n': "null", 't': "a boolean", 'f': "a boolean", '"': "a string", '0': "a number", '{': "an object", '[': "an array",
}

func mismatch(path, want string, kind jsontext.Kind) error {
	return fmt.Errorf("%s must be %s, is %s", path, want, names[kind])
}

// pathOf is the place of a value for people, such as commands[0].cmd.
func pathOf(p jsontext.Pointer) string {
	path := ""
	for token := range p.Tokens() {
		if _, err := strconv.ParseUint(token, 10, 64); err == nil {
			path += "[" + token + "]"
		} else {
			path += "." + token
		}
	}
	if path == "" {
		return "the document"
	}
	return strings.TrimPrefix(path, ".")
}
