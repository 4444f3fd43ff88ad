package schematest

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// RoundTrip checks that a document keeps everything when it is written and read again: a document
// of the type with a value in every field is the same afterwards. A field stays behind in the process
// only if stay has it, such as Job.secrets, with the reason. The words are values of types that have
// few.
func RoundTrip(t *testing.T, typ reflect.Type, stay map[string]string, words ...any) {
	t.Helper()
	samples := map[reflect.Type]any{}
	for _, word := range words {
		samples[reflect.TypeOf(word)] = word
	}
	value := reflect.New(typ)
	f := filler{samples, stay, map[string]bool{}, map[reflect.Type]bool{}}
	f.fill(t, value.Elem(), typ.Name())
	for name := range stay {
		require.True(t, f.stayed[name], "%s: is in the document, or there is no such field", name)
	}
	text, err := json.Marshal(value.Interface())
	require.NoError(t, err)
	again := reflect.New(typ)
	require.NoError(t, json.Unmarshal(text, again.Interface()), "%s", text)
	require.Equal(t, value.Interface(), again.Interface(), "%s", text)
}

type filler struct {
	samples map[reflect.Type]any
	stay    map[string]string
	stayed  map[string]bool
	inside  map[reflect.Type]bool
}

// fill sets every field of a value. A type that is inside itself is empty there.
func (f filler) fill(t *testing.T, v reflect.Value, path string) {
	t.Helper()
	if sample, ok := f.samples[v.Type()]; ok {
		v.Set(reflect.ValueOf(sample))
		return
	}
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Unix(1_700_000_000, 0).UTC()))
		return
	case json.RawMessage:
		v.SetBytes([]byte(`{"a":1}`))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint, reflect.Uint8, reflect.Uint32, reflect.Uint64:
		v.SetUint(7)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Interface:
		v.Set(reflect.ValueOf("x"))
	case reflect.Pointer:
		if !f.inside[v.Type().Elem()] {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(t, v.Elem(), path)
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		f.fill(t, v.Index(0), path+"[]")
	case reflect.Array:
		for i := range v.Len() {
			f.fill(t, v.Index(i), path+"[]")
		}
	case reflect.Map:
		key, element := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(t, key, path+".key")
		f.fill(t, element, path+".value")
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, element)
	case reflect.Struct:
		f.inside[v.Type()] = true
		for field, value := range v.Fields() {
			name := v.Type().Name() + "." + field.Name
			if f.stay[name] != "" {
				f.stayed[name] = true
				continue
			}
			if assert.True(t, field.IsExported(), "%s.%s: is not in the document", path, field.Name) {
				f.fill(t, value, path+"."+field.Name)
			}
		}
		delete(f.inside, v.Type())
	default:
		require.Fail(t, "there is no value of this type", "%s: %s", path, v.Type())
	}
}
