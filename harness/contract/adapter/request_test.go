package adapter

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/contract/adapter/web"
	"github.com/evalbox/evalbox/harness/trial"
)

// requestAdapter calls the server of a test, whose address is %[1]s.
const requestAdapter = `adapter_id: A
name: a
version: "1.0.0"
tool_id: T
type: api
interface:
  api:
    base_url: "http://%[1]s/v1"
    auth_method: bearer
    endpoint_mapping: {get: "GET /items/{id}", list: "GET /items", put: "PUT /items/{id}"}
transforms: {output: [{type: extract, spec: "$.data"}]}
errors: {retry: {max_attempts: 3, backoff_ms: 100, retryable_codes: [429]}}
sandbox_override: {network: {enabled: true, allow: ["%[1]s"]}}
cacheable: [list]
`

// serving is a bench whose adapter calls a server.
func serving(t *testing.T, handler http.HandlerFunc) (*bench, string) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	host := server.Listener.Addr().String()
	b := newBench(t, fmt.Sprintf(requestAdapter, host))
	b.adapters.LookupEnv = func(name string) (string, bool) { return "hunter2", name == "A_TOKEN" }
	return b, host
}

func answerJSON(w http.ResponseWriter, body string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_, _ = w.Write([]byte(body))
}

func TestRequest(t *testing.T) {
	var asked []string
	b, host := serving(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.RequestURI()+" "+r.Header.Get("Authorization"))
		answerJSON(w, `{"data": {"n": 12345678901234567, "token": "hunter2"}}`)
	})
	o := b.call(t, "get", map[string]any{"id": "a b", "q": int64(1)})
	require.True(t, o.Success, o.Error)
	require.Equal(t, map[string]any{"n": int64(12345678901234567), "token": "[secret]"}, o.Call.Value)
	require.Equal(t, []string{"GET /v1/items/a%20b?q=1 Bearer hunter2"}, asked)
	require.Equal(t, 200, *o.Call.Code)
	require.Equal(t, "GET http://"+host+"/v1/items/{id}", o.Call.Target)
	require.NotContains(t, o.Stdout, "hunter2")
	require.Empty(t, b.box.ran)

	// What is cacheable is asked once in a session.
	for range 2 {
		o = b.call(t, "list", nil)
		require.True(t, o.Success, o.Error)
	}
	require.True(t, o.Call.Cached)
	require.Len(t, asked, 2)
}

func TestRequestAgain(t *testing.T) {
	calls := 0
	b, _ := serving(t, func(w http.ResponseWriter, _ *http.Request) {
		if calls++; calls < 3 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		answerJSON(w, `{"data": 1}`)
	})
	o := b.call(t, "list", nil)
	require.True(t, o.Success, o.Error)
	require.Equal(t, int64(1), o.Call.Value)
	require.Len(t, o.Call.Attempts, 3)
	require.Equal(t, 429, *o.Call.Attempts[1].Code)
	require.Equal(t, "the server answered with status 429", o.Call.Attempts[1].Error)
}

