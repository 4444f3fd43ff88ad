package contract

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/policy"
)

// examine reads a document that is good, but for what is stripped.
func examine(t *testing.T, r Rules, text string) (Effective, []Violation) {
	t.Helper()
	x := r.Examine([]byte(text))
	require.Empty(t, x.Violations, text)
	return x.Effective, x.Stripped
}

func TestDefaults(t *testing.T) {
	e, stripped := examine(t, testRules(t), "tool_id: T-5\ninputs: {command: five}\n")
	require.Empty(t, stripped)
	require.Equal(t, "contract", e.Profile)
	require.Equal(t, 30*time.Second, e.Timeout)
	require.Equal(t, 512*policy.MiB, e.Memory)
	require.EqualValues(t, 1, e.CPUs)
	require.EqualValues(t, 10, e.MaxChildren)
	require.True(t, e.AllowFork)
	require.Equal(t, policy.Minimal, e.FilesystemLevel)
	require.Equal(t, policy.Offline, e.NetworkLevel)
	require.Equal(t, []policy.Size{policy.MiB, 256 * policy.KiB, 10 * policy.MiB, 10 * policy.MiB},
		[]policy.Size{e.Stdout, e.Stderr, e.OutputFiles, e.Artifacts})
	require.Empty(t, e.Needs)
	require.Empty(t, e.Warnings)
	require.Zero(t, e.Clock)
	require.Equal(t, "five", e.Tool.Name)
	require.Equal(t, 0, *e.Contract.Outputs.ExitCode)
	require.Equal(t, ".", e.Contract.Inputs.WorkingDirectory)
}

func TestBoundsAreInclusive(t *testing.T) {
	for _, limits := range []string{
		"{timeout_ms: 1000, memory_mb: 64, cpu_cores: 1, processes: {max_children: 0, allow_fork: false}}",
		"{timeout_ms: 600000, memory_mb: 4096, cpu_cores: 4, processes: {max_children: 100}}",
		"{profile: evaluation, timeout_ms: 86400000, memory_mb: 100000}",
	} {
		examine(t, testRules(t), inSandbox(limits))
	}
	e, _ := examine(t, testRules(t), inSandbox("processes: {max_children: 0, allow_fork: false}"))
	require.Zero(t, e.MaxChildren)
	require.False(t, e.AllowFork)
	e, _ = examine(t, testRules(t), outputs("capture: {stdout_bytes: 0, artifacts_bytes: 7}"))
	require.Zero(t, e.Stdout)
	require.Equal(t, policy.Size(7), e.Artifacts)
}

// TestWhatIsFine are things that look bad and are not.
func TestWhatIsFine(t *testing.T) {
	for _, text := range []string{
		inputs(`arguments: ["a; rm -rf / | $(x) && 'y' > *", "", "%PATH%", "a\nb", "../../etc", "é’"]`),
		inputs("input_files: [a..b, /etcetera/x, /project/var/x, /ETC/passwd, '%2e%2e/etc', ...]"),
		inputs("working_directory: /srv/project"),
		inputs("stdin: " + strings.Repeat("x", 1<<20)),
		inputs("stdin: ''"), inputs("stdin: ~"),
		outputs("stdout: captured\n  stderr: {}"),
		outputs("stdout: {expected: ''}\n  stderr: {pattern: ^$}\n  exit_code: 255"),
		outputs("artifacts: [x, {path: y, mime_type: text/csv; charset=utf-8}]"),
		inSandbox("filesystem: {level: standard, read: [docs], write: [out], deny: [/etc, .git]}"),
		inSandbox("filesystem: {level: elevated, read: [/etc/hosts, /var/lib/x], write: [/var/tmp/x]}"),
		base("metadata: {requested_at: 2026-01-31T12:00:00.123456}"), base("metadata: {requested_at: 2026-01-31}"),
		base("execution_id: 123e4567-e89b-12d3-a456-426614174000"),
		"schema: evalbox/contract/v1\n" + base(""),
		"tool_id: T-1\ninputs: {command: uno, arguments: [-a, x, \"y\\nz\"]}\n",
	} {
		if strings.Contains(text, "y\\nz") { // '.' does not match a line end
			require.Len(t, testRules(t).Examine([]byte(text)).Violations, 1)
			continue
		}
		examine(t, testRules(t), text)
	}
}

