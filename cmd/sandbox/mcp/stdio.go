package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalbox/evalbox/cmd/sandbox/cli"
	"github.com/evalbox/evalbox/internal/text"
)

// serveStdio serves one client until it goes or ctx ends. Then the programs of its calls have ended.
func (v *server) serveStdio(ctx context.Context, in io.Reader, out io.Writer) error {
	answers := &cli.Locked{Out: out}
	err := v.Run(ctx, &sdk.IOTransport{
		Reader: io.NopCloser(&messages{lines: bufio.NewReaderSize(in, 64<<10), answers: answers}), Writer: openWriter{answers},
		MaxLineLength: -1, // messages bounds them
	})
	if ctx.Err() != nil || err == nil || errors.Is(err, io.EOF) {
		return nil //nolint:nilerr // the client went, or the operator ended the server
	}
	return fmt.Errorf("serving on stdin and stdout: %w", err)
}

// openWriter is a stream that stays open.
type openWriter struct{ io.Writer }

func (openWriter) Close() error { return nil }

// messages are the lines of a client that are messages of JSON-RPC. Every other line is answered
// here, because the SDK ends the connection for it.
type messages struct {
	lines   *bufio.Reader
	answers io.Writer
	// unread is the rest of the last message.
	unread []byte
}

// Read never reads beyond one message.
func (m *messages) Read(p []byte) (int, error) {
	for len(m.unread) == 0 {
		line, long, err := m.line()
		line = bytes.TrimSpace(line)
		if wrong := check(line, long); wrong != nil {
			if _, err := m.answers.Write(wrong.answer()); err != nil {
				return 0, err
			}
		} else if len(line) > 0 {
			m.unread = append(line, '\n')
		}
		if err != nil && len(m.unread) == 0 {
			return 0, err
		}
	}
	n := copy(p, m.unread)
	m.unread = m.unread[n:]
	return n, nil
}

// line reads the next line with its end. Of a long one nothing is kept.
func (m *messages) line() (line []byte, long bool, err error) {
	for {
		part, err := m.lines.ReadSlice('\n')
		if long = long || len(line)+len(part) > maxMessage; long {
			line = nil
		} else {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, long, err
		}
	}
}

// A wrongLine is a line that is not a message.
type wrongLine struct {
	id   json.RawMessage
	code int64
	rule string
}

// check says what is wrong with a line; nil if nothing is. An empty line is nothing.
func check(line []byte, long bool) *wrongLine {
	switch {
	case long:
		return &wrongLine{code: jsonrpc.CodeInvalidRequest, rule: "the line has more than " + text.Size(maxMessage)}
	case len(line) == 0:
		return nil
	case !utf8.Valid(line):
		return &wrongLine{code: jsonrpc.CodeParseError, rule: "the line is not UTF-8"}
	case !json.Valid(line):
		return &wrongLine{code: jsonrpc.CodeParseError, rule: "the line is not one JSON value"}
	case line[0] == '[':
		return &wrongLine{code: jsonrpc.CodeInvalidRequest, rule: "the line is a batch: send each message in a line of its own"}
	}
	var m map[string]json.RawMessage
	if json.Unmarshal(line, &m) != nil || m == nil {
		return &wrongLine{code: jsonrpc.CodeInvalidRequest, rule: "the message is not an object"}
	}
	if !mayBeID(m["id"]) || m["method"] != nil && string(m["id"]) == "null" {
		return &wrongLine{code: jsonrpc.CodeInvalidRequest, rule: "id: must be a text or a whole number, not larger than 2^53"}
	}
	wrong := &wrongLine{m["id"], jsonrpc.CodeInvalidRequest, ""}
	if m["method"] == nil && (m["result"] != nil || m["error"] != nil) {
		wrong.id = nil // it answers a request of the server: the client does not know the ID
	}
	var word string
	switch _, err := jsonrpc.DecodeMessage(line); {
	case json.Unmarshal(m["jsonrpc"], &word) != nil || word != "2.0":
		wrong.rule = `jsonrpc: must be "2.0"`
	case m["method"] == nil && m["result"] == nil && m["error"] == nil:
		wrong.rule = "method: is missing"
	case m["method"] != nil && json.Unmarshal(m["method"], &word) != nil:
		wrong.rule = "method: must be a text"
	case err != nil:
		wrong.rule = text.Short(err.Error(), 200)
	default:
		return nil
	}
	return wrong
}

// mayBeID reports whether a value is the ID of a message, or none. The SDK changes other numbers.
func mayBeID(id json.RawMessage) bool {
	var word string
	var number int64
	return id == nil || json.Unmarshal(id, &word) == nil ||
		json.Unmarshal(id, &number) == nil && -1<<53 <= number && number <= 1<<53
}

// maxEcho bounds the ID of a wrong message in its answer, in bytes.
const maxEcho = 1 << 10

// answer is the answer to a wrong line. Its ID is null if the line has none, or a long one.
func (w wrongLine) answer() []byte {
	id := json.RawMessage("null")
	if w.id != nil && len(w.id) <= maxEcho {
		id = w.id
	}
	line, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "error": map[string]any{"code": w.code, "message": w.rule}})
	if err != nil {
		panic(err) // the ID is JSON, and all else is plain
	}
	return append(line, '\n')
}
