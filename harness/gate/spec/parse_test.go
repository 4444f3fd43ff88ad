package spec

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

const testHash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// TestParseFillsIn: what a wish leaves out is said in its normal form.
func TestParseFillsIn(t *testing.T) {
	w, err := Parse([]byte("gate_commands: [pytest -q]\n"), "wish.yaml")
	require.NoError(t, err)
	require.Equal(t, Spec{
		Schema: SchemaV1, Name: "gate",
		GateCommands: []evidence.Command{{Cmd: "pytest -q", Kind: evidence.KindTests, Report: evidence.ReportAuto, Env: map[string]string{}}},
		IOBoundary:   ".", Network: evidence.Egress{Level: "offline", Allow: []string{}, Deny: []string{}},
		Env: map[string]string{}, Paths: evidence.Paths{ArtifactPaths: []string{}, ProtectedPaths: []string{}, ReadOnlyPaths: []string{}, Exclude: []string{}},
		Flags: evidence.Flags{Offline: true, ClaimGrade: true}, Toolchain: []Tool{}, Normalize: []evidence.Rule{}, AllowSuspects: []string{},
	}, w)
}

func TestParseEverything(t *testing.T) {
	w, err := Parse([]byte(`
schema: evalbox/wish/v1
name: nightly
gate_commands:
  - pytest -q
  - {cmd: ruff check ., kind: check, expect_exit: 1}
  - cmd: make test
    report_path: ./out/junit.xml
    timeout: 1m30s
    env: {A: "1"}
  - {cmd: prove -v, report: tap}
io_boundary: repo/
network: {level: registry, deny: [example.com]}
offline: false
image: base
python: "3.11.2"
env: {B: two words}
limits: {timeout: 10m, memory: 1.5g, cpus: 1.25, pids: 64, disk: 1g, log: 10m}
artifact_paths: ["dist/**/*.whl"]
protected_paths: [secrets/, conf/key.pem]
read_only_paths: [core]
exclude: [.venv]
toolchain: [{source: /usr/lib/go, target: /host/go}]
claim_grade: false
strict: true
normalize: [{name: build, pattern: 'build-\d+', replace: build-N}]
allow_suspects: ['0x[0-9a-f]+']
`), "wish.yaml")
	require.NoError(t, err)
	require.Equal(t, []evidence.Command{
		{Cmd: "pytest -q", Kind: "tests", Report: "auto", Env: map[string]string{}},
		{Cmd: "ruff check .", ExpectExit: 1, Kind: "check", Report: "none", Env: map[string]string{}},
		{Cmd: "make test", Kind: "tests", Report: "junit", ReportPath: "out/junit.xml", TimeoutMS: 90_000, Env: map[string]string{"A": "1"}},
		{Cmd: "prove -v", Kind: "tests", Report: "tap", Env: map[string]string{}},
	}, w.GateCommands)
	require.Equal(t, "repo", w.IOBoundary)
	require.False(t, w.Offline)
	require.Equal(t, evidence.Egress{Level: "registry", Allow: []string{}, Deny: []string{"example.com"}}, w.Network)
	require.Equal(t, evidence.Caps{
		TimeoutMS: 600_000, MemoryBytes: 3 << 29, MilliCPUs: 1250, PIDs: 64, DiskBytes: 1 << 30, LogBytes: 10 << 20,
	}, w.Limits)
	require.Equal(t, []string{"secrets", "conf/key.pem"}, w.ProtectedPaths)
	require.Equal(t, []Tool{{Source: "/usr/lib/go", Target: "/host/go"}}, w.Toolchain)
	require.False(t, w.ClaimGrade)
	require.True(t, w.Strict)
}

