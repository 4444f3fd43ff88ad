package adapter

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
)

const serverAdapter = `adapter_id: A
name: a
version: "1.0.0"
tool_id: T
type: mcp
interface:
  mcp: {server: server, args: ["--stdio"], transport: stdio, tool_mapping: {read: read_file, fail: fail, image: image, code: code, big: big}}
transforms: {output: [{type: extract, spec: "$.content[*].text"}]}
errors: {retry: {max_attempts: 2, backoff_ms: 10, retryable_codes: [-32050]}}
`

// testServer is an MCP server with a tool for each operation.
func testServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	add := func(name string, do func(arguments string) (*mcp.CallToolResult, error)) {
		s.AddTool(&mcp.Tool{Name: name, Description: "the tool " + name, InputSchema: json.RawMessage(`{"type":"object"}`)},
			func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return do(string(req.Params.Arguments))
			})
	}
	says := func(text string) *mcp.CallToolResult {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
	}
	add("read_file", func(arguments string) (*mcp.CallToolResult, error) { return says(arguments), nil })
	add("fail", func(string) (*mcp.CallToolResult, error) {
		res := says("no such file")
		res.IsError = true
		return res, nil
	})
	add("image", func(string) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "look"}, &mcp.ImageContent{MIMEType: "image/png", Data: []byte("png")}}}, nil
	})
	add("code", func(string) (*mcp.CallToolResult, error) {
		return nil, &jsonrpc.Error{Code: -32050, Message: strings.Repeat("busy ", 200)}
	})
	add("big", func(string) (*mcp.CallToolResult, error) { return says(strings.Repeat("x", 2<<20)), nil })
	return s
}

// runServer is a program that is the test server on its streams.
func runServer(_ sandbox.Request, stdin io.Reader, stdout io.Writer) result.Result {
	_ = testServer().Run(context.Background(), &mcp.IOTransport{Reader: io.NopCloser(stdin), Writer: nopCloser{stdout}}) // it ends with its input
	return result.Result{Status: result.StatusExited}
}

func TestServer(t *testing.T) {
	b := newBench(t, serverAdapter)
	b.box.program = runServer
	o := b.call(t, "read", map[string]any{"path": "a b", "n": int64(7)})
	require.True(t, o.Success, o.Error)
	require.Equal(t, []any{`{"n":7,"path":"a b"}`}, o.Call.Value)
	require.Equal(t, []string{"server", "--stdio"}, b.box.ran[0].Command)
	require.Equal(t, "server read_file", o.Call.Target)
	require.True(t, b.box.ran[0].Stdin)

	o = b.call(t, "fail", nil)
	require.False(t, o.Success)
	require.Equal(t, "the tool reported an error: no such file", o.Error)
	require.Nil(t, o.Call.Value)
	require.Len(t, o.Call.Attempts, 1)

	o = b.call(t, "image", nil)
	require.True(t, o.Success, o.Error)
	require.Equal(t, []any{"look"}, o.Call.Value)
	require.Len(t, o.Artifacts, 1)
	require.Equal(t, "cG5n", o.Artifacts[0].Data)
	require.Equal(t, "image/png", o.Artifacts[0].MIMEType)
	require.Equal(t, "content[1]", o.Artifacts[0].Metadata["source"])

	// The error code of JSON-RPC decides on another attempt.
	o = b.call(t, "code", nil)
	require.Equal(t, -32050, *o.Call.Code)
	require.Len(t, o.Call.Attempts, 2)
	require.True(t, strings.HasPrefix(o.Error, "the server answered with error -32050: busy"), o.Error)
	require.Less(t, len(o.Error), 700)

	o = b.call(t, "big", nil)
	require.False(t, o.Success)
	require.Contains(t, o.Error, "of which 1048576 are captured: raise outputs.capture.stdout_bytes")
	require.Len(t, o.Call.Attempts, 1)

	o = b.call(t, "walk", nil)
	require.Equal(t, contract.StatusRefused, o.Status)
	o = b.carryOut(t, contract.Contract{ToolID: "T", AdapterID: "A", Inputs: contract.Inputs{Operation: "read", Arguments: []string{"x"}, Stdin: new("y")}})
	require.Len(t, o.Violations, 2)
}