func TestLevels(t *testing.T) {
	for text, want := range map[string]policy.NetworkLevel{
		"network: {}":                               policy.Offline,
		"network: {deny: [x]}":                      policy.Offline,
		"network: {enabled: true}":                  policy.API,
		"network: {enabled: true, level: registry}": policy.Registry,
		"network: {level: api, allow: [x]}":         policy.API,
		"network: {level: open, enabled: false}":    policy.Offline,
		"network: {level: open}":                    policy.Open,
	} {
		e, _ := examine(t, testRules(t), inSandbox(text))
		require.Equal(t, want, e.NetworkLevel, text)
		require.Equal(t, want != policy.Offline, *e.Contract.Sandbox.Network.Enabled, text)
	}
	e, _ := examine(t, testRules(t), inSandbox("{filesystem: {level: elevated}, network: {level: open}}"))
	require.Equal(t, []string{"filesystem:elevated", "network:open"}, e.Needs)
	e, _ = examine(t, testRules(t), inSandbox("{filesystem: {level: extended, read: [/opt/x]}, network: {level: api}}"))
	require.Empty(t, e.Needs)
}

func TestTools(t *testing.T) {
	e, _ := examine(t, testRules(t), "tool_id: T-3\ninputs: {command: three}\n")
	require.Equal(t, []string{"Tool 'three' is deprecated; use T-1"}, e.Warnings)

	open := testRules(t)
	open.OpenAllowlist = true
	e, _ = examine(t, open, "inputs: {command: anything}\n")
	require.Nil(t, e.Tool)
	require.Len(t, e.Warnings, 1)
	// A tool that is named holds all the same.
	require.Len(t, open.Examine([]byte("tool_id: T-2\ninputs: {command: anything}\n")).Violations, 2)

	// Nothing is permitted by rules that say nothing.
	_, violations, _ := Rules{}.Validate(Contract{Inputs: Inputs{Command: "five"}})
	require.Equal(t, []string{"IV-01: tool_id: must name a tool of the registry", `CX-02: sandbox.profile "contract": is not a profile; there are none`}, linesOf(violations))
}

func TestEnvironment(t *testing.T) {
	const text = `environment: {A: x, LANG: C, PATH: /x, LD_PRELOAD: "", LD_LIBRARY_PATH: x, DYLD_INSERT_LIBRARIES: x, DYLD_LIBRARY_PATH: x,
    PYTHONPATH: x, PYTHONHASHSEED: "1", NODE_OPTIONS: x, BASH_ENV: x, ENV: x, ld_audit: x,
    PYTEST_ADDOPTS: x, GIT_SSH_COMMAND: x, LOCPATH: x, OPENSSL_CONF: x, PERL5DB: x, GREP_OPTIONS: x, PS4: x, GITHUB: x, PYTHONHOME: x, DOCKER_HOST: x, NVIDIA_VISIBLE_DEVICES: x, SANDBOX_DEADLINE: x}`
	e, stripped := examine(t, testRules(t), inputs(text))
	require.Equal(t, map[string]string{"A": "x", "GITHUB": "x", "LANG": "C", "PYTHONHASHSEED": "1"}, e.Contract.Inputs.Environment)
	var names []string
	for _, v := range stripped {
		require.Equal(t, "IV-04", v.Code)
		require.NotEmpty(t, v.Rule)
		require.Empty(t, v.Value, "values may be secret")
		require.NotZero(t, v.Line)
		names = append(names, strings.TrimPrefix(v.Field, "inputs.environment."))
	}
	require.Equal(t, []string{"BASH_ENV", "DOCKER_HOST", "DYLD_INSERT_LIBRARIES", "DYLD_LIBRARY_PATH", "ENV", "GIT_SSH_COMMAND", "GREP_OPTIONS", "LD_LIBRARY_PATH",
		"LD_PRELOAD", "LOCPATH", "NODE_OPTIONS", "NVIDIA_VISIBLE_DEVICES", "OPENSSL_CONF", "PATH", "PERL5DB", "PS4", "PYTEST_ADDOPTS", "PYTHONHOME", "PYTHONPATH", "SANDBOX_DEADLINE", "ld_audit"}, names)

	approved := testRules(t)
	approved.ApprovedEnv = []string{"A", "LC_*", "PATH", "LD_PRELOAD"}
	e, stripped = examine(t, approved, inputs("environment: {A: x, B: x, LC_ALL: C, PATH: x, LD_PRELOAD: x}"))
	require.Equal(t, map[string]string{"A": "x", "LC_ALL": "C"}, e.Contract.Inputs.Environment)
	require.Equal(t, []string{`IV-04: inputs.environment.B: is not an approved variable`,
		`IV-04: inputs.environment.LD_PRELOAD: is refused: it changes what is executed`,
		`IV-04: inputs.environment.PATH: is replaced by that of the image`}, linesOf(stripped))
	approved.ApprovedEnv = []string{}
	e, _ = examine(t, approved, inputs("environment: {A: x}"))
	require.Empty(t, e.Contract.Inputs.Environment)
}

