package mcp

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every line has its answer, and none ends the server.
func TestWrongLines(t *testing.T) {
	ping := func(id string) string { return `{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}` }
	for _, test := range []struct {
		line string
		code int // 0 for a result
		id   string
	}{
		{`no JSON`, -32700, "null"},
		{`{"jsonrpc":"2.0","id":1,"meth`, -32700, "null"},
		{ping("1") + ping("2"), -32700, "null"},
		{"{\"jsonrpc\":\"2.0\",\"id\":\"\xff\",\"method\":\"ping\"}", -32700, "null"},
		{"\x00", -32700, "null"},
		{strings.Repeat("[", 100_000), -32700, "null"},
		{`[]`, -32600, "null"},
		{"[" + ping("1") + "]", -32600, "null"},
		{`5`, -32600, "null"},
		{`null`, -32600, "null"},
		{`{}`, -32600, "null"},
		{`{"jsonrpc":"2.0","id":3}`, -32600, "3"},
		{`{"jsonrpc":"2.0","id":"a"}`, -32600, `"a"`},
		{`{"jsonrpc":"2.0","id":3,"METHOD":"ping"}`, -32600, "3"},
		{`{"jsonrpc":"2.0","id":3,"method":4}`, -32600, "3"},
		{`{"jsonrpc":"1.0","id":3,"method":"ping"}`, -32600, "3"},
		{`{"id":3,"method":"ping"}`, -32600, "3"},
		{ping("1.5"), -32600, "null"},
		{ping("9007199254740993"), -32600, "null"},
		{ping("{}"), -32600, "null"},
		{ping("true"), -32600, "null"},
		{ping("null"), -32600, "null"},
		{`{"jsonrpc":"1.0","id":3,"result":{}}`, -32600, "null"},
		{`{"id":3,"error":{"code":1,"message":"no"}}`, -32600, "null"},
		{`{"jsonrpc":"1.0","id":"` + strings.Repeat("a", 2000) + `"}`, -32600, "null"},
		{`{"jsonrpc":"2.0","id":4,"method":"ping","params":"` + strings.Repeat("a", maxMessage) + `"}`, -32600, "null"},
		{`{"jsonrpc":"2.0","id":3,"method":"no/such"}`, -32601, "3"},
		{`{"jsonrpc":"2.0","id":3,"method":""}`, -32601, "3"},
		{`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":5}`, -32602, "3"},
		{`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"none"}}`, -32602, "3"},
		{"  " + ping("5") + " \t\r", 0, "5"},
		{"\n\r\n" + ping(`"`+strings.Repeat("a", 2000)+`"`), 0, `"` + strings.Repeat("a", 2000) + `"`},
		{`{"jsonrpc":"2.0","id":77,"result":{}}` + "\n" + `{"jsonrpc":"2.0","method":"notifications/none"}` + "\n" + ping("6"), 0, "6"},
	} {
		name := test.line[:min(len(test.line), 80)]
		w := begin(t, nil)
		in, toServer := io.Pipe()
		fromServer, out := io.Pipe()
		served := make(chan error, 1)
		go func() { served <- w.serveStdio(t.Context(), in, out) }()
		answers := bufio.NewReader(fromServer)
		say := func(line string) (id string, code int) {
			_, err := io.WriteString(toServer, line+"\n")
			require.NoError(t, err, name)
			text, err := answers.ReadBytes('\n')
			require.NoError(t, err, name)
			require.Less(t, len(text), 10_000, name)
			var a struct {
				Version string          `json:"jsonrpc"`
				ID      json.RawMessage `json:"id"`
				Error   struct {
					Code    int
					Message string
				}
			}
			require.NoError(t, json.Unmarshal(text, &a), name)
			require.Equal(t, "2.0", a.Version, name)
			require.Equal(t, a.Error.Code != 0, a.Error.Message != "", name)
			return string(a.ID), a.Error.Code
		}
		id, code := say(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`)
		require.Equal(t, "0 0", fmt.Sprint(id, " ", code), name)
		_, err := io.WriteString(toServer, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
		require.NoError(t, err)
		id, code = say(test.line)
		require.Equal(t, test.id, id, name)
		require.Equal(t, test.code, code, name)
		id, code = say(ping("8"))
		require.Equal(t, "8 0", fmt.Sprint(id, " ", code), "%s: the server still serves", name)
		require.NoError(t, toServer.Close())
		require.NoError(t, <-served, name)
	}
}
