// Package schematest tests that a JSON Schema and the Go type whose JSON it describes
// say the same, and that documents fit a schema.
package schematest

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/stretchr/testify/require"
)

// Load reads a schema.
func Load(t *testing.T, text []byte) *jsonschema.Schema {
	t.Helper()
	var s jsonschema.Schema
	require.NoError(t, json.Unmarshal(text, &s))
	require.Equal(t, "https://json-schema.org/draft/2020-12/schema", s.Schema)
	return &s
}

// Valid checks that a document, which is JSON, fits a schema.
func Valid(t *testing.T, s *jsonschema.Schema, document []byte) {
	t.Helper()
	require.NoError(t, validate(t, s, document), "%s", document)
}

// Invalid checks that a document, which is JSON, does not fit a schema.
func Invalid(t *testing.T, s *jsonschema.Schema, document []byte) {
	t.Helper()
	require.Error(t, validate(t, s, document), "%s", document)
}

func validate(t *testing.T, s *jsonschema.Schema, document []byte) error {
	t.Helper()
	resolved, err := s.Resolve(nil)
	require.NoError(t, err)
	var instance any
	require.NoError(t, json.Unmarshal(document, &instance))
	return resolved.Validate(instance)
}

// Enum are the values of a property, as text.
func Enum(t *testing.T, s *jsonschema.Schema, property string) []string {
	t.Helper()
	require.NotNil(t, s.Properties[property], property)
	return Names(s.Properties[property].Enum)
}

// Names are values as text.
func Names[T any](values []T) []string {
	var all []string
	for _, v := range values {
		all = append(all, fmt.Sprint(v))
	}
	return all
}

// Match checks that a schema describes the JSON of a Go type: every field, its type,
// whether it may be absent or null, and nothing else; that every property has a
// description, and every definition a use. Demanded are fields that the type leaves out
// when they are empty and the schema demands, such as Type.name.
func Match(t *testing.T, root *jsonschema.Schema, typ reflect.Type, demanded ...string) {
	t.Helper()
	m := matcher{root: root, used: map[string]bool{}, demanded: demanded}
	m.match(t, root, typ, typ.Name(), false)
	for name := range root.Defs {
		require.True(t, m.used[name], "nothing uses the definition %s", name)
	}
}

type matcher struct {
	root *jsonschema.Schema
	used map[string]bool
	// demanded are further required fields.
	demanded []string
}

// match compares a schema with a type. A nullable value may be null.
func (m matcher) match(t *testing.T, s *jsonschema.Schema, typ reflect.Type, path string, nullable bool) {
	t.Helper()
	// A word may stand for a mapping.
	if len(s.AnyOf) == 2 && s.AnyOf[0].Type == "string" {
		require.Equal(t, reflect.Struct, typ.Kind(), path)
		s = s.AnyOf[1]
	}
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		m.used[name] = true
		s = m.root.Defs[name]
		require.NotNil(t, s, path)
	}
	if typ.Kind() == reflect.Interface {
		require.Empty(t, s.Type, "%s: a value of any form has no type", path)
		require.Empty(t, s.Types, path)
		return
	}
	types := s.Types
	if s.Type != "" {
		types = []string{s.Type}
	}
	want := []string{jsonType(t, typ)}
	if nullable {
		want = append(want, "null")
	}
	require.Equal(t, want, types, path)
	if typ == rawMessage {
		return
	}
	switch typ.Kind() {
	case reflect.Slice:
		require.NotNil(t, s.Items, path)
		m.match(t, s.Items, typ.Elem(), path+"[]", false)
	case reflect.Map:
		if typ.Elem().Kind() == reflect.Interface {
			return
		}
		require.NotNil(t, s.AdditionalProperties, path)
		require.Equal(t, reflect.String, typ.Elem().Kind(), path)
		require.Equal(t, "string", s.AdditionalProperties.Type, path)
	case reflect.Struct:
		if jsonType(t, typ) == "object" {
			m.matchFields(t, s, typ, path)
		}
	}
}

func (m matcher) matchFields(t *testing.T, s *jsonschema.Schema, typ reflect.Type, path string) {
	t.Helper()
	// The schema that nothing fits is how this library reads false.
	require.NotNil(t, s.AdditionalProperties, path)
	require.NotNil(t, s.AdditionalProperties.Not, "%s: other properties must be refused", path)
	var required []string
	fields := fieldsOf(typ)
	for _, field := range fields {
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		require.NotEmpty(t, name, "%s: %s has no JSON name", path, field.Name)
		property := s.Properties[name]
		require.NotNil(t, property, "%s: %s is not in the schema", path, name)
		require.NotEmpty(t, property.Description, "%s: %s has no description", path, name)
		optional := slices.ContainsFunc(strings.Split(options, ","), func(o string) bool { return o == "omitempty" || o == "omitzero" })
		if !optional || slices.Contains(m.demanded, path+"."+name) {
			required = append(required, name)
		}
		below, isPointer := field.Type, field.Type.Kind() == reflect.Pointer
		if isPointer {
			below = below.Elem()
		}
		// An optional field may also be null, where readers take that.
		m.match(t, property, below, path+"."+name, isPointer && (!optional || slices.Contains(property.Types, "null")))
	}
	require.Len(t, s.Properties, len(fields), "%s: the schema has properties that the type has not", path)
	require.ElementsMatch(t, required, s.Required, path)
}

// fieldsOf are the exported fields of a struct in JSON, those of embedded structs included.
func fieldsOf(typ reflect.Type) (fields []reflect.StructField) {
	for _, field := range reflect.VisibleFields(typ) {
		if tag := field.Tag.Get("json"); field.IsExported() && tag != "-" && (!field.Anonymous || tag != "") {
			fields = append(fields, field)
		}
	}
	return fields
}

// rawMessage is a document of another form, which is an object.
var rawMessage = reflect.TypeFor[json.RawMessage]()

// jsonType is the type of a value in JSON.
func jsonType(t *testing.T, typ reflect.Type) string {
	t.Helper()
	if typ.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return "string"
	}
	if typ == rawMessage {
		return "object"
	}
	switch typ.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64, reflect.Uint64:
		return "integer"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		return "array"
	case reflect.Map, reflect.Struct:
		return "object"
	}
	require.Fail(t, "there is no JSON type", "%s", typ)
	return ""
}
