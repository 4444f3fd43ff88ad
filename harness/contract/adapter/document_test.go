package adapter

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/internal/strict"
)

// goodAdapter has every member that an adapter for a command can have.
const goodAdapter = `schema: evalbox/adapter/v1
adapter_id: A-1
name: search
version: "1.2.3"
tool_id: T-1
tool_version: "7"
type: cli
interface:
  cli:
    executable: cat
    base_args: ["--json"]
    arg_mapping:
      z: "-z {value}"
      a: "{a}"
      on: "-i"
    env_mapping:
      lang: LC_ALL
transforms:
  input:
    - type: default
      spec: {z: 1}
  output:
    - type: parse
      spec: json
errors:
  retry:
    max_attempts: 3
    backoff_ms: 500
    retryable_codes: [1, 143]
  fallback:
    adapter_id: A-2
    condition: timeout
sandbox_override:
  timeout_ms: 5000
  memory_mb: 128
  network: {enabled: true, allow: [a.example]}
cacheable: [run]
examples:
  - name: first
    operation: run
    parameters: {a: x}
metadata:
  author: me
  created: "2026-01-31"
  updated: "2026-01-31T12:00:00Z"
  status: experimental
`

func parsed(t *testing.T, document string) *Adapter {
	t.Helper()
	a, err := Parse([]byte(document), "a.yaml")
	require.NoError(t, err)
	return a
}

func TestParse(t *testing.T) {
	a := parsed(t, goodAdapter)
	require.Equal(t, "A-1", a.ID)
	require.Equal(t, strict.Pairs{{Key: "z", Value: "-z {value}"}, {Key: "a", Value: "{a}"}, {Key: "on", Value: "-i"}}, a.Interface.CLI.ArgMapping)
	require.Equal(t, Retry{3, 500, []int{1, 143}}, a.Errors.Retry)
	require.Equal(t, &Fallback{"A-2", "timeout"}, a.Errors.Fallback)
	require.Equal(t, Experimental, a.Metadata.Status)
	require.Equal(t, []string{"run"}, a.Operations())

	least := parsed(t, `{"adapter_id": "A", "name": "n", "version": "0.1.0-rc.1", "tool_id": "T", "type": "cli", "interface": {"cli": {"executable": "x"}}}`)
	require.Equal(t, SchemaV1, least.Schema)
	require.Equal(t, Active, least.Metadata.Status)
	require.Zero(t, least.Errors)
}