func TestStrict(t *testing.T) {
	strict := testRules(t)
	strict.Strict = true
	for _, char := range ";|&$`(){}[]<>\\\"'!#*?" {
		c := Contract{ToolID: "T-5", Inputs: Inputs{Command: "five", Arguments: []string{"ok", "a" + string(char) + "b"}}}
		_, violations, _ := strict.Validate(c)
		require.Len(t, violations, 1, string(char))
		require.Equal(t, "IV-02", violations[0].Code)
		require.Equal(t, "inputs.arguments[1]", violations[0].Field)
		c.Inputs = Inputs{Command: "five" + string(char)}
		_, violations, _ = strict.Validate(c)
		require.Len(t, violations, 2, string(char))
	}
	for _, text := range []string{"%PATH%", "a\nb", "\t", "a,b:c", "--", "~", "’"} {
		_, violations, _ := strict.Validate(Contract{ToolID: "T-5", Inputs: Inputs{Command: "five", Arguments: []string{text}}})
		require.Empty(t, violations, text)
	}
	_, violations, stripped := strict.Validate(Contract{ToolID: "T-5",
		Inputs: Inputs{Command: "five", Environment: map[string]string{"PATH": "/x", "A": "x"}}})
	require.Equal(t, stripped, violations)
	require.Len(t, stripped, 1)
}

// TestEverythingAtOnce: one of each check, in their order, with lines.
func TestEverythingAtOnce(t *testing.T) {
	text := `tool_id: T-2
adapter_id: none
extra: 1
inputs:
  command: five
  arguments: ["$x", 5]
  environment:
    "A B": x
  input_files: [../x]
  stdin: ` + strings.Repeat("x", MaxStdin+1) + `
sandbox:
  timeout_ms: 1
  filesystem: {level: all}
  network: {level: all}
outputs:
  exit_code: 999
determinism: {seed: -1}
metadata: {requested_at: x}
`
	r := testRules(t)
	r.Strict = true
	x := r.Examine([]byte(text))
	e, violations := x.Effective, x.Violations
	var at []string
	for _, v := range violations {
		at = append(at, strings.Split((&RefusedError{"c.yaml", []Violation{v}}).Error(), " ")[0]+v.Code)
	}
	require.Equal(t, []string{
		"c.yaml:3:CX-01", "c.yaml:6:CX-01", "c.yaml:1:IV-01", "c.yaml:5:IV-01", "c.yaml:6:IV-02", "c.yaml:9:IV-03",
		"c.yaml:8:IV-04", "c.yaml:10:IV-05", "c.yaml:12:CX-02", "c.yaml:13:CX-03", "c.yaml:14:CX-04", "c.yaml:16:CX-05",
		"c.yaml:17:DT-01", "c.yaml:2:CK-01", "c.yaml:18:CX-01",
	}, at)
	require.Len(t, e.ContractSHA256, 64)
}

// TestViolationsAreBounded: ten thousand wrong arguments are not ten thousand lines.
func TestViolationsAreBounded(t *testing.T) {
	c := Contract{ToolID: "T-5", Inputs: Inputs{Command: "five"}}
	for range 4000 {
		c.Inputs.Arguments = append(c.Inputs.Arguments, "\x00")
	}
	_, violations, _ := testRules(t).Validate(c)
	require.Len(t, violations, maxViolations+1)
	require.Equal(t, "CX-01: 3900 violations more are not listed", violations[maxViolations].String())
}

func TestValidateLeavesTheContractAlone(t *testing.T) {
	c := Contract{ToolID: "T-5", Inputs: Inputs{Command: "five", Environment: map[string]string{"PATH": "x"}},
		Outputs: Outputs{Artifacts: []ArtifactSpec{{Path: "x"}}}}
	e, _, _ := testRules(t).Validate(c)
	require.Equal(t, map[string]string{"PATH": "x"}, c.Inputs.Environment)
	require.Empty(t, c.Outputs.Artifacts[0].MIMEType)
	require.Equal(t, "application/octet-stream", e.Contract.Outputs.Artifacts[0].MIMEType)
	require.Nil(t, c.Sandbox.TimeoutMS)
}
