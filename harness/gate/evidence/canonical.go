package evidence

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
)

// Canonical is v as JSON with sorted keys, an indent of two spaces and LF, and an empty
// list or object where a nil one is: equal facts are equal bytes (RO-08). A
// floating-point number anywhere in v is an error, since its text depends on who wrote it.
func Canonical(v any) ([]byte, error) {
	whole, err := filled(reflect.ValueOf(v), "", 0)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(valueOf(whole))
	if err != nil {
		return nil, err
	}
	// Once more through a tree: objects of structs have the order of their fields.
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var tree any
	if err := decoder.Decode(&tree); err != nil {
		return nil, err
	}
	if err := noFloats(tree, ""); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(tree); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

func valueOf(v reflect.Value) any {
	if !v.IsValid() {
		return nil
	}
	return v.Interface()
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// filled is a copy of v without nil lists and objects.
func filled(v reflect.Value, path string, depth int) (reflect.Value, error) {
	switch {
	case !v.IsValid():
		return v, nil
	case depth > maxDepth:
		return v, fmt.Errorf("%s is nested deeper than %d levels", named(path), maxDepth)
	case v.Kind() != reflect.Pointer && v.Kind() != reflect.Interface && (v.Type().Implements(jsonMarshaler) || v.Type().Implements(textMarshaler)):
		return v, nil // it writes itself
	}
	switch v.Kind() {
	case reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		return v, fmt.Errorf("%s is a floating-point number; evidence has whole numbers and text only", named(path))
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return v, nil
		}
		inner, err := filled(v.Elem(), path, depth+1)
		if err != nil || v.Kind() == reflect.Interface {
			return inner, err
		}
		into := reflect.New(v.Type().Elem())
		into.Elem().Set(inner)
		return into, nil
	case reflect.Struct:
		return filledStruct(v, path, depth)
	case reflect.Slice, reflect.Array:
		return filledList(v, path, depth)
	case reflect.Map:
		into := reflect.MakeMapWithSize(v.Type(), v.Len())
		for key, value := range v.Seq2() {
			inner, err := filled(value, join(path, fmt.Sprint(key)), depth+1)
			if err != nil {
				return v, err
			}
			if !inner.IsValid() {
				inner = value
			}
			into.SetMapIndex(key, inner)
		}
		return into, nil
	}
	return v, nil
}

func filledStruct(v reflect.Value, path string, depth int) (reflect.Value, error) {
	into := reflect.New(v.Type()).Elem()
	into.Set(v)
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if !field.IsExported() || name == "-" {
			continue
		}
		if name == "" {
			name = field.Name
		}
		inner, err := filled(v.Field(i), join(path, name), depth+1)
		if err != nil {
			return v, err
		}
		if inner.IsValid() {
			into.Field(i).Set(inner)
		}
	}
	return into, nil
}

func filledList(v reflect.Value, path string, depth int) (reflect.Value, error) {
	if v.Kind() == reflect.Array || v.Type().Elem().Kind() == reflect.Uint8 {
		return v, nil
	}
	into := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
	for i := range v.Len() {
		inner, err := filled(v.Index(i), fmt.Sprintf("%s[%d]", path, i), depth+1)
		if err != nil {
			return v, err
		}
		if inner.IsValid() {
			into.Index(i).Set(inner)
		}
	}
	return into, nil
}

// noFloats looks at what types of their own wrote.
func noFloats(tree any, path string) error {
	var errs []error
	switch v := tree.(type) {
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return fmt.Errorf("%s is the floating-point number %s; evidence has whole numbers and text only", named(path), v)
		}
	case []any:
		for i, inner := range v {
			errs = append(errs, noFloats(inner, fmt.Sprintf("%s[%d]", path, i)))
		}
	case map[string]any:
		for key, inner := range v {
			errs = append(errs, noFloats(inner, join(path, key)))
		}
	}
	return errors.Join(errs...)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// named is a path for people.
func named(path string) string {
	if path == "" {
		return "the document"
	}
	return path
}
