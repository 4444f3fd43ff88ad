package registry

import (
	_ "embed"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/configs"
)

// goodTools is a registry with one tool of each kind; the tests of contracts use it as well.
//
//go:embed testdata/tools.yaml
var goodTools string

func testRegistry(t testing.TB) Registry {
	t.Helper()
	r, err := Parse([]byte(goodTools), "tools.yaml")
	require.NoError(t, err)
	return r
}

// TestShippedTools: nothing that starts other commands may be used.
func TestShippedTools(t *testing.T) {
	r, err := Parse(configs.Tools(), "tools.yaml")
	require.NoError(t, err)
	require.Equal(t, "tools.yaml", r.Source)
	usable := map[string]bool{}
	for _, tool := range r.Tools() {
		require.NotEmpty(t, tool.Description, tool.ID)
		for _, command := range tool.Scope.Commands {
			require.NotContains(t, usable, command, "two tools have it")
			usable[command] = tool.Status != Blocked
		}
	}
	require.True(t, usable["python3"])
	for _, command := range []string{"sh", "bash", "env", "xargs", "find", "awk", "sed", "tar"} {
		require.False(t, usable[command], command)
	}
	sort, ok := r.Tool("TL-022")
	require.True(t, ok)
	for argument, permitted := range map[string]bool{
		"-n": true, "-k2,2n": true, "--key=2": true, "a.txt": true, "": true, "-": true, "-t\t": true, "a\n-b": true,
		"--compress-program=sh": false, "--comp=sh": false, "-S1": false, "--files0-from=x": false, "-n\n--compress-program=sh": false,
	} {
		require.Equal(t, permitted, sort.Permits(argument), "%q", argument)
	}
}

func TestParse(t *testing.T) {
	r := testRegistry(t)
	require.Len(t, r.Tools(), 5)
	_, ok := r.Tool("T-9")
	require.False(t, ok)

	for name, test := range map[string]struct{ old, replacement, want string }{
		"another version":   {"tools/v1", "tools/v9", `tools.yaml:1: schema: want "evalbox/tools/v1", have "evalbox/tools/v9"`},
		"an unknown key":    {"    owner: me\n    status: blocked", "    ownr: me\n    status: blocked", `tools.yaml:19: unknown key "ownr" in tools[1]`},
		"an ID twice":       {"T-2", "T-1", `tools.yaml:16: tools[1].tool_id: "T-1" is given twice`},
		"a bad ID":          {"T-2", "../x", `tools.yaml:16: tools[1].tool_id: "../x" must be 1 to 64 letters`},
		"a status":          {"status: blocked", "status: off", `tools.yaml:20: tools[1].status: "off" must be one of active, deprecated, blocked`},
		"a number for text": {"version: \"1\"\n    owner: me\n    status: blocked", "version: 1\n    owner: me\n    status: blocked", "tools.yaml:18: tools[1].version: 1 must be text: put it in quotes"},
		"no owner":          {"owner: me\n    status: blocked", "owner: ' '\n    status: blocked", "tools.yaml:19: tools[1].owner: must not be empty"},
		"no command":        {"commands: [two]", "commands: []", "tools.yaml:22: tools[1].scope.commands: must name at least one command"},
		"an empty command":  {"commands: [two]", "commands: ['']", `tools.yaml:22: tools[1].scope.commands[0]: "" must not be empty`},
		"a level":           {"network: offline, filesystem: minimal}\n    approval: {approver: me, date: \"2026-01-31\"}\n  - tool_id: T-3", "network: wide, filesystem: all}\n    approval: {approver: me, date: \"2026-01-31\"}\n  - tool_id: T-3", `tools.yaml:22: tools[1].scope.network: "wide" must be one of offline, registry, api, open` + "\n" + `tools.yaml:22: tools[1].scope.filesystem: "all" must be one of minimal`},
		"data access":       {"commands: [two], data_access: none", "commands: [two], data_access: all", `tools.yaml:22: tools[1].scope.data_access: "all" must be one of none, read, write`},
		"a pattern":         {"'-[ab]'", "'-[ab'", "tools.yaml:10: tools[0].scope.arguments[0]: \"-[ab\" must be a regular expression"},
		"an endpoint":       {"[api.example.com]", "['']", "tools.yaml:11: tools[0].scope.endpoints[0]: must not be empty"},
		"a date":            {`date: "2026-01-31"}` + "\n  - tool_id: T-2", `date: "31.1.2026"}` + "\n  - tool_id: T-2", `tools.yaml:15: tools[0].approval.date: "31.1.2026" must be a date such as 2026-01-31`},
		"no approver":       {`{approver: me, date: "2026-01-31"}` + "\n  - tool_id: T-2", `{date: "2026-01-31"}` + "\n  - tool_id: T-2", "tools.yaml:3: tools[0].approval.approver: must not be empty"},
		"no tools":          {goodTools[strings.Index(goodTools, "tools:"):], "tools: []\n", "tools.yaml: tools: must have at least one tool"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Contains(t, goodTools, test.old)
			r, err := Parse([]byte(strings.Replace(goodTools, test.old, test.replacement, 1)), "tools.yaml")
			require.ErrorContains(t, err, test.want)
			require.Empty(t, r)
		})
	}
}

func TestRegistryCheck(t *testing.T) {
	tool := func(id, status, more, scope string) string {
		return "  - {tool_id: " + id + ", name: " + id + ", version: '1', owner: o, status: " + status + more +
			", approval: {approver: a, date: '2026-01-31'}, scope: {data_access: write, network: offline, filesystem: standard, " + scope + "}}\n"
	}
	registry, err := Parse([]byte("schema: evalbox/tools/v1\ntools:\n"+
		tool("TL-001", "active", "", `commands: [pytest], arguments: ["-q", "tests/.*"]`)+
		tool("TL-002", "blocked", ", replacement: TL-001", "commands: [pytest, py.test]")+
		tool("TL-003", "deprecated", "", "commands: [make]")), "tools.yaml")
	require.NoError(t, err)
	for _, argv := range [][]string{{"pytest"}, {"pytest", "-q", "tests/a.py"}, {"make", "anything", "$(x)"}} {
		assert.NoError(t, registry.Check(argv), argv)
	}
	for _, c := range []struct {
		argv []string
		want string
	}{
		{nil, "there is no command"},
		{[]string{"rm", "-rf", "/"}, `"rm" is a command of no tool`},
		{[]string{"/usr/bin/pytest"}, "is a command of no tool"},
		{[]string{"PYTEST"}, "is a command of no tool"},
		{[]string{"py.test"}, "tool TL-002 is blocked; use TL-001"},
		{[]string{"pytest", "-q", "--pdb"}, `"--pdb"`},
		{[]string{"pytest", "-q\n"}, `"-q\n"`},
	} {
		assert.ErrorContains(t, registry.Check(c.argv), c.want)
	}
	assert.Error(t, Registry{}.Check([]string{"true"}), "an empty registry permits nothing")
}
