package adapter

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDisclose(t *testing.T) {
	l0 := []string{"adapter_id", "name", "tool_id", "type"}
	l1 := slices.Concat(l0, []string{"interface_summary", "status", "version"})
	l2 := slices.Concat(l1, []string{"errors", "interface", "sandbox_override", "tool_version", "transforms"})
	l3 := slices.Concat(l2, []string{"cacheable", "examples", "metadata", "parameter_schemas", "schema"})
	a := parsed(t, goodAdapter)
	for level, want := range map[Level][]string{-1: l0, L0: l0, L1: l1, L2: l2, L3: l3, 99: l3} {
		text, err := json.Marshal(a.Disclose(level))
		require.NoError(t, err)
		var members map[string]any
		require.NoError(t, json.Unmarshal(text, &members))
		require.ElementsMatch(t, want, slices.Collect(maps.Keys(members)), level)
	}
	d := a.Disclose(L3)
	require.Equal(t, map[string]any{"executable": "cat", "parameters": []string{"z", "a", "on", "lang"}}, d.Summary)
	require.JSONEq(t, `{"type": "object", "properties": {"z": true, "a": true, "on": true, "lang": true}, "additionalProperties": false}`, string(d.Schemas["run"]))
	text, err := json.Marshal(d.Interface)
	require.NoError(t, err)
	require.Contains(t, string(text), `"arg_mapping":{"z":"-z {value}","a":"{a}","on":"-i"}`, "the order is that of the document")
}

func TestSummaries(t *testing.T) {
	const head = "{adapter_id: A, name: n, version: 1.0.0, tool_id: T, "
	for document, want := range map[string]map[string]any{
		`type: api, api: {base_url: "https://a.example", endpoint_mapping: {put: "PUT /a/{id}", get: "GET /a"}}}`: {"base_url": "https://a.example", "operations": []string{"get", "put"}},
		`type: sdk, sdk: {language: python, package: json, function_mapping: {write: dumps(obj)}}}`:               {"language": "python", "package": "json", "operations": []string{"write"}},
		`type: mcp, mcp: {server: x, transport: stdio, tool_mapping: {read: r}}}`:                                 {"server": "x", "transport": "stdio", "operations": []string{"read", "tools/list"}},
	} {
		require.Equal(t, want, parsed(t, head+document).Disclose(L1).Summary)
	}
	a := parsed(t, head+`type: sdk, sdk: {language: rust, package: std, import_path: "std::cmp", function_mapping: {most: "max(&a, b.into())"}}}`)
	var schema struct{ Required []string }
	require.NoError(t, json.Unmarshal(a.Disclose(L3).Schemas["most"], &schema))
	require.Equal(t, []string{"a", "b"}, schema.Required)
}

func TestParseLevel(t *testing.T) {
	for text, want := range map[string]Level{"L0": L0, "l1": L1, "2": L2, "L3": L3} {
		got, err := ParseLevel(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "L", "L4", "-1", "LL1", "all"} {
		_, err := ParseLevel(text)
		require.ErrorContains(t, err, "is not a level: there are L0, L1, L2 and L3")
	}
}
