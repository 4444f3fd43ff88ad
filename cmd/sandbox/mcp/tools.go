package mcp

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalbox/evalbox/internal/strict"
	"github.com/evalbox/evalbox/internal/text"
)

// object is the JSON Schema of the arguments of a tool.
func object(required []string, properties map[string]any) map[string]any {
	schema := map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

func typed(kind, description string) map[string]any {
	return map[string]any{"type": kind, "description": description}
}

func texts(description string) map[string]any {
	return map[string]any{"type": "array", "items": map[string]any{"type": "string"}, "description": description}
}

func number(kind, description string, low, high int) map[string]any {
	p := typed(kind, description)
	p["minimum"], p["maximum"] = low, high
	return p
}

// A call is one call of a tool. args are its arguments, a JSON object.
type call struct {
	args     json.RawMessage
	progress *progress
}

// tool adds a tool. do returns the structured answer and its text. The error of do becomes an
// answer with isError.
func (v *server) tool(t *sdk.Tool, do func(ctx context.Context, c *call) (answer, error)) {
	schema, _ := t.InputSchema.(map[string]any)
	properties, _ := schema["properties"].(map[string]any)
	v.AddTool(t, func(ctx context.Context, req *sdk.CallToolRequest) (*sdk.CallToolResult, error) {
		header := map[string][]string{}
		if req.Extra != nil {
			header = req.Extra.Header
		}
		ctx, end, err := v.calls.begin(ctx, req.Session.ID(), header)
		if err != nil {
			return errorAnswer(err), nil
		}
		defer end()
		if err := onlyKeys(req.Params.Arguments, properties); err != nil {
			return errorAnswer(err), nil
		}
		c := &call{args: req.Params.Arguments, progress: newProgress(ctx, req)}
		a, err := do(ctx, c)
		c.progress.end()
		if err != nil {
			return errorAnswer(err), nil
		}
		return a.wire()
	})
}

// onlyKeys refuses a key that the schema of a tool does not have: no key may have a meaning for a
// harness, and none for this server. Arguments of another form are refused by the tool.
func onlyKeys(args json.RawMessage, properties map[string]any) error {
	var given map[string]json.RawMessage
	if json.Unmarshal(args, &given) != nil {
		return nil
	}
	var problems []string
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if _, known := properties[key]; !known {
			problems = append(problems, "unknown key "+text.Quote(key, 80))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return refusef(schemaHint, "arguments: %s; there are %s", text.First(problems, 5, "; "), strings.Join(slices.Sorted(maps.Keys(properties)), ", "))
}

// work adds a tool that runs programs. It waits for its turn, and its errors are those of the
// guard, in place of what a harness made of them.
func (v *server) work(t *sdk.Tool, do func(ctx context.Context, c *call) (answer, error)) {
	v.tool(t, func(ctx context.Context, c *call) (answer, error) {
		release, err := v.calls.turn(ctx)
		if err != nil {
			return answer{}, err
		}
		defer release()
		first := &firstError{}
		a, err := do(context.WithValue(ctx, refusedKey{}, first), c)
		if cause := first.get(); cause != nil && err != nil {
			return answer{}, cause
		}
		return a, err
	})
}

// decode reads the arguments of a tool, strictly.
func decode(args json.RawMessage, into any) error {
	if len(args) == 0 || string(args) == "null" {
		args = json.RawMessage("{}")
	}
	problems := strict.Decode(args, into, strict.Options{Tag: "json"})
	if len(problems) == 0 {
		return nil
	}
	return refusef(schemaHint, "%s", strict.Join("arguments", problems))
}

// readOnly are the annotations of a tool that only reads.
var readOnly = &sdk.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, OpenWorldHint: new(bool)}

func (v *server) addTools(o options) error {
	v.addRunTools()
	v.addReadTools()
	return v.addHarnesses(o)
}
