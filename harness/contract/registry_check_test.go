package contract

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRegistryCheck(t *testing.T) {
	tool := func(id, status, more, scope string) string {
		return "  - {tool_id: " + id + ", name: " + id + ", version: '1', owner: o, status: " + status + more +
			", approval: {approver: a, date: '2026-01-31'}, scope: {data_access: write, network: offline, filesystem: standard, " + scope + "}}\n"
	}
	registry, err := ParseRegistry([]byte("schema: evalbox/tools/v1\ntools:\n"+
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
