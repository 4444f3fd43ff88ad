// Command filesystem-server is an MCP server for files, on stdio. Tests run it in the sandbox.
package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type file struct {
	Path string `json:"path"`
}

type written struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

func main() {
	server := mcp.NewServer(&mcp.Implementation{Name: "filesystem-server", Version: "1.0.0"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "read_file", Description: "The text of a file, or an image."}, read)
	mcp.AddTool(server, &mcp.Tool{Name: "write_file", Description: "Writes a file."}, write)
	mcp.AddTool(server, &mcp.Tool{Name: "list_directory", Description: "The names in a directory."}, list)
	if err := server.Run(context.Background(), &mcp.StdioTransport{}); err != nil && os.Getenv("VERBOSE") != "" {
		fmt.Fprintln(os.Stderr, err)
	}
}

func text(words string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: words}}}
}

func read(_ context.Context, _ *mcp.CallToolRequest, in file) (*mcp.CallToolResult, any, error) {
	data, err := os.ReadFile(in.Path)
	if err != nil {
		return nil, nil, err
	}
	if strings.HasSuffix(in.Path, ".png") {
		if data, err = base64.StdEncoding.DecodeString(string(data)); err != nil {
			return nil, nil, err
		}
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.ImageContent{Data: data, MIMEType: "image/png"}}}, nil, nil
	}
	return text(string(data)), nil, nil
}

func write(_ context.Context, _ *mcp.CallToolRequest, in written) (*mcp.CallToolResult, any, error) {
	if in.Path == "/die" {
		os.Exit(3)
	}
	if in.Path == "/hang" {
		select {}
	}
	if err := os.WriteFile(in.Path, []byte(in.Content), 0o600); err != nil {
		return nil, nil, err
	}
	return text("written"), nil, nil
}

func list(_ context.Context, _ *mcp.CallToolRequest, in file) (*mcp.CallToolResult, any, error) {
	entries, err := os.ReadDir(in.Path)
	if err != nil {
		return nil, nil, err
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return text(strings.Join(names, "\n")), nil, nil
}