func TestRequestFails(t *testing.T) {
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		status  string
		code    int // 0 is none
		verdict trial.Verdict
		want    string
	}{
		"404": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(404) }, "answered", 404, trial.Failed, "the server answered with status 404"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://evil.example/x", http.StatusFound)
		}, "blocked", 0, trial.Failed, "evil.example"},
		"broken JSON": {func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, `{"data": `) }, "answered", 200, trial.Failed, "the server said application/json, and its answer is not JSON: "},
		"two values":  {func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, `{"data": 1} {"data": 2}`) }, "answered", 200, trial.Failed, "is not JSON"},
		"text":        {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) }, "answered", 200, trial.Failed, "output transform 1 (extract): "},
		"bytes":       {func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte{0xff, 0}) }, "answered", 200, trial.Failed, "which are not text"},
		"no data":     {func(w http.ResponseWriter, _ *http.Request) { answerJSON(w, `{}`) }, "answered", 200, trial.Failed, "output transform 1 (extract): "},
		"too much": {func(w http.ResponseWriter, _ *http.Request) {
			answerJSON(w, `{"data": "`+strings.Repeat("x", 2<<20)+`"}`)
		}, "answered", 200, trial.Failed, "raise outputs.capture.stdout_bytes"},
		"the end of it":   {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "unreachable", 0, trial.Inconclusive, "the answer broke off: "},
		"a long redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, r.URL.Path, http.StatusFound) }, "blocked", 0, trial.Failed, "more than 5 redirects"},
	} {
		t.Run(name, func(t *testing.T) {
			b, _ := serving(t, test.handler)
			o := b.call(t, "list", nil)
			require.False(t, o.Success)
			require.Equal(t, test.status, o.Status)
			require.Contains(t, o.Error, test.want)
			require.Equal(t, test.verdict, o.Verdict)
			require.Nil(t, o.Call.Value)
			require.Len(t, o.Call.Attempts, 1, "the server may have carried it out")
			if test.code == 0 {
				require.Nil(t, o.Call.Code)
			} else {
				require.Equal(t, test.code, *o.Call.Code)
			}
		})
	}
}

// A server that was not reached is asked again.
func TestRequestIsUnsent(t *testing.T) {
	server := httptest.NewServer(nil)
	host := server.Listener.Addr().String()
	server.Close()
	b := newBench(t, fmt.Sprintf(requestAdapter, host))
	b.adapters.LookupEnv = func(string) (string, bool) { return "hunter2", true }
	o := b.call(t, "list", nil)
	require.Equal(t, contract.StatusUnreachable, o.Status)
	require.Len(t, o.Call.Attempts, 3)
	require.Contains(t, o.Error, "the server cannot be reached: ")
}