// The tools of a server are described as they are, and kept for an hour. The transforms of the
// adapter are not for them, and are there afterwards.
func TestDescribeTools(t *testing.T) {
	b := newBench(t, serverAdapter)
	b.box.program = runServer
	a, err := b.adapters.Resolve("A", "")
	require.NoError(t, err)
	_, known := b.adapters.KnownTools(a)
	require.False(t, known)
	tools, err := b.adapters.DescribeTools(t.Context(), b.Harness, a)
	require.NoError(t, err)
	require.Len(t, tools, 5)
	require.Equal(t, "big", tools[0].Name)
	require.Equal(t, "the tool big", tools[0].Description)
	require.JSONEq(t, `{"type":"object"}`, string(tools[0].InputSchema))
	again, known := b.adapters.KnownTools(a)
	require.True(t, known)
	require.Equal(t, tools, again)
	require.Len(t, a.Transforms.Output, 1)
	o := b.call(t, "image", nil)
	require.Equal(t, []any{"look"}, o.Call.Value)

	b.box.program = prints("")
	_, err = b.adapters.DescribeTools(t.Context(), b.Harness, a)
	require.ErrorContains(t, err, "the server did not open an MCP session")
}

// hostile is a server that answers initialize and tools/call with these lines, in which ID is that
// of the request. It ends after an empty one, or when its answer cannot be written.
func hostile(initialize, call string) func(sandbox.Request, io.Reader, io.Writer) result.Result {
	return func(_ sandbox.Request, stdin io.Reader, stdout io.Writer) result.Result {
		ended := result.Result{Status: result.StatusExited, ExitCode: 3}
		for in := bufio.NewScanner(stdin); in.Scan(); {
			var message struct {
				ID     json.RawMessage
				Method string
			}
			if json.Unmarshal(in.Bytes(), &message) != nil || message.ID == nil {
				continue
			}
			line, known := map[string]string{"initialize": initialize, "tools/call": call}[message.Method]
			if !known {
				line = `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"unknown"}}` + "\n"
			}
			if line == "" {
				return ended
			}
			if _, err := io.WriteString(stdout, strings.ReplaceAll(line, "ID", string(message.ID))); err != nil {
				return ended
			}
		}
		return ended
	}
}

const initialized = `{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}` + "\n"

// Whatever a server does, the call ends, and the outcome says why.
func TestHostileServers(t *testing.T) {
	for name, test := range map[string]struct {
		program  func(sandbox.Request, io.Reader, io.Writer) result.Result
		attempts int
		want     string
	}{
		"ends at once":           {prints(""), 2, "the server did not open an MCP session: "},
		"ends before it answers": {hostile("", ""), 2, "the server did not open an MCP session: "},
		"ends after the session": {hostile(initialized, ""), 1, ""},
		"is not JSON":            {hostile("hello\n", ""), 2, "the server did not open an MCP session: "},
		"is not JSON-RPC":        {hostile("[1, 2]\n", ""), 2, "the server did not open an MCP session: "},
		"is not JSON later":      {hostile(initialized, "hello\n"), 1, ""},
		"another version":        {hostile(strings.Replace(initialized, "2025-06-18", "1999-01-01", 1), ""), 2, "the server did not open an MCP session: "},
		"an error":               {hostile(`{"jsonrpc":"2.0","id":ID,"error":{"code":-32001,"message":"go away"}}`+"\n", ""), 1, "the server answered with error -32001: go away"},
		"no content":             {hostile(initialized, `{"jsonrpc":"2.0","id":ID,"result":{"content":"text"}}`+"\n"), 1, ""},
		"an endless line": {func(_ sandbox.Request, _ io.Reader, stdout io.Writer) result.Result {
			line := []byte(`"` + strings.Repeat("x", 1<<20))
			for range maxMessage>>20 + 1 {
				if _, err := stdout.Write(line); err != nil {
					break
				}
				line[0] = 'x'
			}
			return result.Result{Status: result.StatusExited, ExitCode: 3}
		}, 2, "the server did not open an MCP session: "},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, serverAdapter)
			b.box.program = test.program
			o := b.call(t, "read", nil)
			require.False(t, o.Success)
			require.Equal(t, "exited", o.Status)
			require.Nil(t, o.Call.Value)
			require.Len(t, o.Call.Attempts, test.attempts)
			require.NotEmpty(t, o.Error)
			require.Contains(t, o.Error, test.want)
			require.Less(t, len(o.Error), 2000)
			require.NotNil(t, o.Call.Code)
		})
	}
}