// TestParseRefuses: every field that can be wrong, with its line and what is expected.
func TestParseRefuses(t *testing.T) {
	many := func(n int, item string) string {
		return "[" + strings.TrimSuffix(strings.Repeat(item+", ", n), ", ") + "]"
	}
	numbered := func(n int, format string) string {
		var all []string
		for i := range n {
			all = append(all, fmt.Sprintf(format, i))
		}
		return "[" + strings.Join(all, ", ") + "]"
	}
	for name, c := range map[string]struct{ text, want string }{
		"empty":           {"", `must be a mapping of keys to values, is empty`},
		"list":            {"[a]", `wish.yaml:1: must be a mapping`},
		"schema":          {"schema: evalbox/wish/v2", `wish.yaml:1: schema: want "evalbox/wish/v1", have "evalbox/wish/v2"`},
		"unknown":         {"name: a\ngate_command: [x]", `wish.yaml:2: unknown key "gate_command"; there are allow_suspects,`},
		"unknown below":   {"limits:\n  ram: 1g", `wish.yaml:2: unknown key "ram" in limits`},
		"twice":           {"name: a\nname: b", `is given twice, first in line 1`},
		"alias":           {"name: &a b\nimage: *a", `must not be an alias`},
		"null":            {"gate_commands: null", `must not be null`},
		"name":            {"name: ../x", `wish.yaml:1: name: "../x" must be 1 to 64`},
		"name empty":      {"name: ''", `name: "" must be 1 to 64`},
		"no list":         {"gate_commands: pytest", `gate_commands: "pytest" must be a list`},
		"no text":         {"gate_commands: [1]", `gate_commands[0]: 1 must be text`},
		"command empty":   {"gate_commands: ['']", `gate_commands[0]: must not be empty`},
		"cmd missing":     {"gate_commands: [{kind: check}]", `gate_commands[0]: must not be empty`},
		"cmd blank":       {"gate_commands: [{cmd: ' '}]", `gate_commands[0].cmd: " " must not be empty`},
		"operator":        {"gate_commands:\n- pytest -q\n- make && make test", `wish.yaml:3: gate_commands[1]: "make && make test" has the operator &&`},
		"pipe":            {"gate_commands: ['pytest|tee x']", `has the operator |`},
		"redirection":     {"gate_commands: ['pytest > x']", `has the operator >`},
		"background":      {"gate_commands: ['pytest &']", `has the operator &`},
		"expansion":       {"gate_commands: ['pytest $HOME']", `has the expansion $H`},
		"substitution":    {"gate_commands: ['pytest \"$(id)\"']", `has the expansion $(`},
		"backquote":       {"gate_commands: ['pytest `id`']", "has the expansion `"},
		"quote":           {`gate_commands: ['pytest "a']`, `cannot be split into words: unterminated double-quoted string`},
		"newline":         {`gate_commands: ["a\nb"]`, `must be one line without control characters`},
		"nul":             {`gate_commands: ["a\0b"]`, `must be one line without control characters`},
		"assignment":      {"gate_commands: [A=1 pytest]", `begins with a variable: give it in env`},
		"no program":      {`gate_commands: ["'' a"]`, `names no program`},
		"long":            {"gate_commands: ['" + strings.Repeat("a", maxCommand+1) + "']", `has 16385 bytes; at most 16384`},
		"many words":      {"gate_commands: ['" + strings.Repeat("a ", maxWords+1) + "']", `has 1001 words; at most 1000`},
		"many commands":   {"gate_commands: " + many(maxCommands+1, "a"), `gate_commands: has 101 entries; at most 100`},
		"exit":            {"gate_commands: [{cmd: a, expect_exit: 256}]", `expect_exit: is 256; must be 0 to 255`},
		"exit negative":   {"gate_commands: [{cmd: a, expect_exit: -1}]", `expect_exit: is -1; must be 0 to 255`},
		"exit bool":       {"gate_commands: [{cmd: a, expect_exit: true}]", `expect_exit: true must be a whole number`},
		"kind":            {"gate_commands: [{cmd: a, kind: proof}]", `gate_commands[0].kind: "proof" must be one of tests, check`},
		"report":          {"gate_commands: [{cmd: a, report: xml}]", `report: "xml" must be one of auto, pytest,`},
		"report none":     {"gate_commands: [{cmd: a, report: none}]", `report: "none" shows no test, and the kind is tests`},
		"junit":           {"gate_commands: [{cmd: a, report: junit}]", `must have report_path`},
		"report path":     {"gate_commands: [{cmd: a, report: tap, report_path: x}]", `report_path: "x" is for the report junit only, not tap`},
		"report out":      {"gate_commands: [{cmd: a, report_path: ../x}]", `report_path: "../x" must be a file below the boundary`},
		"report abs":      {"gate_commands: [{cmd: a, report_path: /etc/x}]", `report_path: "/etc/x" must be a file below`},
		"report final":    {"gate_commands: [{cmd: a, report_path: /work/final/../x}]", `must be a file below the boundary`},
		"report .":        {"gate_commands: [{cmd: a, report_path: .}]", `must be a file below the boundary`},
		"timeout number":  {"gate_commands: [{cmd: a, timeout: 90}]", `timeout: 90 must be text`},
		"timeout":         {"gate_commands: [{cmd: a, timeout: soon}]", `timeout: must be a time of whole milliseconds`},
		"timeout zero":    {"limits: {timeout: 0s}", `limits.timeout: must be a time of whole milliseconds`},
		"timeout long":    {"limits: {timeout: 9999h}", `limits.timeout: must be a time of whole milliseconds from 1ms to 168h`},
		"timeout fine":    {"limits: {timeout: 1500us}", `limits.timeout: must be a time of whole milliseconds`},
		"command env":     {"gate_commands: [{cmd: a, env: {NVIDIA_X: x}}]", `gate_commands[0].env: "NVIDIA_X" is refused`},
		"boundary out":    {"io_boundary: ..", `io_boundary: ".." must be a directory at or below`},
		"boundary sly":    {"io_boundary: a/../../b", `io_boundary: "../b" must be`},
		"boundary abs":    {"io_boundary: /srv", `io_boundary: "/srv" must be`},
		"boundary empty":  {"io_boundary: ''", `io_boundary: must be a directory at or below`},
		"boundary nul":    {`io_boundary: "a\0"`, `io_boundary: "a\x00" must not have control characters`},
		"offline":         {"offline: true\nnetwork: {level: registry}", `wish.yaml:1: offline: is true, and there is a network`},
		"online":          {"offline: false", `offline: is false, and there is no network`},
		"online offline":  {"offline: false\nnetwork: {level: offline}", `offline: is false, and there is no network`},
		"offline word":    {"offline: maybe", `offline: "maybe" must be true or false`},
		"level":           {"network: {level: all}", `network.level: "all" must be offline, registry, api or open`},
		"level missing":   {"network: {allow: [a.example]}", `network.level: must be offline, registry, api or open`},
		"offline hosts":   {"network: {level: offline, allow: [a.example]}", `network: lists hosts, and its level is offline`},
		"allow":           {"network: {level: api, allow: ['bad host']}", `network.allow: "bad host"`},
		"deny":            {"network: {level: api, deny: ['*.*']}", `network.deny: "*.*"`},
		"image":           {`image: "a\tb"`, `image: "a\tb" must not have control characters`},
		"image empty":     {"image: ''", `image: must not be empty`},
		"python number":   {"python: 3.11", `python: 3.11 must be text: put it in quotes`},
		"python":          {"python: latest", `python: "latest" must be a version such as 3.11`},
		"env":             {"env: {SANDBOX_DEADLINE: x}", `env: "SANDBOX_DEADLINE" is refused`},
		"env name":        {"env: {'a b': x}", `env: "a b" is not the name`},
		"env number":      {"env: {A: 1}", `env.A: 1 must be text: put it in quotes`},
		"memory":          {"limits: {memory: lots}", `limits.memory: size "lots" is not a size`},
		"memory low":      {"limits: {memory: 1m}", `limits.memory: must be between 6MiB and 1PiB`},
		"memory zero":     {"limits: {memory: '0'}", `limits.memory: must be between 6MiB and 1PiB`},
		"cpus":            {"limits: {cpus: 0}", `limits.cpus: must be between 0.01 and 4096`},
		"cpus fine":       {"limits: {cpus: 1.00001}", `limits.cpus: must be between 0.01 and 4096, with at most three digits`},
		"cpus nan":        {"limits: {cpus: .nan}", `limits.cpus`},
		"pids":            {"limits: {pids: 0}", `limits.pids: must be between 1 and`},
		"pids negative":   {"limits: {pids: -3}", `limits.pids: must be between 1 and`},
		"disk":            {"limits: {disk: 1k}", `limits.disk: must be between 4KiB and 1PiB`},
		"log":             {"limits: {log: 2g}", `limits.log: must be between 1KiB and 1GiB`},
		"artifact out":    {"artifact_paths: [../x]", `artifact_paths[0]: "../x" must be a pattern of paths below`},
		"artifact abs":    {"artifact_paths: [/x]", `artifact_paths[0]: "/x" must be a pattern`},
		"artifact form":   {"artifact_paths: ['a/[']", `artifact_paths[0]: "a/[" is not a pattern`},
		"artifact stars":  {"artifact_paths: ['a**']", `artifact_paths[0]: "a**" is not a pattern`},
		"artifacts":       {"artifact_paths: " + many(maxList+1, "a"), `artifact_paths: has 501 entries; at most 500`},
		"protected":       {"protected_paths: [.]", `protected_paths[0]: "." must be a relative path below the boundary`},
		"protected home":  {"protected_paths: [/etc/shadow]", `protected_paths[0]: "/etc/shadow" must be a relative`},
		"protected empty": {"protected_paths: ['']", `protected_paths[0]: must be a relative path`},
		"read only":       {"read_only_paths: [a/../..]", `read_only_paths[0]: ".." must be a relative path`},
		"exclude twice":   {"exclude: [a, a/]", `exclude[1]: "a" is given twice`},
		"exclude long":    {"exclude: [" + strings.Repeat("a", maxText+1) + "]", `has 1025 bytes; at most 1024`},
		"tool source":     {"toolchain: [{source: go, target: /host/go}]", `toolchain[0].source: "go" must be a clean absolute path`},
		"tool root":       {"toolchain: [{source: /, target: /host/go}]", `toolchain[0].source: "/" must be`},
		"tool target":     {"toolchain: [{source: /go, target: /usr/go}]", `toolchain[0].target: "/usr/go" must be a clean path below /host`},
		"tool sly":        {"toolchain: [{source: /go, target: /host/../usr}]", `must be a clean path below /host`},
		"tool nested":     {"toolchain: [{source: /a, target: /host/a}, {source: /b, target: /host/a/b}]", `toolchain[1].target: "/host/a/b" is, holds or lies in`},
		"tools":           {"toolchain: " + numbered(maxTools+1, "{source: /a, target: /host/%d}"), `toolchain: has 21 entries; at most 20`},
		"claim grade":     {"claim_grade: 1", `claim_grade: 1 must be true or false`},
		"unobserved":      {"strict: true\nallow_unobserved: true", "allow_unobserved: is true, and the wish is strict"},
		"strict":          {"strict: high", `strict: "high" must be true or false`},
		"rule name":       {"normalize: [{name: 'a b', pattern: x, replace: y}]", `normalize[0].name: "a b" must be`},
		"rule twice":      {"normalize: [{name: a, pattern: x, replace: y}, {name: a, pattern: z, replace: y}]", `normalize[1].name: "a" is given twice`},
		"rule pattern":    {"normalize: [{name: a, pattern: '(', replace: y}]", `normalize[0].pattern: "(" must be a regular expression`},
		"rule everywhere": {"normalize: [{name: a, pattern: 'x*', replace: y}]", `normalize[0].pattern: "x*" matches the empty text`},
		"rule replace":    {`normalize: [{name: a, pattern: x, replace: "\n"}]`, `normalize[0].replace: "\n" must not have control`},
		"rules":           {"normalize: " + numbered(maxRules+1, "{name: r%d, pattern: x, replace: y}"), `normalize: has 51 entries; at most 50`},
		"suspects":        {"allow_suspects: ['']", `allow_suspects[0]: matches the empty text`},
		"suspects form":   {"allow_suspects: ['[']", `allow_suspects[0]: "[" must be a regular expression`},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := Parse([]byte(c.text), "wish.yaml")
			require.ErrorContains(t, err, c.want)
			require.Equal(t, Spec{}, w)
		})
	}
}

