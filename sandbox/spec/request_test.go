package spec

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fill sets everything of a value to something that is not zero.
func fill(v reflect.Value) {
	switch v.Interface().(type) {
	case time.Duration:
		v.SetInt(int64(1500*time.Millisecond + 1))
		return
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)))
		return
	case netip.Addr:
		v.Set(reflect.ValueOf(netip.MustParseAddr("192.0.2.1")))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				fill(v.Field(i))
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("a"), value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1.5)
	default:
		v.SetInt(1000)
	}
}

// TestRequestWireForm: no field of a request is lost on the way through JSON.
func TestRequestWireForm(t *testing.T) {
	var req, got Request
	fill(reflect.ValueOf(&req).Elem())
	text, err := json.Marshal(req)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &got))
	require.Equal(t, req, got)
	require.Contains(t, string(text), `"gpu_wait_seconds":1.500000001`)

	text, err = json.Marshal(Request{})
	require.NoError(t, err)
	require.JSONEq(t, `{"schema":"evalbox/request/v1"}`, string(text))
	require.NoError(t, json.Unmarshal(text, &got))

	for text, says := range map[string]string{
		`{"schema":"evalbox/request/v2"}`: `schema is "evalbox/request/v2"`,
		`{}`:                              `schema is ""`,
		`{"schema":"evalbox/request/v1","privileged":true}`:             "privileged",
		`{"schema":"evalbox/request/v1","limits":{"timeout":1}}`:        "timeout",
		`{"schema":"evalbox/request/v1","egress":{"limits":{"mb":1}}}`:  "mb",
		`{"schema":"evalbox/request/v1","limits":{"memory":"a lot"}}`:   "size",
		`{"schema":"evalbox/request/v1","mounts":[{"origin":"/home"}]}`: "origin",
	} {
		require.ErrorContains(t, json.Unmarshal([]byte(text), &got), says, text)
	}
}