// A server elsewhere is called over HTTP, within the network of the contract.
func TestRemoteServer(t *testing.T) {
	server := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return testServer() }, nil))
	t.Cleanup(server.Close)
	host := server.Listener.Addr().String()
	remote := func(host, more string) string {
		return fmt.Sprintf("adapter_id: A\nname: a\nversion: \"1.0.0\"\ntool_id: T\ntype: mcp\ninterface:\n  mcp: {server: \"http://%s/\", transport: http, tool_mapping: {read: read_file, fail: fail, code: code}}\n%s", host, more)
	}
	allow := fmt.Sprintf("sandbox_override: {network: {enabled: true, allow: [%q]}}\n", host)
	b := newBench(t, remote(host, allow))
	o := b.call(t, "read", map[string]any{"a": true})
	require.True(t, o.Success, o.Error)
	require.Equal(t, contract.StatusAnswered, o.Status)
	text, err := json.Marshal(o.Call.Value)
	require.NoError(t, err)
	require.JSONEq(t, `{"content": [{"type": "text", "text": "{\"a\":true}"}]}`, string(text))
	require.Empty(t, b.box.ran)
	o = b.call(t, "code", nil)
	require.Equal(t, contract.StatusAnswered, o.Status)
	require.Equal(t, -32050, *o.Call.Code)
	o = b.call(t, "fail", nil)
	require.Equal(t, "the tool reported an error: no such file", o.Error)

	o = newBench(t, remote(host, "")).call(t, "read", nil)
	require.Equal(t, contract.StatusRefused, o.Status)
	require.Contains(t, broken(o)[0], "CX-04: sandbox.network.level")
	_, err = Parse([]byte(remote(host, "sandbox_override: {network: {enabled: true, allow: [other.example]}}\n")), "a.yaml")
	require.ErrorContains(t, err, "sandbox_override.network.allow: does not permit the server itself")
	c := contract.Contract{ToolID: "T", AdapterID: "A", Inputs: contract.Inputs{Operation: "read"}}
	c.Sandbox.Network = contract.Network{Enabled: new(true), Allow: []string{"other.example"}}
	o = newBench(t, remote(host, "")).carryOut(t, c)
	require.Equal(t, contract.StatusBlocked, o.Status, o.Error)
	require.Contains(t, o.Error, "127.0.0.1, port ")

	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) }))
	t.Cleanup(page.Close)
	host = page.Listener.Addr().String()
	o = newBench(t, remote(host, fmt.Sprintf("sandbox_override: {network: {enabled: true, allow: [%q]}}\n", host))).call(t, "read", nil)
	require.Equal(t, contract.StatusAnswered, o.Status, "with something else than MCP")
	require.Contains(t, o.Error, "the server did not open an MCP session: ")

	page.Close()
	o = newBench(t, remote(host, fmt.Sprintf("sandbox_override: {network: {enabled: true, allow: [%q]}}\nerrors: {retry: {max_attempts: 2}}\n", host))).call(t, "read", nil)
	require.Equal(t, contract.StatusUnreachable, o.Status, o.Error)
	require.Nil(t, o.Call.Code)
	require.Len(t, o.Call.Attempts, 2)

	// A server that fails in the session has no code of JSON-RPC.
	failing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var message struct {
			ID     json.RawMessage
			Method string
		}
		switch _ = json.Unmarshal(body, &message); message.Method {
		case "initialize":
			answerJSON(w, strings.ReplaceAll(initialized, "ID", string(message.ID)))
		case "notifications/initialized":
			w.WriteHeader(http.StatusAccepted)
		default:
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(failing.Close)
	host = failing.Listener.Addr().String()
	o = newBench(t, remote(host, fmt.Sprintf("sandbox_override: {network: {enabled: true, allow: [%q]}}\nerrors: {retry: {max_attempts: 2}}\n", host))).call(t, "read", nil)
	require.False(t, o.Success)
	require.Nil(t, o.Call.Code, o.Error)
	require.Len(t, o.Call.Attempts, 1, "the server may have carried it out")
}