// TestParseTellsAll: one look at the messages is enough to put a wish right, and nothing
// is reported twice.
func TestParseTellsAll(t *testing.T) {
	_, err := Parse([]byte("name: a b\nimage: 3\nlimits: {cpus: none, ram: 1}\ngate_commands: [a | b]\npython: x\n"), "w")
	require.EqualError(t, err, strings.TrimSpace(`
w:2: image: 3 must be text: put it in quotes, is a number
w:3: limits.cpus: "none" must be a number, is text
w:3: unknown key "ram" in limits; there are cpus, disk, log, memory, pids, timeout
w:1: name: "a b" must be 1 to 64 letters, digits, '.', '_' or '-', and not start with '.' or '-'
w:4: gate_commands[0]: "a | b" has the operator |, which only a shell understands, and there is none: quote it, or write sh -c '…'
w:5: python: "x" must be a version such as 3.11 or 3.11.2`))

	_, err = Parse(make([]byte, MaxDocument+1), "w")
	require.EqualError(t, err, "w: has more than 1MiB")
}

func TestSplit(t *testing.T) {
	for cmd, want := range map[string][]string{
		`pytest -q`:                      {"pytest", "-q"},
		`sh -c 'a && b > $HOME'`:         {"sh", "-c", "a && b > $HOME"},
		`pytest -k "a or b" 'c;d' e\ f`:  {"pytest", "-k", "a or b", "c;d", "e f"},
		`echo "a;b" \; '$(x)' \$x "\$y"`: {"echo", "a;b", ";", "$(x)", "$x", "$y"},
		`grep -E 'a$' "it's"`:            {"grep", "-E", "a$", "it's"},
		`echo a$ b`:                      {"echo", "a$", "b"},
		`go test ./...`:                  {"go", "test", "./..."},
	} {
		words, err := split(cmd)
		require.NoError(t, err, cmd)
		require.Equal(t, want, words)
	}
}

