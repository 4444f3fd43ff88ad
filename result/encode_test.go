package result

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func validResult() Result {
	return Result{Status: StatusExited, Fault: FaultNone}
}

func TestEncodeRoundTrip(t *testing.T) {
	score, tb := -0.25, "Traceback"
	r := validResult()
	r.Schema, r.ID, r.Labels = SchemaV1, "r1", map[string]string{"k": "<v>"}
	r.Stdout, r.Score, r.ErrorTraceback = "a & b < c \u2028\x00\x1b[31m", &score, &tb
	r.Outputs = []Output{{Path: `a\xff`, PathBase64: "Yf8=", SizeBytes: 1, Mode: "0644"}}
	r.OutputsSkipped = []SkippedOutput{{Path: "l", Kind: "symlink"}}
	r.Enforced.Mounts = []Mount{{Target: "/work", Type: "bind"}}
	r.fillEmpty()
	text, err := r.Encode()
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(text), "{\n  \"schema\": \"evalbox/result/v1\",\n"))
	require.True(t, strings.HasSuffix(string(text), "\n}\n"))
	require.Contains(t, string(text), `"a & b < c \u2028\u0000\u001b[31m"`)
	back, err := Decode(text)
	require.NoError(t, err)
	require.Equal(t, r, back)
}

// Reflection finds every list and map, so that a new field cannot be missed.
func TestEncodeNeverWritesNullLists(t *testing.T) {
	r := validResult()
	text, err := r.Encode()
	require.NoError(t, err)
	require.Nil(t, r.Warnings, "the caller's result does not change")
	require.Equal(t, 2, strings.Count(string(text), "null"), "score and error_traceback only:\n%s", text)

	back, err := Decode(text)
	require.NoError(t, err)
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				if field := v.Type().Field(i); !strings.HasSuffix(field.Tag.Get("json"), ",omitempty") { // absent, and not null
					walk(path+"."+field.Name, v.Field(i))
				}
			}
		case reflect.Slice, reflect.Map:
			require.False(t, v.IsNil(), path)
		}
	}
	walk("Result", reflect.ValueOf(back))
}

// Reflection sets every float in turn, so that a new field cannot be missed.
func TestEncodeRefusesNumbersThatAreNotFinite(t *testing.T) {
	count := 0
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		r := validResult()
		score := 0.0
		r.Score = &score
		var walk func(path string, v reflect.Value)
		walk = func(path string, v reflect.Value) {
			switch v.Kind() {
			case reflect.Pointer:
				if !v.IsNil() {
					walk(path, v.Elem())
				}
			case reflect.Struct:
				for i := range v.NumField() {
					name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
					walk(path+"."+name, v.Field(i))
				}
			case reflect.Float64:
				count++
				v.SetFloat(bad)
				_, err := r.Encode()
				require.ErrorContains(t, err, " "+strings.TrimPrefix(path, ".")+" is "+fmt.Sprint(bad))
				v.SetFloat(0)
			}
		}
		walk("", reflect.ValueOf(&r))
	}
	require.Equal(t, 3*9, count)
}

func TestEncodeRefuses(t *testing.T) {
	r := validResult()
	r.Status = 0
	_, err := r.Encode()
	require.ErrorContains(t, err, "invalid status 0")
	r = validResult()
	r.Fault = 99
	_, err = r.Encode()
	require.ErrorContains(t, err, "invalid fault 99")
	r = validResult()
	r.Schema = "evalbox/result/v2"
	_, err = r.Encode()
	require.ErrorContains(t, err, `schema "evalbox/result/v2"`)
}

func TestDecode(t *testing.T) {
	for _, c := range []struct{ name, text, err string }{
		{"unknown field", `{"schema":"evalbox/result/v1","status":"exited","fault":"none","new":{"a":1}}`, ""},
		{"no JSON", `x`, "invalid character"},
		{"empty", ``, "unexpected end"},
		{"text after it", `{} {}`, "after top-level value"},
		{"no schema", `{}`, `schema is ""`},
		{"other schema", `{"schema":"evalbox/result/v9","status":"new"}`, `schema is "evalbox/result/v9"`},
		{"unknown status", `{"schema":"evalbox/result/v1","status":"lost","fault":"none"}`, `unknown status "lost"`},
		{"no status", `{"schema":"evalbox/result/v1","fault":"none"}`, "no status"},
		{"null status", `{"schema":"evalbox/result/v1","status":null,"fault":"none"}`, "no status"},
		{"no fault", `{"schema":"evalbox/result/v1","status":"exited"}`, "no fault"},
		{"wrong type", `{"schema":"evalbox/result/v1","status":"exited","fault":"none","id":1}`, "id"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Decode([]byte(c.text))
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.Equal(t, Result{}, r)
				return
			}
			require.NoError(t, err)
			require.Equal(t, StatusExited, r.Status)
		})
	}
}