func TestServerProblems(t *testing.T) {
	for document, want := range map[string]string{
		`{server: "", transport: stdio, tool_mapping: {a: b}}`:                           "interface.mcp.server: must not be empty",
		`{server: x, transport: websocket, tool_mapping: {a: b}}`:                        `interface.mcp.transport: "websocket" is not supported`,
		`{server: x, transport: pipe, tool_mapping: {a: b}}`:                             `interface.mcp.transport: "pipe" must be one of stdio, http`,
		`{server: x, transport: http, tool_mapping: {a: b}}`:                             "must be a URL with http or https",
		`{server: "http://u:p@a.example", transport: http, tool_mapping: {a: b}}`:        "must not have a user name or password",
		`{server: "http://a.example", args: [x], transport: http, tool_mapping: {a: b}}`: "interface.mcp.args: are for the transport stdio",
		`{server: x, transport: stdio}`:                                                  "interface.mcp.tool_mapping: must have at least one operation",
		`{server: x, transport: stdio, tool_mapping: {a: ""}}`:                           "interface.mcp.tool_mapping.a: must name a tool of the server",
		`{server: x, transport: stdio, tool_mapping: {"tools/list": b}}`:                 "is an operation that every server has",
	} {
		_, err := Parse([]byte("{adapter_id: A, name: n, version: 1.0.0, tool_id: T, type: mcp, mcp: "+document+"}"), "a.yaml")
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, "a.yaml:1: ")
	}
}

// A long error keeps its cause.
func TestBounded(t *testing.T) {
	err := bounded(fmt.Errorf("%s: %w", strings.Repeat("x", 5000), &jsonrpc.Error{Code: -7, Message: "m"}))
	require.Less(t, len(err.Error()), 600)
	var wire *jsonrpc.Error
	require.ErrorAs(t, err, &wire)
	require.Equal(t, -7, *failedCall(err, true).Code)
}

// An error is that of the server, unless the SDK gives it for a broken connection.
func TestFailedCall(t *testing.T) {
	a := failedCall(&jsonrpc.Error{Code: -7}, true)
	require.Equal(t, -7, *a.Code)
	require.False(t, a.Unsent)
	require.Equal(t, contract.StatusAnswered, a.Status)
	a = failedCall(fmt.Errorf("x: %w", &jsonrpc.Error{Code: -32005, Message: "rejected by transport"}), true)
	require.Nil(t, a.Code)
	require.True(t, a.Unsent)
	a = failedCall(&jsonrpc.Error{Code: -32005, Message: "not today"}, false)
	require.Equal(t, -32005, *a.Code)
}

// Images are bounded, and an answer that is too long is not a value.
func TestToolAnswer(t *testing.T) {
	res := &mcp.CallToolResult{Content: []mcp.Content{&mcp.AudioContent{MIMEType: "audio/wav", Data: []byte("wave")}}}
	a := toolAnswer(res, 1000, 3)
	require.ErrorContains(t, a.Err, "more than outputs.capture.artifacts_bytes")
	require.Empty(t, a.Artifacts)
	a = toolAnswer(&mcp.CallToolResult{Content: []mcp.Content{}, StructuredContent: map[string]any{"n": 1}}, 10, 0)
	require.ErrorContains(t, a.Err, "of which 10 are captured")
	require.Len(t, a.Text, 10)
	require.Nil(t, a.Value)
}