func TestFromCommand(t *testing.T) {
	for _, argv := range [][]string{
		{"pytest", "-q"}, {"sh", "-c", "a && b | c > d; $x `y`"}, {"echo", "", "it's", `a"b`, `\`, "*", "é", "#x", "~"},
	} {
		w, err := FromCommand(argv, Asked{})
		require.NoError(t, err)
		words, err := split(w.GateCommands[0].Cmd)
		require.NoError(t, err)
		require.Equal(t, argv, words)
	}
	for _, argv := range [][]string{nil, {""}, {"a\nb"}, {"A=1", "x"}, {"\xff"}, {strings.Repeat("x", maxCommand+1)}} {
		_, err := FromCommand(argv, Asked{})
		require.ErrorContains(t, err, "command line: ", "%q", argv)
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"a", "a", true}, {"a", "a/b", false}, {"*.whl", "x.whl", true}, {"*.whl", "d/x.whl", false},
		{"**/*.whl", "x.whl", true}, {"**/*.whl", "a/b/x.whl", true}, {"dist/**", "dist/a/b", true}, {"dist/**", "dist", true},
		{"dist/**", "distant", false}, {"a/**/b/**/c", "a/b/b/x/c", true}, {"a/**/b/**/c", "a/x/c", false}, {"[ab]?", "b1", true},
		{strings.Repeat("**/", 200) + "x", strings.Repeat("a/", 200) + "y", false},
	} {
		require.Equal(t, c.want, Match(c.pattern, c.name), "%s %s", c.pattern, c.name)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("gate_commands: [pytest -q, {cmd: a, timeout: 1s}]\nlimits: {cpus: 1.5}\n"))
	f.Add([]byte(`{"gate_commands":["a"],"network":{"level":"api"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		w, err := Parse(text, "wish.yaml")
		if err != nil {
			return
		}
		// What is taken can be sealed and read again, and is the same then.
		var mounts []evidence.ToolMount
		for _, tool := range w.Toolchain {
			mounts = append(mounts, evidence.ToolMount{Source: tool.Source, Target: tool.Target, Hash: testHash})
		}
		lock, err := Seal(w, evidence.Toolchain{Image: w.Image, Mounts: mounts})
		require.NoError(t, err)
		sealed, err := lock.JSON()
		require.NoError(t, err)
		again, err := ParseLock(sealed, "wish.lock.json")
		require.NoError(t, err)
		require.Equal(t, lock, again)
	})
}