// Every problem is reported with the line of its field.
func TestParseProblems(t *testing.T) {
	for name, test := range map[string]struct{ old, replacement, want string }{
		"another schema":  {"adapter/v1", "adapter/v2", `a.yaml:1: schema: want "evalbox/adapter/v1", have "evalbox/adapter/v2"`},
		"an unknown key":  {"name: search", "nam: search", `a.yaml:3: unknown key "nam"`},
		"a key below":     {"executable: cat", "executabel: cat", `a.yaml:10: unknown key "executabel" in interface.cli`},
		"an ID":           {"A-1", "../x", `a.yaml:2: adapter_id: "../x" must be`},
		"a tool":          {"tool_id: T-1", "tool_id: ''", `a.yaml:5: tool_id:`},
		"no name":         {"name: search", "name: ' '", "a.yaml:3: name: must not be empty"},
		"a version":       {`"1.2.3"`, `"1.2"`, `a.yaml:4: version: "1.2" must be a semantic version such as 1.0.0`},
		"a number":        {`"1.2.3"`, `1.2`, `a.yaml:4: version: 1.2 must be text: put it in quotes`},
		"a type":          {"type: cli", "type: rpc", `a.yaml:7: type: "rpc" must be one of cli, api, sdk, mcp`},
		"another type":    {"type: cli", "type: api", "a.yaml:9: interface.api: is missing"},
		"its interface":   {"type: cli", "type: api", "a.yaml:10: interface.cli: is for adapters of type cli"},
		"a status":        {"status: experimental", "status: on hold", `metadata.status: "on hold" must be one of active, deprecated, experimental`},
		"a date":          {`"2026-01-31"`, `"31.1.2026"`, `metadata.created: "31.1.2026" must be a date or a time`},
		"no executable":   {"executable: cat", "executable: ''", "a.yaml:10: interface.cli.executable: must not be empty"},
		"a template":      {"-z {value}", "-z {val}", `a.yaml:13: interface.cli.arg_mapping.z: "-z {val}" has the unknown name {val}: the value is {value} or {z}`},
		"a quote":         {`"-i"`, `"'-i"`, "a.yaml:15: interface.cli.arg_mapping.on: \"'-i\" has a quote that does not end"},
		"a variable":      {"LC_ALL", "LD_PRELOAD", `a.yaml:17: interface.cli.env_mapping.lang: "LD_PRELOAD"`},
		"a bad variable":  {"LC_ALL", "A=B", `a.yaml:17: interface.cli.env_mapping.lang: "A=B"`},
		"an input step":   {"type: default", "type: parse", `a.yaml:20: transforms.input[0].type: "parse" must be one of`},
		"an output step":  {"spec: json\n", "spec: toml\n", "a.yaml:24: transforms.output[0].spec:"},
		"no attempt":      {"max_attempts: 3", "max_attempts: 0", "a.yaml:27: errors.retry.max_attempts: 0 must be between 1 and 10"},
		"eleven attempts": {"max_attempts: 3", "max_attempts: 11", "a.yaml:27: errors.retry.max_attempts: 11 must be between 1 and 10"},
		"a pause":         {"backoff_ms: 500", "backoff_ms: -1", "a.yaml:28: errors.retry.backoff_ms: -1 must not be negative"},
		"a code":          {"[1, 143]", "[1, 429]", "a.yaml:29: errors.retry.retryable_codes[1]: 429 is not between 0 and 255: adapters of type cli have exit codes"},
		"a fallback":      {"adapter_id: A-2", "adapter_id: a/b", `a.yaml:31: errors.fallback.adapter_id: "a/b"`},
		"a condition":     {"condition: timeout", "condition: '429;503'", `a.yaml:32: errors.fallback.condition: "429;503" must be any, timeout, unavailable, or codes`},
		"a limit":         {"timeout_ms: 5000", "timeout_ms: 0", "a.yaml:34: sandbox_override.timeout_ms: 0 must be more than 0"},
		"a host":          {"[a.example]", "[a b]", `a.yaml:36: sandbox_override.network.allow[0]: "a b"`},
		"what is cached":  {"[run]", "[walk]", `a.yaml:37: cacheable[0]: "walk" is not an operation, and not "*": there are run`},
		"an example":      {"operation: run", "operation: walk", `a.yaml:40: examples[0].operation: "walk" is not an operation: there are run`},
		"its name":        {"name: first", "name: a/b", `a.yaml:39: examples[0].name: "a/b"`},
		"null":            {"name: search", "name: null", "a.yaml:3: name: must not be null"},
		"a key twice":     {"name: search", "name: search\nname: other", "is given twice"},
		"both statuses":   {"metadata:", "status: active\nmetadata:", "a.yaml:42: status: is the same as metadata.status, which is given as well"},
		"both interfaces": {"metadata:", "cli: {executable: x}\nmetadata:", "a.yaml:42: cli: is the same as interface.cli, which is given as well"},
		"both errors":     {"metadata:", "error_handling: {retry: {max_attempts: 2}}\nmetadata:", "a.yaml:42: error_handling: is the same as errors, which is given as well"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, goodAdapter, test.old)
			_, err := Parse([]byte(strings.Replace(goodAdapter, test.old, test.replacement, 1)), "a.yaml")
			require.ErrorContains(t, err, test.want)
		})
	}
	_, err := Parse([]byte(strings.Repeat(" ", MaxDocument+1)), "a.yaml")
	require.EqualError(t, err, "a.yaml: has more than 1MiB")
}