func TestRequestIsRefused(t *testing.T) {
	b, host := serving(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was made") })
	get := contract.Inputs{Operation: "get", Parameters: map[string]any{"id": "1"}}
	for name, test := range map[string]struct {
		change func(*contract.Contract)
		want   string
	}{
		"no operation":     {func(c *contract.Contract) { c.Inputs.Operation = "" }, "CK-01: inputs.operation"},
		"an unknown one":   {func(c *contract.Contract) { c.Inputs.Operation = "delete" }, `CK-01: inputs.operation "delete": `},
		"no parameter":     {func(c *contract.Contract) { c.Inputs.Parameters = nil }, "CX-01: inputs.parameters.id: is missing: GET /items/{id} needs it"},
		"null":             {func(c *contract.Contract) { c.Inputs.Parameters = map[string]any{"id": nil} }, "CX-01: inputs.parameters.id: is missing"},
		"another path":     {func(c *contract.Contract) { c.Inputs.Parameters = map[string]any{"id": "../x"} }, "inputs.parameters.id: must not have a segment . or .."},
		"arguments":        {func(c *contract.Contract) { c.Inputs.Arguments = []string{"x"} }, "CX-01: inputs.arguments: are not for adapters of type api: give parameters"},
		"a stdin":          {func(c *contract.Contract) { c.Inputs.Stdin = new("x") }, "CX-01: inputs.stdin: is not for adapters of type api"},
		"a command":        {func(c *contract.Contract) { c.Inputs.Command = "cat" }, `CX-01: inputs.command "cat": is not for adapters of type api`},
		"offline":          {func(c *contract.Contract) { c.Sandbox.Network.Enabled = new(false) }, "CX-04: sandbox.network.level"},
		"a file to write":  {func(c *contract.Contract) { c.Outputs.OutputFiles = []string{"/work/final/a"} }, "CX-05: outputs.output_files: is for programs: adapter A calls a server"},
		"the level is low": {func(c *contract.Contract) { c.Sandbox.Network.Level = "offline" }, "CX-04: sandbox.network.level"},
	} {
		t.Run(name, func(t *testing.T) {
			c := contract.Contract{ToolID: "T", AdapterID: "A", Inputs: get}
			test.change(&c)
			o := b.carryOut(t, c)
			require.Equal(t, contract.StatusRefused, o.Status, o.Error)
			require.Contains(t, strings.Join(broken(o), "\n"), test.want)
			if o.Call != nil {
				require.Empty(t, o.Call.Attempts)
			}
		})
	}
	// A contract that opens other hosts does not open that of the adapter, and the reverse.
	c := contract.Contract{ToolID: "T", AdapterID: "A", Inputs: get}
	c.Sandbox.Network = contract.Network{Level: "api", Allow: []string{"other.example"}}
	o := b.carryOut(t, c)
	require.False(t, o.Success)
	require.Equal(t, contract.StatusBlocked, o.Status)
	c.Sandbox.Network = contract.Network{Level: "api", Allow: []string{host}, Deny: []string{"127.0.0.1"}}
	o = b.carryOut(t, c)
	require.Equal(t, contract.StatusBlocked, o.Status)

	b.adapters.LookupEnv = func(string) (string, bool) { return "", false }
	o = b.call(t, "list", nil)
	require.Equal(t, contract.StatusRefused, o.Status)
	require.Contains(t, broken(o)[0], "CK-01: adapter_id: auth.token: the variable A_TOKEN")
	require.Empty(t, o.Call.Attempts)
}

// The answer of a request without a response says whether it was sent.
func TestFailedRequest(t *testing.T) {
	for name, test := range map[string]struct {
		err    error
		status string
		unsent bool
	}{
		"unreachable":        {&web.UnreachableError{Reason: "x"}, contract.StatusUnreachable, true},
		"the token server":   {&web.TokenError{Err: &web.UnreachableError{Reason: "x"}}, contract.StatusUnreachable, true},
		"a token is refused": {&web.TokenError{Status: 400, Code: "invalid_client"}, contract.StatusUnreachable, false},
		"broken":             {&web.BrokenError{Reason: "x"}, contract.StatusUnreachable, false},
		"a rule":             {&web.RefusedError{Host: "x"}, contract.StatusBlocked, false},
		"something else":     {errors.New("x"), contract.StatusUnreachable, false},
	} {
		a := failedRequest(test.err)
		require.Equal(t, test.status, a.Status, name)
		require.Equal(t, test.unsent, a.Unsent, name)
		require.Equal(t, test.err, a.Err, name)
		require.Empty(t, a.Refused, name)
	}
}

// The fallback for a server that is not available is used if the call was not sent, and only then.
func TestUnavailable(t *testing.T) {
	var calls atomic.Int64
	broken := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		calls.Add(1)
		panic(http.ErrAbortHandler)
	}))
	t.Cleanup(broken.Close)
	gone := httptest.NewServer(http.NotFoundHandler()) // after the other one, which could get its port
	gone.Close()
	document := func(id, url, more string) string {
		host := strings.TrimPrefix(url, "http://")
		return fmt.Sprintf("adapter_id: %s\nname: a\ntool_id: T\ntype: api\ninterface: {api: {base_url: %q, endpoint_mapping: {go: POST /}}}\n"+
			"sandbox_override: {network: {enabled: true, allow: [%q]}}\n%s", id, url, host, more)
	}
	const next = "errors: {fallback: {adapter_id: B, condition: unavailable}}\n"
	o := newBench(t, document("A", gone.URL, next), document("B", broken.URL, "")).call(t, "go", nil)
	require.Equal(t, int64(1), calls.Load(), o.Error)
	require.Equal(t, "B", o.Call.AdapterID)
	o = newBench(t, document("A", broken.URL, next), document("B", gone.URL, "")).call(t, "go", nil)
	require.Equal(t, "A", o.Call.AdapterID, "the server may have carried it out")
	require.Len(t, o.Call.Attempts, 1)
}
