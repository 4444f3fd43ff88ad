package adapter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/harness/contract/adapter/web"
	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/policy"
)

// Transports of MCP servers (AR-05).
const (
	stdioTransport     = "stdio"
	httpTransport      = "http"
	websocketTransport = "websocket"
)

// ToolsOperation is an operation that every MCP adapter has: it lists the tools of the server.
const ToolsOperation = "tools/list"

// Server is the interface of an MCP server (AR-05).
type Server struct {
	// Server is the command of a server that is started in the sandbox (stdio), or the URL of one
	// that runs elsewhere (http).
	Server string `json:"server"`
	// Args are the arguments of the command.
	Args      []string `json:"args,omitempty"`
	Transport string   `json:"transport"`
	// Tools has the name that the server has for the tool behind an operation.
	Tools map[string]string `json:"tool_mapping"`
}

func (s *Server) check(k *checker) {
	const field = "interface.mcp."
	if strings.TrimSpace(s.Server) == "" {
		k.refuse(field+"server", "", "must not be empty")
	}
	switch s.Transport {
	case stdioTransport:
	case httpTransport:
		for _, p := range web.CheckURL(field+"server", s.Server) {
			k.refuse(p.Path, p.Value, p.Rule)
		}
		if len(s.Args) > 0 {
			k.refuse(field+"args", "", "are for the transport stdio")
		}
	case websocketTransport:
		k.refuse(field+"transport", strict.Quoted(s.Transport), "is not supported: MCP defines stdio and streamable HTTP, and its official SDK has these only; use http")
	default:
		k.refuse(field+"transport", strict.Quoted(s.Transport), "must be one of stdio, http")
	}
	if len(s.Tools) == 0 {
		k.refuse(field+"tool_mapping", "", "must have at least one operation")
	}
	for _, operation := range slices.Sorted(maps.Keys(s.Tools)) {
		if operation == ToolsOperation {
			k.refuse(strict.Path(field+"tool_mapping", operation), "", "is an operation that every server has")
		}
		if s.Tools[operation] == "" {
			k.refuse(strict.Path(field+"tool_mapping", operation), "", "must name a tool of the server")
		}
	}
}

// tool is the call of a tool of an MCP server.
func (x *call) tool() {
	s := x.Interface.MCP
	name := x.operation
	if name != ToolsOperation {
		name = s.Tools[x.operation]
	}
	if s.Transport == httpTransport {
		x.adapted.Target = s.Server + " " + name
		x.adapted.Remote = x.remoteTool
		x.noArguments()
		return
	}
	x.noArguments()
	x.command(s.Server, s.Args)
	x.adapted.Target = s.Server + " " + name
	x.adapted.Talk = func(ctx context.Context, e contract.Effective, stdin io.Writer, stdout io.Reader) contract.Answer {
		return x.session(ctx, e, stdio(stdin, stdout))
	}
}

// maxMessage bounds one message of a server, and maxMessages all of them, in bytes.
const (
	maxMessage  = 16 << 20
	maxMessages = 64 << 20
)

// stdio is the transport of a server whose streams these are.
func stdio(stdin io.Writer, stdout io.Reader) mcp.Transport {
	return &mcp.IOTransport{Reader: io.NopCloser(io.LimitReader(stdout, maxMessages)), Writer: nopCloser{stdin}, MaxLineLength: maxMessage}
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

func (x *call) remoteTool(ctx context.Context, e contract.Effective, egress policy.Egress) contract.Answer {
	way, err := x.registry.web.Session(ctx, egress, maxMessages)
	if err != nil {
		return contract.Answer{Status: contract.StatusUnreachable, Err: err}
	}
	answer := x.session(ctx, e, streamable(x.Interface.MCP.Server, way.HTTP))
	if answer.Status == contract.StatusUnreachable && way.Answered() {
		answer.Status = contract.StatusAnswered // with something else than a result
	}
	return answer
}

func streamable(endpoint string, client *http.Client) mcp.Transport {
	return &mcp.StreamableClientTransport{Endpoint: endpoint, HTTPClient: client, MaxRetries: -1, DisableStandaloneSSE: true, MaxEventSize: maxMessage}
}

// protocolVersion begins a session with initialize, which every server has. A later one begins with
// a request that an older server may leave without an answer.
const protocolVersion = "2025-11-25"

// connect opens a session. The client offers the server nothing: no roots, no sampling, no
// elicitation.
func connect(ctx context.Context, transport mcp.Transport) (*mcp.ClientSession, error) {
	client := mcp.NewClient(&mcp.Implementation{Name: "evalbox", Version: "1"}, &mcp.ClientOptions{Capabilities: &mcp.ClientCapabilities{}})
	session, err := client.Connect(ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: protocolVersion})
	if err != nil {
		return nil, fmt.Errorf("the server did not open an MCP session: %w", bounded(err))
	}
	return session, nil
}

// bounded is an error of a server with a bounded text.
func bounded(err error) error {
	return &boundedError{err}
}

// boundedError shows the beginning of an error.
type boundedError struct{ error }

func (e *boundedError) Error() string { return text.Short(e.error.Error(), 500) }
func (e *boundedError) Unwrap() error { return e.error }

