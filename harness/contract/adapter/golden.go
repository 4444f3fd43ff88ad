package adapter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/harness/contract"
	"github.com/evalbox/evalbox/internal/fsx"
)

// Golden are the values of the examples of an adapter, in a directory: NAME.json each. They stay
// until somebody replaces them (DT-02).
type Golden struct{ Dir string }

// GoldenOf is beside the document of the adapter, golden/ID. That of a shipped adapter is in the
// state directory.
func (r *Registry) GoldenOf(id, stateDir string) Golden {
	if source := r.Source(id); source != "" {
		return Golden{filepath.Join(filepath.Dir(source), "golden", id)}
	}
	return Golden{filepath.Join(stateDir, "adapters", "golden", id)}
}

// maxGolden bounds a value, in bytes.
const maxGolden = 16 << 20

// Read returns the value of an example, nil if there is none.
func (g Golden) Read(example string) (json.RawMessage, error) {
	text, err := fsx.Read(filepath.Join(g.Dir, example+".json"), maxGolden)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && !json.Valid(text) {
		err = errors.New("is not JSON")
	}
	if err != nil {
		return nil, fmt.Errorf("golden output %s: %w", filepath.Join(g.Dir, example+".json"), fsx.Cause(err))
	}
	return bytes.TrimSpace(text), nil
}

// Write replaces the value of an example.
func (g Golden) Write(example string, value any) error {
	text, err := encodeGolden(value)
	if err == nil {
		err = os.MkdirAll(g.Dir, 0o755) // it may be under version control
	}
	if err == nil {
		err = fsx.WriteFile(filepath.Join(g.Dir, example+".json"), append(text, '\n'), 0o644, true)
	}
	if err != nil {
		return fmt.Errorf("golden output of %s: %w", example, fsx.Cause(err))
	}
	return nil
}

// Same reports whether a value is that of the example. It compares values, not their form.
func (g Golden) Same(golden json.RawMessage, value any) (bool, error) {
	want, err := plain(golden)
	if err != nil {
		return false, err
	}
	a, err := encodeGolden(want)
	if err != nil {
		return false, err
	}
	b, err := encodeGolden(value)
	return bytes.Equal(a, b), err
}

func encodeGolden(value any) ([]byte, error) { return json.MarshalIndent(value, "", "  ") }

// Fixtures are all values, by the name of their example.
func (g Golden) Fixtures(a *Adapter) (map[string]json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	for _, e := range a.Examples {
		value, err := g.Read(e.Name)
		if err != nil {
			return nil, err
		}
		if value != nil {
			all[e.Name] = value
		}
	}
	return all, nil
}

// Contract is an example as a contract.
func (e Example) Contract(a *Adapter) contract.Contract {
	c := contract.Contract{
		Schema: contract.SchemaV1, ToolID: a.ToolID, AdapterID: a.ID,
		Inputs: contract.Inputs{Operation: e.Operation, Parameters: e.Parameters, Arguments: e.Arguments},
	}
	if e.Stdin != "" {
		c.Inputs.Stdin = &e.Stdin
	}
	return c
}

// KnownTools returns the tools that the server of an MCP adapter described within the last hour
// (DT-02).
func (r *Registry) KnownTools(a *Adapter) ([]Tool, bool) { return r.cache.tools(a) }

// DescribeTools asks the server of an MCP adapter for its tools, and remembers them for an hour
// (DT-02). A server in the sandbox is started for that.
func (r *Registry) DescribeTools(ctx context.Context, h *contract.Harness, a *Adapter) (tools []Tool, err error) {
	o, err := h.Run(ctx, contract.Job{Contract: new(Example{Operation: ToolsOperation}.Contract(a))})
	if err == nil {
		err = o.Err()
	}
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(o.Call.Value)
	if err == nil {
		err = json.Unmarshal(text, &tools)
	}
	if err == nil && r.cache != nil {
		r.cache.keepTools(a, tools)
	}
	return tools, err
}
