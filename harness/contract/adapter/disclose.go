package adapter

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/harness/contract"
)

// Level says how much of an adapter is shown (PD-01).
type Level int

// Levels of disclosure. Each has all of the one before.
const (
	L0 Level = iota // adapter_id, name, tool_id, type: to list adapters
	L1              // version, status and a summary of the interface: to choose one
	L2              // the whole interface, transforms, errors and limits: to execute it
	L3              // metadata, schemas of the parameters, examples and golden outputs: to develop it
)

// ParseLevel reads L0 to L3. The letter may be left out.
func ParseLevel(text string) (Level, error) {
	level := slices.Index([]string{"0", "1", "2", "3"}, strings.TrimPrefix(strings.ToUpper(text), "L"))
	if level < 0 {
		return 0, fmt.Errorf("%.100q is not a level: there are L0, L1, L2 and L3", text)
	}
	return Level(level), nil
}

// Disclosure is what a level shows of an adapter. Members that the level does not show are left
// out.
type Disclosure struct {
	ID     string `json:"adapter_id"`
	Name   string `json:"name"`
	ToolID string `json:"tool_id"`
	Type   Type   `json:"type"`

	Version string         `json:"version,omitempty"`
	Status  Status         `json:"status,omitempty"`
	Summary map[string]any `json:"interface_summary,omitempty"`

	ToolVersion     string             `json:"tool_version,omitempty"`
	Interface       *Interface         `json:"interface,omitempty"`
	Transforms      *Transforms        `json:"transforms,omitempty"`
	Errors          *Errors            `json:"errors,omitempty"`
	SandboxOverride *contract.Override `json:"sandbox_override,omitempty"`

	Schema    string                     `json:"schema,omitempty"`
	Cacheable []string                   `json:"cacheable,omitempty"`
	Metadata  *Metadata                  `json:"metadata,omitempty"`
	Schemas   map[string]json.RawMessage `json:"parameter_schemas,omitempty"`
	Examples  []Example                  `json:"examples,omitempty"`
	// Fixtures are the golden outputs, by the name of their example.
	Fixtures map[string]json.RawMessage `json:"fixtures,omitempty"`
	// Tools are the tools of an MCP server, as it described them last.
	Tools []Tool `json:"tools,omitempty"`
}

// Disclose shows an adapter at a level. A level outside of L0 to L3 is the nearest one. Fixtures
// and Tools are left out: they are not in the document.
func (a *Adapter) Disclose(level Level) Disclosure {
	d := Disclosure{ID: a.ID, Name: a.Name, ToolID: a.ToolID, Type: a.Type}
	if level >= L1 {
		d.Version, d.Status, d.Summary = a.Version, a.Metadata.Status, a.summary()
	}
	if level >= L2 {
		d.ToolVersion = a.ToolVersion
		d.Interface, d.Transforms, d.Errors, d.SandboxOverride = &a.Interface, &a.Transforms, &a.Errors, &a.SandboxOverride
	}
	if level >= L3 {
		d.Schema, d.Cacheable, d.Metadata, d.Examples = a.Schema, a.Cacheable, &a.Metadata, a.Examples
		d.Schemas = map[string]json.RawMessage{}
		for _, operation := range a.Operations() {
			if text, err := json.Marshal(a.parameterSchema(operation)); err == nil {
				d.Schemas[operation] = text
			}
		}
	}
	return d
}

// summary is the interface in a few members.
func (a *Adapter) summary() map[string]any {
	switch in := a.Interface; a.Type {
	case CLI:
		return map[string]any{"executable": in.CLI.Executable, "parameters": in.CLI.parameters()}
	case API:
		return map[string]any{"base_url": in.API.BaseURL, "operations": a.Operations()}
	case SDK:
		return map[string]any{"language": in.SDK.Language, "package": in.SDK.Package, "operations": a.Operations()}
	case MCP:
		return map[string]any{"server": in.MCP.Server, "transport": in.MCP.Transport, "operations": a.Operations()}
	}
	return nil
}

// runOperation is the one operation of a command.
const runOperation = "run"

// Operations are the names of all operations, sorted; tools/list, which every MCP server has, is the last.
func (a *Adapter) Operations() []string {
	switch in := a.Interface; {
	case a.Type == API && in.API != nil:
		return slices.Sorted(maps.Keys(in.API.Endpoints))
	case a.Type == SDK && in.SDK != nil:
		return slices.Sorted(maps.Keys(in.SDK.Functions))
	case a.Type == MCP && in.MCP != nil:
		return append(slices.Sorted(maps.Keys(in.MCP.Tools)), ToolsOperation)
	}
	return []string{runOperation}
}
