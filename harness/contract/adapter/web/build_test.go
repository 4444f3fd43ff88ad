package web

import (
	"encoding/json"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var buildAPI = API{BaseURL: "https://api.example/v1/", Headers: map[string]string{"x-version": "2"}, Endpoints: map[string]string{
	"get": "GET /items/{id}", "remove": "DELETE /items/{id}", "list": "GET /items", "make": "POST /items", "put": "PUT /items/{id}", "own": "GET /a/{id}.json",
}}

func TestBuild(t *testing.T) {
	for name, test := range map[string]struct {
		operation  string
		parameters map[string]any
		url, body  string
	}{
		"path":    {"get", map[string]any{"id": "a b/c?d#e%2f;é"}, "https://api.example/v1/items/a%20b%2Fc%3Fd%23e%252f%3B%C3%A9", ""},
		"number":  {"get", map[string]any{"id": float64(1000000)}, "https://api.example/v1/items/1000000", ""},
		"int":     {"own", map[string]any{"id": int64(7)}, "https://api.example/v1/a/7.json", ""},
		"percent": {"get", map[string]any{"id": "100%"}, "https://api.example/v1/items/100%25", ""},
		"query":   {"remove", map[string]any{"id": json.Number("5"), "q": "a&b=c", "n": 1.5, "on": true}, "https://api.example/v1/items/5?n=1.5&on=true&q=a%26b%3Dc", ""},
		"list":    {"list", map[string]any{"tag": []any{"a", int64(2)}, "none": []any{}}, "https://api.example/v1/items?tag=a&tag=2", ""},
		"strings": {"list", map[string]any{"tag": []string{"a", "b"}}, "https://api.example/v1/items?tag=a&tag=b", ""},
		"body":    {"put", map[string]any{"id": "x", "a": map[string]any{"b": []any{nil, "<"}}}, "https://api.example/v1/items/x", `{"a":{"b":[null,"<"]}}`},
		"no body": {"make", nil, "https://api.example/v1/items", ""},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := Request{API: buildAPI, Operation: test.operation, Parameters: test.parameters}.build(t.Context())
			require.NoError(t, err)
			require.Equal(t, test.url, req.URL.String())
			body, err := io.ReadAll(req.Body)
			require.NoError(t, err)
			require.Equal(t, test.body, string(body))
			require.Equal(t, test.body != "", req.Header.Get("Content-Type") == "application/json")
			require.Equal(t, "2", req.Header.Get("X-Version"))
		})
	}
}

func TestBuildRefuses(t *testing.T) {
	for _, value := range []any{"", ".", "..", "../a", `a\..\b`, "a/./b", "%2e%2e", "%2E%2e/a", "a\x00", "a\nb", "\xff", nil, []any{"a"}, map[string]any{}} {
		_, err := Request{API: buildAPI, Operation: "get", Parameters: map[string]any{"id": value}}.build(t.Context())
		var wrong *ParameterError
		require.ErrorAs(t, err, &wrong, "%q", value)
		require.Equal(t, "id", wrong.Name)
	}
	_, err := Request{API: buildAPI, Operation: "get"}.build(t.Context())
	var missing *ParameterError
	require.ErrorAs(t, err, &missing)
	require.EqualError(t, err, "parameter id is missing: the path of the operation needs it")
	for _, value := range []any{nil, map[string]any{"a": 1}, []any{[]any{"a"}}, []any{map[string]any{}}, []any{nil}} {
		_, err := Request{API: buildAPI, Operation: "list", Parameters: map[string]any{"q": value}}.build(t.Context())
		require.ErrorContains(t, err, "parameter q must be text, a number")
	}
	_, err = Request{API: buildAPI, Operation: "unknown"}.build(t.Context())
	var unknown *OperationError
	require.ErrorAs(t, err, &unknown)
	require.Equal(t, []string{"get", "list", "make", "own", "put", "remove"}, unknown.Known)
	require.EqualError(t, err, `operation "unknown" is not one of get, list, make, own, put, remove`)
}

// FuzzPath: whatever a value is, it is refused or is exactly one segment of the path.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{"a", "..", "a/b", "%2e%2e%2f", "?x#y", "é", "a;b", `\`, "%", "..%2f"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		req, err := Request{API: buildAPI, Operation: "get", Parameters: map[string]any{"id": value}}.build(t.Context())
		if err != nil {
			return
		}
		last, ok := strings.CutPrefix(req.URL.EscapedPath(), "/v1/items/")
		require.True(t, ok)
		require.NotContains(t, last, "/")
		require.Empty(t, req.URL.RawQuery)
		require.Empty(t, req.URL.Fragment)
		plain, err := url.PathUnescape(last)
		require.NoError(t, err)
		require.Equal(t, value, plain)
		require.NotContains(t, strings.Split(strings.ReplaceAll(plain, `\`, "/"), "/"), "..")
	})
}
