package result

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// jsonSchema is the part of JSON Schema that schema.json uses. Decoding is
// strict, so that a keyword that the test does not check cannot slip in.
type jsonSchema struct {
	Schema               string                 `json:"$schema"`
	Title                string                 `json:"title"`
	Description          string                 `json:"description"`
	Ref                  string                 `json:"$ref"`
	Defs                 map[string]*jsonSchema `json:"$defs"`
	Type                 any                    `json:"type"`
	Const                string                 `json:"const"`
	Enum                 []string               `json:"enum"`
	Minimum              *float64               `json:"minimum"`
	Properties           map[string]*jsonSchema `json:"properties"`
	Required             []string               `json:"required"`
	AdditionalProperties json.RawMessage        `json:"additionalProperties"`
	Items                *jsonSchema            `json:"items"`
}

func loadSchema(t *testing.T) *jsonSchema {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(string(SchemaJSON)))
	dec.DisallowUnknownFields()
	var s jsonSchema
	require.NoError(t, dec.Decode(&s))
	return &s
}

func TestSchemaMatchesTypes(t *testing.T) {
	root := loadSchema(t)
	require.Equal(t, "https://json-schema.org/draft/2020-12/schema", root.Schema)
	require.Equal(t, SchemaV1, root.Properties["schema"].Const)
	used := map[string]bool{}
	checkSchema(t, root, root, reflect.TypeFor[Result](), "result", used)
	for name := range root.Defs {
		require.True(t, used[name], "nothing uses the definition %s", name)
	}
}

func TestSchemaEnums(t *testing.T) {
	root := loadSchema(t)
	require.Equal(t, names(Statuses()), root.Properties["status"].Enum)
	require.Equal(t, names(Faults()), root.Properties["fault"].Enum)
	require.Equal(t, names(ErrorReasons()), root.Properties["error_reason"].Enum)
}

func names[T any](values []T) []string {
	var all []string
	for _, v := range values {
		all = append(all, fmt.Sprint(v))
	}
	return all
}

// checkSchema compares a schema with the Go type whose JSON it describes.
func checkSchema(t *testing.T, root, s *jsonSchema, typ reflect.Type, path string, used map[string]bool) {
	t.Helper()
	if name, ok := strings.CutPrefix(s.Ref, "#/$defs/"); ok {
		used[name] = true
		s = root.Defs[name]
		require.NotNil(t, s, path)
	}
	if typ.Kind() == reflect.Pointer {
		types, ok := s.Type.([]any)
		require.True(t, ok, "%s: a pointer may be null", path)
		require.Equal(t, []any{jsonType(t, typ.Elem()), "null"}, types, path)
		return
	}
	require.Equal(t, jsonType(t, typ), s.Type, path)
	switch typ.Kind() {
	case reflect.Slice:
		require.NotNil(t, s.Items, path)
		checkSchema(t, root, s.Items, typ.Elem(), path+"[]", used)
	case reflect.Map:
		require.JSONEq(t, `{"type":"string"}`, string(s.AdditionalProperties), path)
		require.Equal(t, reflect.String, typ.Elem().Kind(), path)
	case reflect.Struct:
		require.Equal(t, "false", string(s.AdditionalProperties), path)
		var required []string
		var fields int
		for i := range typ.NumField() {
			name, options, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			require.NotEmpty(t, name, "%s: %s has no JSON name", path, typ.Field(i).Name)
			property := s.Properties[name]
			require.NotNil(t, property, "%s: %s is not in the schema", path, name)
			require.NotEmpty(t, property.Description, "%s: %s has no description", path, name)
			if !slices.Contains(strings.Split(options, ","), "omitempty") {
				required = append(required, name)
			}
			fields++
			checkSchema(t, root, property, typ.Field(i).Type, path+"."+name, used)
		}
		require.Len(t, s.Properties, fields, "%s: the schema has properties that the type has not", path)
		require.ElementsMatch(t, required, s.Required, path)
	}
}

func jsonType(t *testing.T, typ reflect.Type) string {
	t.Helper()
	if typ.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return "string"
	}
	switch typ.Kind() {
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Int, reflect.Int64:
		return "integer"
	case reflect.Float64:
		return "number"
	case reflect.Slice:
		return "array"
	case reflect.Map, reflect.Struct:
		return "object"
	}
	t.Fatalf("no JSON type for %s", typ)
	return ""
}