// All problems are reported at once, in the order of the document, and always the same.
func TestParseAllProblems(t *testing.T) {
	document := strings.NewReplacer(`"1.2.3"`, "one", "max_attempts: 3", "max_attempts: 20", "timeout_ms: 5000", "timeout_ms: -1",
		"memory_mb: 128", "memory_mb: 0", `"2026-01-31"`, "then", `"2026-01-31T12:00:00Z"`, "later", "tool_id: T-1", "tool_id: ' '").Replace(goodAdapter)
	_, first := Parse([]byte(document), "a.yaml")
	var fields []string
	for line := range strings.SplitSeq(first.Error(), "\n") {
		fields = append(fields, strings.Join(strings.Split(line, ":")[1:3], ":"))
	}
	require.Equal(t, []string{"4: version", "5: tool_id", "27: errors.retry.max_attempts", "34: sandbox_override.timeout_ms",
		"35: sandbox_override.memory_mb", "44: metadata.created", "45: metadata.updated"}, fields)
	for range 20 {
		_, err := Parse([]byte(document), "a.yaml")
		require.EqualError(t, err, first.Error())
	}
}

// Members may have the names that implementations of the specification use.
func TestParseAliases(t *testing.T) {
	const document = `adapter_id: A
name: n
version: "1.0.0"
tool_id: T
type: cli
status: deprecated
cli:
  executable: x
  arg_mapping: {a: "{a}"}
error_handling:
  retry: {max_attempts: 2, retryable_codes: [7]}
  fallback: null
`
	a := parsed(t, document)
	require.Equal(t, Deprecated, a.Metadata.Status)
	require.Equal(t, "x", a.Interface.CLI.Executable)
	require.Equal(t, Retry{MaxAttempts: 2, RetryableCodes: []int{7}}, a.Errors.Retry)
	require.Nil(t, a.Errors.Fallback)
	for old, want := range map[string][2]string{
		"executable: x":   {"executable: ''", "a.yaml:8: interface.cli.executable: must not be empty"},
		`"{a}"`:           {`"{b}"`, "a.yaml:9: interface.cli.arg_mapping.a: "},
		"max_attempts: 2": {"max_attempts: 0", "a.yaml:11: errors.retry.max_attempts: 0 must be between 1 and 10"},
		"[7]":             {"[7, 256]", "a.yaml:11: errors.retry.retryable_codes[1]: 256"},
		"deprecated":      {"gone", `a.yaml:6: metadata.status: "gone"`},
		"type: cli":       {"type: cli\nerrors: {retry: {backoff_ms: 1}}", "error_handling: is the same as errors"},
	} {
		_, err := Parse([]byte(strings.Replace(document, old, want[0], 1)), "a.yaml")
		require.ErrorContains(t, err, want[1])
	}
	for kind, text := range map[Type]string{
		API: `api: {base_url: "https://a.example", endpoint_mapping: {get: "GET /a"}}`,
		SDK: `sdk: {language: python, package: json, function_mapping: {get: dumps(obj)}}`,
		MCP: `mcp: {server: x, transport: stdio, tool_mapping: {get: read}}`,
	} {
		a := parsed(t, "{adapter_id: A, name: n, version: 1.0.0, tool_id: T, type: "+string(kind)+", "+text+"}")
		require.Equal(t, map[Type][]string{API: {"get"}, SDK: {"get"}, MCP: {"get", ToolsOperation}}[kind], a.Operations(), kind)
	}
}

