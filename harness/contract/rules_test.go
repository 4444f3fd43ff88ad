package contract

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/harness/contract/registry"
	"github.com/evalbox/evalbox/policy"
)

func testProfiles(t testing.TB) policy.Profiles {
	t.Helper()
	profiles, err := policy.ParseProfiles(configs.Profiles(), "profiles.yaml")
	require.NoError(t, err)
	return profiles
}

func testRules(t testing.TB) Rules {
	t.Helper()
	text, err := os.ReadFile("registry/testdata/tools.yaml")
	require.NoError(t, err)
	tools, err := registry.Parse(text, "tools.yaml")
	require.NoError(t, err)
	return Rules{Registry: tools, Profiles: testProfiles(t)}
}

// linesOf are violations as one line each.
func linesOf(violations []Violation) []string {
	var lines []string
	for _, v := range violations {
		lines = append(lines, v.String())
	}
	return lines
}

// TestBadInput is every field, wrong in every way. A document is a minimal one with lines
// in place of its parts.
func TestBadInput(t *testing.T) {
	const text, whole = "must be text: put it in quotes, is a number", "must be a whole number in decimal digits"
	long := strings.Repeat("x", 5000)
	many := func(n int, item string) string { return "[" + strings.Repeat(item+",", n) + "]" }
	rules := testRules(t)
	for name, test := range map[string]struct {
		text  string
		wants []string
	}{
		// The document.
		"nothing":          {"", []string{"CX-01: must be a mapping of keys to values, is empty"}},
		"no mapping":       {"[1]", []string{"CX-01: must be a mapping"}},
		"no YAML":          {"a: b: c", []string{"CX-01: mapping values are not allowed"}},
		"two":              {"tool_id: T-5\n---\ntool_id: T-5\n", []string{"CX-01: must be one document, has more"}},
		"too large":        {"#" + strings.Repeat("x", MaxDocument), []string{"CX-01: has more than 4MiB"}},
		"no UTF-8":         {"tool_id: \xff", []string{"CX-01: is not UTF-8"}},
		"another version":  {"schema: evalbox/contract/v2\nx: 1\n", []string{`CX-01: schema: want "evalbox/contract/v1", have "evalbox/contract/v2"`}},
		"an alias bomb":    {"inputs: {command: five, arguments: &a [x]}\nmetadata: {purpose: *a}\ntool_id: T-5\n", []string{"CX-01: metadata.purpose: must not be an alias"}},
		"unknown keys":     {base("timeout: 5\nsandbox: {netwrok: {}}"), []string{`CX-01: timeout: unknown key "timeout"; there are adapter_id`, `CX-01: sandbox.netwrok: unknown key "netwrok" in sandbox; there are cpu_cores`}},
		"a key twice":      {base("tool_id: T-1"), []string{"CX-01: tool_id: is given twice, first in line 1"}},
		"a part of a kind": {"tool_id: T-5\ninputs: [five]\nsandbox: 5\noutputs: x\n", []string{"CX-01: inputs: must be a mapping, is a list", "CX-01: sandbox 5: must be a mapping, is a number", `CX-01: outputs "x": must be a mapping, is text`}},

		// Who and what.
		"execution_id":   {base("execution_id: ../x"), []string{`CX-01: execution_id "../x": must be 1 to 64 letters`}},
		"ID, type":       {base("execution_id: 5"), []string{"CX-01: execution_id 5: " + text}},
		"ID, long":       {base("execution_id: " + long), []string{"CX-01: execution_id"}},
		"no tool":        {"inputs: {command: five}\n", []string{"IV-01: tool_id: must name a tool of the registry"}},
		"unknown tool":   {"tool_id: T-9\ninputs: {command: five}\n", []string{`IV-01: tool_id "T-9": is not a tool of the registry`}},
		"name of a tool": {"tool_id: One\ninputs: {command: one}\n", []string{`IV-01: tool_id "One": is the name of a tool; its ID is T-1`}},
		"odd tool":       {"tool_id: 'a b'\ninputs: {command: five}\n", []string{`IV-01: tool_id "a b": is not a tool`, `CX-01: tool_id "a b": must be 1 to 64`}},
		"blocked tool":   {"tool_id: T-2\ninputs: {command: two}\n", []string{`IV-01: tool_id "T-2": Tool 'two' is blocked; use T-1`}},
		"adapter":        {base("adapter_id: ADP-9"), []string{`CK-01: adapter_id "ADP-9": No adapter found`}},

		// Command and arguments.
		"no command":          {"tool_id: T-5\n", []string{"IV-01: inputs.command: must not be empty"}},
		"empty command":       {"tool_id: T-5\ninputs: {command: ''}\n", []string{"IV-01: inputs.command: must not be empty"}},
		"command, type":       {"tool_id: T-5\ninputs: {command: 5}\n", []string{"CX-01: inputs.command 5: " + text}},
		"command, null":       {"tool_id: T-5\ninputs: {command: ~}\n", []string{"CX-01: inputs.command: must not be null"}},
		"another command":     {"tool_id: T-5\ninputs: {command: rm}\n", []string{`IV-01: inputs.command "rm": is not a command of T-5 (five), whose commands are five`}},
		"a path of it":        {"tool_id: T-5\ninputs: {command: /bin/five}\n", []string{`IV-01: inputs.command "/bin/five": is not a command`}},
		"a space":             {"tool_id: T-5\ninputs: {command: 'five '}\n", []string{`IV-01: inputs.command "five ": is not a command`}},
		"command, NUL":        {"tool_id: T-5\ninputs: {command: \"five\\0\"}\n", []string{`IV-01: inputs.command "five\x00"`, `IV-02: inputs.command "five\x00": must not have a NUL byte`}},
		"arguments, kind":     {inputs("arguments: -x"), []string{`CX-01: inputs.arguments "-x": must be a list, is text`}},
		"arguments, types":    {inputs("arguments: [a, 1, true, ~, {}]"), []string{"CX-01: inputs.arguments[1] 1: " + text, "CX-01: inputs.arguments[2] true: must be text: put it in quotes, is true or false", "CX-01: inputs.arguments[3]: must not be null", "CX-01: inputs.arguments[4]: must be text, is a mapping"}},
		"arguments, NUL":      {inputs(`arguments: ["a\0b"]`), []string{`IV-02: inputs.arguments[0] "a\x00b": must not have a NUL byte`}},
		"10,000 arguments":    {inputs("arguments: " + many(10_000, "a")), []string{"IV-02: inputs.arguments: has 10000 arguments; at most 4096"}},
		"a long argument":     {inputs("arguments: [" + strings.Repeat("x", 128<<10) + "]"), []string{"IV-02: inputs.arguments: takes 131078 bytes with the command; at most 131072"}},
		"long arguments":      {inputs("arguments: " + many(100, strings.Repeat("x", 2000))), []string{"IV-02: inputs.arguments: takes"}},
		"arguments of a tool": {"tool_id: T-1\ninputs: {command: one, arguments: [-a, -c, --x, y]}\n", []string{`IV-01: inputs.arguments[1] "-c": is not an argument that T-1 (one) may be given`, `IV-01: inputs.arguments[2] "--x"`}},

		// The environment. What is only dangerous is stripped, see TestEnvironment.
		"environment, kind":  {inputs("environment: [A=1]"), []string{"CX-01: inputs.environment: must be a mapping, is a list"}},
		"environment, types": {inputs("environment: {A: 1, B: true, C: ~}"), []string{"CX-01: inputs.environment.A 1: " + text, "CX-01: inputs.environment.B true", "CX-01: inputs.environment.C: must not be null"}},
		"environment, names": {inputs(`environment: {"A=B": x, "": x, "A B": x, "A\0": x}`), []string{`IV-04: inputs.environment."": is not the name`, `IV-04: inputs.environment."A\x00": is not the name`, `IV-04: inputs.environment."A B"`, `IV-04: inputs.environment."A=B"`}},
		"environment, NUL":   {inputs(`environment: {A: "x\0y"}`), []string{"IV-04: inputs.environment.A: has a value with a NUL byte"}},
		"environment, long":  {inputs("environment: {A: " + strings.Repeat("x", 128<<10) + "}"), []string{"IV-04: inputs.environment.A: takes more than 131072 bytes"}},
		"environment, many":  {inputs("environment: {" + numbered(1001, "A%d: x, ") + "}"), []string{"IV-04: inputs.environment: 1001 variables; at most 1000"}},

		// Paths.
		"working_directory": {inputs("working_directory: ../x"), []string{`IV-03: inputs.working_directory "../x": must not have .. as a part`}},
		"its type":          {inputs("working_directory: 5"), []string{"CX-01: inputs.working_directory 5"}},
		"system paths": {inputs(`input_files: [/etc, /etc/passwd, //etc/x, /./etc, /var/log, 'C:\Windows\x', 'c:\windows', C:/Windows]`), []string{
			`IV-03: inputs.input_files[0] "/etc": is a system path`, "input_files[1]", "input_files[2]", "input_files[3]", "input_files[4]", "input_files[5]", "input_files[6]", "input_files[7]"}},
		"parents": {inputs(`input_files: [.., a/../b, 'a\..\b', 'a/..']`), []string{
			`IV-03: inputs.input_files[0] "..": must not have .. as a part`, "input_files[1]", "input_files[2]", "input_files[3]"}},
		"paths, NUL":      {inputs(`input_files: ["a\0b"]`), []string{`IV-03: inputs.input_files[0] "a\x00b": must not have a NUL byte`}},
		"paths, empty":    {inputs("input_files: ['']"), []string{`IV-03: inputs.input_files[0] "": must not be empty`}},
		"paths, long":     {inputs("input_files: [" + long + "]"), []string{"has 5000 bytes; at most 4095"}},
		"paths, many":     {inputs("input_files: " + many(1001, "a")), []string{"IV-03: inputs.input_files: has 1001 paths; at most 1000"}},
		"output paths":    {outputs("output_files: [../x, /var/x]"), []string{`IV-03: outputs.output_files[0] "../x"`, `IV-03: outputs.output_files[1] "/var/x"`}},
		"artifacts":       {outputs("artifacts: [../x, {path: /etc/x}, {}]"), []string{`IV-03: outputs.artifacts[0] "../x"`, `IV-03: outputs.artifacts[1] "/etc/x"`, `IV-03: outputs.artifacts[2] "": must not be empty`}},
		"artifacts, kind": {outputs("artifacts: [[x], {file: x}]"), []string{"CX-01: outputs.artifacts[0]: must be a mapping or a word, is a list", `CX-01: outputs.artifacts[1].file: unknown key "file" in outputs.artifacts[1]; there are mime_type, path`}},
		"lists of paths":  {inSandbox("filesystem: {level: extended, read: [/etc], write: [../x], deny: [a/../b]}"), []string{`IV-03: sandbox.filesystem.read[0] "/etc": is a system path`, `IV-03: sandbox.filesystem.write[0] "../x"`, `IV-03: sandbox.filesystem.deny[0] "a/../b"`}},

		// stdin.
		"a 2 MiB stdin": {stdin(strings.Repeat("x", 2<<20)), []string{"IV-05: inputs.stdin: has 2097152 bytes; at most 1048576"}},
		"in UTF-8":      {stdin(strings.Repeat("é", 1<<19) + "x"), []string{"IV-05: inputs.stdin: has 1048577 bytes"}},
		"stdin, type":   {inputs("stdin: [x]"), []string{"CX-01: inputs.stdin: must be text, is a list"}},

		// Limits.
		"profile":       {inSandbox("profile: huge"), []string{`CX-02: sandbox.profile "huge": is not a profile; there are contract, evaluation`}},
		"timeout":       {inSandbox("timeout_ms: 999"), []string{"CX-02: sandbox.timeout_ms 999: must be between 1000 and 600000 in profile contract"}},
		"limits below":  {inSandbox("{timeout_ms: -1, memory_mb: 63, cpu_cores: 0, processes: {max_children: -1}}"), []string{"CX-02: sandbox.timeout_ms -1", "CX-02: sandbox.memory_mb 63", "CX-02: sandbox.cpu_cores 0", "CX-02: sandbox.processes.max_children -1: must be between 0 and 100"}},
		"limits above":  {inSandbox("{timeout_ms: 600001, memory_mb: 4097, cpu_cores: 5, processes: {max_children: 101}}"), []string{"CX-02: sandbox.timeout_ms 600001", "CX-02: sandbox.memory_mb 4097", "CX-02: sandbox.cpu_cores 5", "CX-02: sandbox.processes.max_children 101"}},
		"a fraction":    {inSandbox("timeout_ms: 5000.5"), []string{"CX-01: sandbox.timeout_ms 5000.5: " + whole}},
		"true":          {inSandbox("cpu_cores: true"), []string{"CX-01: sandbox.cpu_cores true: " + whole}},
		"null":          {inSandbox("memory_mb: ~"), []string{"CX-01: sandbox.memory_mb: must not be null"}},
		"a text":        {inSandbox("memory_mb: '512'"), []string{`CX-01: sandbox.memory_mb "512": ` + whole}},
		"a unit":        {inSandbox("memory_mb: 512m"), []string{`CX-01: sandbox.memory_mb "512m": ` + whole}},
		"huge":          {inSandbox("memory_mb: 99999999999999999999"), []string{"CX-01: sandbox.memory_mb 99999999999999999999: "}},
		"overflow":      {inSandbox("timeout_ms: 9223372036854775807"), []string{"CX-02: sandbox.timeout_ms 9223372036854775807"}},
		"allow_fork":    {inSandbox("processes: {allow_fork: no}"), []string{`CX-01: sandbox.processes.allow_fork "no": must be true or false, is text`}},
		"capture":       {outputs("capture: {stdout_bytes: 1048577, stderr_bytes: -1, output_files_bytes: 10485761, artifacts_bytes: 10485761}"), []string{"CX-05: outputs.capture.stdout_bytes 1048577: must be between 0 and 1048576", "CX-05: outputs.capture.stderr_bytes -1", "CX-05: outputs.capture.output_files_bytes 10485761", "CX-05: outputs.capture.artifacts_bytes 10485761"}},
		"capture, unit": {outputs("capture: {stdout_bytes: 1MiB}"), []string{`CX-01: outputs.capture.stdout_bytes "1MiB"`}},

		// Levels.
		"file level":      {inSandbox("filesystem: {level: all}"), []string{`CX-03: sandbox.filesystem.level "all": must be one of minimal, standard, extended, elevated`}},
		"minimal reads":   {inSandbox("filesystem: {read: [/opt/x]}"), []string{`CX-03: sandbox.filesystem.read[0] "/opt/x": is not open to read at level minimal; it takes level extended`}},
		"minimal writes":  {inSandbox("filesystem: {write: [x]}"), []string{`CX-03: sandbox.filesystem.write[0] "x": is not open to write at level minimal`}},
		"standard reads":  {inSandbox("filesystem: {level: standard, read: [a, /opt/x]}"), []string{`CX-03: sandbox.filesystem.read[1] "/opt/x": is not open to read at level standard`}},
		"the whole host":  {inSandbox("filesystem: {level: elevated, read: [/, //]}"), []string{`CX-03: sandbox.filesystem.read[0] "/": would open the whole host`, `CX-03: sandbox.filesystem.read[1] "//"`}},
		"files of a tool": {"tool_id: T-1\ninputs: {command: one}\nsandbox: {filesystem: {level: elevated}}\n", []string{`CX-03: sandbox.filesystem.level "elevated": is above extended, the highest level of tool T-1`}},
		"it only reads":   {"tool_id: T-4\ninputs: {command: four}\nsandbox: {filesystem: {level: standard}}\n", []string{`CX-03: sandbox.filesystem.level "standard": lets the program write, and tool T-4 has data access read`}},
		"it has no data":  {"tool_id: T-3\ninputs: {command: three, input_files: [x]}\n", []string{`CX-03: inputs.input_files[0] "x": is refused: tool T-3 has data access none`}},
		"network level":   {inSandbox("network: {level: all}"), []string{`CX-04: sandbox.network.level "all": must be one of offline, registry, api, open`}},
		"network, type":   {inSandbox("network: true"), []string{"CX-01: sandbox.network true: must be a mapping"}},
		"enabled, type":   {inSandbox("network: {enabled: 1}"), []string{"CX-01: sandbox.network.enabled 1: must be true or false"}},
		"a contradiction": {inSandbox("network: {enabled: true, level: offline}"), []string{"CX-04: sandbox.network.enabled true: contradicts the level offline"}},
		"closed and open": {inSandbox("network: {enabled: false, level: api, allow: [x]}"), []string{"CX-04: sandbox.network.allow: opens hosts, but the network is offline"}},
		"hosts":           {inSandbox(`network: {level: api, allow: ["", "a b", "https://x", "a\0", "x:99999"], deny: ["\n"]}`), []string{`CX-04: sandbox.network.allow[0] "": `, `CX-04: sandbox.network.allow[1] "a b"`, `CX-04: sandbox.network.allow[2] "https://x"`, `CX-04: sandbox.network.allow[3] "a\x00"`, `CX-04: sandbox.network.allow[4] "x:99999"`, `CX-04: sandbox.network.deny[0] "\n"`}},
		"many hosts":      {inSandbox("network: {level: api, allow: " + many(1001, "a") + "}"), []string{"CX-04: sandbox.network.allow: has 1001 hosts; at most 1000"}},
		"network of a tool": {"tool_id: T-1\ninputs: {command: one}\nsandbox: {network: {level: open, allow: [api.example.com, evil.example.com]}}\n",
			[]string{`CX-04: sandbox.network.level "open": is above api, the highest level of tool T-1`, `CX-04: sandbox.network.allow[1] "evil.example.com": is not an endpoint of tool T-1, which has api.example.com`}},

		// Outputs.
		"expected":       {outputs("stdout: expected"), []string{"CX-01: outputs.stdout: must say what is expected"}},
		"a word":         {outputs("stderr: ignored"), []string{"CX-01: outputs.stderr: must be captured, {expected: TEXT} or {pattern: REGEXP}"}},
		"stream, kind":   {outputs("stdout: [x]"), []string{"CX-01: outputs.stdout: must be a mapping or a word, is a list"}},
		"stream, key":    {outputs("stdout: {expects: x}"), []string{`CX-01: outputs.stdout.expects: unknown key "expects" in outputs.stdout; there are expected, pattern`}},
		"both":           {outputs("stdout: {expected: x, pattern: y}"), []string{"CX-05: outputs.stdout: must have one of expected and pattern, not both"}},
		"pattern":        {outputs("stderr: {pattern: '('}"), []string{`CX-05: outputs.stderr.pattern "(": must be a regular expression: missing closing )`}},
		"long pattern":   {outputs("stderr: {pattern: " + long + "}"), []string{"has 5000 bytes; at most 4096"}},
		"never captured": {outputs("stdout: {expected: abc}\n  capture: {stdout_bytes: 2}"), []string{"CX-05: outputs.stdout.expected: has 3 bytes, of which 2 would be captured"}},
		"exit code":      {outputs("exit_code: 256"), []string{"CX-05: outputs.exit_code 256: must be between 0 and 255"}},
		"exit code, min": {outputs("exit_code: -1"), []string{"CX-05: outputs.exit_code -1"}},
		"exit code, any": {outputs("exit_code: any"), []string{`CX-01: outputs.exit_code "any": ` + whole}},
		"MIME type":      {outputs(`artifacts: [{path: x, mime_type: csv}, {path: y, mime_type: "a\0/b"}]`), []string{`CX-05: outputs.artifacts[0].mime_type "csv": must be a MIME type`, `CX-05: outputs.artifacts[1].mime_type "a\x00/b": must not have a NUL byte`}},

		// Determinism and metadata.
		"seed":          {base("determinism: {seed: -1}"), []string{"DT-01: determinism.seed -1: must be between 0 and 4294967295"}},
		"seed, above":   {base("determinism: {seed: 4294967296}"), []string{"DT-01: determinism.seed 4294967296"}},
		"clock":         {base("determinism: {clock: noon}"), []string{`DT-01: determinism.clock "noon": must be a time of RFC 3339`}},
		"seed, twice":   {inputs("environment: {SEED: \"9\", PYTHONHASHSEED: \"1\"}\ndeterminism: {seed: 1}"), []string{`DT-01: inputs.environment.SEED "9": contradicts determinism.seed, which sets it to 1`}},
		"clock, parts":  {base("determinism: {clock: \"2030-02-03T04:05:06.789Z\"}"), []string{"DT-01: determinism.clock", "must be in whole seconds"}},
		"clock, day":    {base("determinism: {clock: 2026-01-31}"), []string{"DT-01: determinism.clock"}},
		"clock, year":   {base("determinism: {clock: 1812-01-31T00:00:00Z}"), []string{"DT-01: determinism.clock", "1971 to 2099"}},
		"requested_at":  {base("metadata: {requested_at: yesterday}"), []string{`CX-01: metadata.requested_at "yesterday": must be a time of ISO 8601`}},
		"metadata, NUL": {base(`metadata: {requested_by: "a\0", purpose: "\0", evidence_ref: "\0"}`), []string{"CX-01: metadata.requested_by", "CX-01: metadata.purpose", "CX-01: metadata.evidence_ref"}},
		"long purpose":  {base("metadata: {purpose: " + long + "}"), []string{"CX-01: metadata.purpose", "has 5000 bytes; at most 4096"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := rules.Examine([]byte(test.text))
			c, violations := x.Contract, x.Violations
			lines := linesOf(violations)
			for _, want := range test.wants {
				require.True(t, slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(line, want) }), "want %s in\n%s", want, strings.Join(lines, "\n"))
			}
			require.LessOrEqual(t, len(lines), max(len(test.wants), 1), "more than was expected:\n%s", strings.Join(lines, "\n"))
			for _, line := range lines {
				require.Less(t, len(line), 600)
				require.NotContains(t, line, "\x00")
			}
			// The same twice, in the same order.
			again := rules.Examine([]byte(test.text)).Violations
			require.Equal(t, violations, again)
			if _, err := Parse([]byte(test.text), "c.yaml"); err == nil {
				_, direct, _ := rules.Validate(c)
				require.NotEmpty(t, direct)
			}
		})
	}
}

// base is a good contract with something added.
func base(more string) string { return "tool_id: T-5\ninputs: {command: five}\n" + more + "\n" }

func inputs(more string) string { return "tool_id: T-5\ninputs:\n  command: five\n  " + more + "\n" }

// stdin is JSON, which is read faster.
func stdin(text string) string {
	return `{"tool_id": "T-5", "inputs": {"command": "five", "stdin": "` + text + `"}}`
}

func inSandbox(more string) string {
	return "tool_id: T-5\ninputs: {command: five}\nsandbox:\n  " + more + "\n"
}

func outputs(more string) string {
	return "tool_id: T-5\ninputs: {command: five}\noutputs:\n  " + more + "\n"
}

func numbered(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}