// session calls the tool in a session of its own.
func (x *call) session(ctx context.Context, e contract.Effective, transport mcp.Transport) contract.Answer {
	session, err := connect(ctx, transport)
	if err != nil {
		return failedCall(err, true)
	}
	defer session.Close() //nolint:errcheck // the answer is there
	if x.operation == ToolsOperation {
		tools, err := listTools(ctx, session)
		if err != nil {
			return failedCall(err, false)
		}
		return described(tools)
	}
	res, err := session.CallTool(ctx, &mcp.CallToolParams{Name: x.Interface.MCP.Tools[x.operation], Arguments: x.arguments()})
	if err != nil {
		return failedCall(err, false)
	}
	return toolAnswer(res, int64(e.Stdout), int64(e.Artifacts))
}

// described are the tools of a server as plain data.
func described(tools []Tool) contract.Answer {
	answer := contract.Answer{Status: contract.StatusAnswered}
	text, err := json.Marshal(tools)
	if err == nil {
		answer.Value, err = plain(text)
	}
	answer.Err = err
	return answer
}

// arguments are the parameters as an object.
func (x *call) arguments() map[string]any {
	if x.parameters == nil {
		return map[string]any{}
	}
	return x.parameters
}

// isLocal reports whether an error of JSON-RPC is one that the SDK gives for a broken connection: it
// does not export them.
func isLocal(e *jsonrpc.Error) bool {
	said, known := map[int64]string{-32003: "client is closing", -32004: "server is closing", -32005: "rejected by transport"}[e.Code]
	return known && e.Message == said
}

// failedCall is the answer of a server that did not give a result.
func failedCall(err error, unsent bool) contract.Answer {
	answer := contract.Answer{Status: contract.StatusUnreachable, Unsent: unsent, Err: bounded(err)}
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok && !unsent {
		answer.Err = fmt.Errorf("the server sent something that is not a message of MCP: %w", syntax)
	} else if errors.Is(err, io.EOF) && !unsent {
		answer.Err = errors.New("the server ended before it answered")
	}
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok && !isLocal(wire) {
		code := int(wire.Code)
		answer.Status, answer.Code, answer.Unsent = contract.StatusAnswered, &code, false
		answer.Err = fmt.Errorf("the server answered with error %d: %s", wire.Code, text.Short(wire.Message, 500))
	}
	if refused, ok := errors.AsType[*web.RefusedError](err); ok {
		answer.Status, answer.Unsent, answer.Err = contract.StatusBlocked, false, refused
	}
	return answer
}

// toolAnswer is the result of a tool as plain data. Images and sounds are artifacts; their bytes
// are replaced by the number of the artifact.
func toolAnswer(res *mcp.CallToolResult, most, mostArtifacts int64) contract.Answer {
	answer := contract.Answer{Status: contract.StatusAnswered}
	for i, content := range res.Content {
		var kind string
		var data []byte
		switch content := content.(type) {
		case *mcp.ImageContent:
			kind, data = content.MIMEType, content.Data
			content.Data = nil
		case *mcp.AudioContent:
			kind, data = content.MIMEType, content.Data
			content.Data = nil
		default:
			continue
		}
		if mostArtifacts -= int64(len(data)); mostArtifacts < 0 {
			answer.Err = errors.New("the images of the answer are more than outputs.capture.artifacts_bytes")
			return answer
		}
		answer.Artifacts = append(answer.Artifacts, contract.Base64Artifact(kind, data, fmt.Sprintf("content[%d]", i)))
	}
	encoded, err := json.Marshal(res)
	answer.TextBytes = int64(len(encoded))
	answer.Text = string(encoded[:min(answer.TextBytes, most)])
	switch {
	case err != nil:
		answer.Err = err
	case answer.TextBytes > most:
		answer.Err = fmt.Errorf("the answer has %d bytes, of which %d are captured: raise outputs.capture.stdout_bytes", answer.TextBytes, most)
	case res.IsError:
		answer.Err = fmt.Errorf("the tool reported an error: %s", text.Short(firstText(res), 500))
	default:
		answer.Value, answer.Err = plain(encoded)
	}
	return answer
}

func firstText(res *mcp.CallToolResult) string {
	for _, content := range res.Content {
		if t, ok := content.(*mcp.TextContent); ok {
			return t.Text
		}
	}
	return "without a text"
}

// plain decodes JSON; whole numbers stay whole.
func plain(encoded []byte) (any, error) {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(encoded))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	if rest := bytes.TrimSpace(encoded[decoder.InputOffset():]); len(rest) > 0 {
		return nil, errors.New("there is more behind the value")
	}
	return value, nil
}

// Tool is a tool of an MCP server, as it describes itself.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"input_schema,omitempty"`
}

// maxTools bounds the tools of a server.
const maxTools = 1000

// listTools asks a server for its tools.
func listTools(ctx context.Context, session *mcp.ClientSession) ([]Tool, error) {
	tools := []Tool{}
	for each, err := range session.Tools(ctx, nil) {
		if err != nil {
			return nil, bounded(err)
		}
		if len(tools) == maxTools {
			return nil, fmt.Errorf("the server has more than %d tools", maxTools)
		}
		schema, err := json.Marshal(each.InputSchema)
		if err != nil {
			return nil, err
		}
		tools = append(tools, Tool{each.Name, each.Description, schema})
	}
	return tools, nil
}