// An example may use every operation, also the one that every server has.
func TestExamplesOfAServer(t *testing.T) {
	const document = `{adapter_id: A, name: n, version: 1.0.0, tool_id: T, type: mcp, mcp: {server: x, transport: stdio, tool_mapping: {get: read}},
cacheable: [tools/list], examples: [{name: all, operation: tools/list}, {name: one, operation: get}]}`
	parsed(t, document)
	_, err := Parse([]byte(strings.Replace(document, "operation: tools/list", "operation: tools/call", 1)), "a.yaml")
	require.ErrorContains(t, err, `examples[0].operation: "tools/call" is not an operation: there are get, tools/list`)
}

// The codes of a type decide which ones may be listed.
func TestRetryableCodes(t *testing.T) {
	for document, want := range map[string]string{
		`type: api, api: {base_url: "https://a.example", endpoint_mapping: {get: "GET /a"}}, errors: {retry: {retryable_codes: [100, 429, 599]}}`: "",
		`type: api, api: {base_url: "https://a.example", endpoint_mapping: {get: "GET /a"}}, errors: {retry: {retryable_codes: [99]}}`:            "99 is not between 100 and 599: adapters of type api have HTTP statuses",
		`type: mcp, mcp: {server: x, transport: stdio, tool_mapping: {get: read}}, errors: {retry: {retryable_codes: [-32603, 1]}}`:               "",
		`type: sdk, sdk: {language: python, package: json, function_mapping: {get: dumps}}, errors: {retry: {retryable_codes: [-1]}}`:             "-1 is not between 0 and 255: adapters of type sdk have exit codes",
	} {
		_, err := Parse([]byte("{adapter_id: A, name: n, version: 1.0.0, tool_id: T, "+document+"}"), "a.yaml")
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

// The shipped adapters are for the shipped tools, and their commands are permitted.
func TestShippedAdapters(t *testing.T) {
	tools, err := registry.Parse(configs.Tools(), "tools.yaml")
	require.NoError(t, err)
	names, err := fs.Glob(configs.Adapters(), "*")
	require.NoError(t, err)
	require.NotEmpty(t, names)
	r, err := Open("", configs.Adapters(), nil)
	require.NoError(t, err)
	require.NoError(t, r.CheckAll())
	require.Len(t, r.List(""), len(names))
	for _, each := range r.List("") {
		a, err := r.Resolve(each.ID, "")
		require.NoError(t, err)
		tool, ok := tools.Tool(a.ToolID)
		require.True(t, ok, a.ID)
		require.True(t, a.matches(tool), "%s is for %s, and the tool is %s", a.ID, a.forVersion(), tool.Version)
		require.NotEqual(t, registry.Blocked, tool.Status)
		if command := a.Interface.CLI; command != nil {
			require.Contains(t, tool.Scope.Commands, command.Executable)
			for _, argument := range command.BaseArgs {
				require.True(t, tool.Permits(argument), argument)
			}
		}
		if server := a.Interface.MCP; server != nil {
			require.Contains(t, tool.Scope.Commands, server.Server)
		}
		if o := a.SandboxOverride.Network; o != nil {
			for _, host := range o.Allow {
				require.True(t, slices.Contains(tool.Scope.Endpoints, host), host)
			}
		}
	}
}

// An unknown key does not hide what else is wrong, and a field with a wrong form is reported once.
func TestFormAndValues(t *testing.T) {
	_, err := Parse([]byte("adapter_id: A\nname: 7\nversion: \"1\"\ntool_id: T\ntype: cli\ninterface: {cli: {executable: 3}}\nextra: 1\n"), "a.yaml")
	require.EqualError(t, err, `a.yaml:2: name: 7 must be text: put it in quotes, is a number
a.yaml:3: version: "1" must be a semantic version such as 1.0.0
a.yaml:6: interface.cli.executable: 3 must be text: put it in quotes, is a number
a.yaml:7: unknown key "extra"; there are adapter_id, api, cacheable, cli, error_handling, errors, examples, interface, mcp, metadata, name, sandbox_override, schema, sdk, status, tool_id, tool_version, transforms, type, version`)
}
