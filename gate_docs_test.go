package evalbox_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/judge"
	"github.com/evalbox/evalbox/harness/gate/spec"
)

// TestGateDocs: what docs/gate.md shows can be read, and it has every reason to stop.
func TestGateDocs(t *testing.T) {
	page, err := os.ReadFile("docs/gate.md")
	require.NoError(t, err)
	shown := func(kind string) string {
		_, rest, found := strings.Cut(string(page), "```"+kind+"\n")
		require.True(t, found, kind)
		text, _, found := strings.Cut(rest, "```\n")
		require.True(t, found, kind)
		return text
	}
	w, err := spec.Parse([]byte(shown("yaml")), "docs/gate.md")
	require.NoError(t, err)
	assert.Len(t, w.GateCommands, 3)
	// Whatever a wish can say is shown.
	schema := map[string]bool{}
	for _, key := range regexp.MustCompile(`(?m)^(\w+):`).FindAllStringSubmatch(shown("yaml"), -1) {
		schema[key[1]] = true
	}
	for _, key := range []string{
		"schema", "name", "gate_commands", "io_boundary", "image", "python", "env", "limits", "artifact_paths", "protected_paths",
		"read_only_paths", "exclude", "toolchain", "normalize", "allow_suspects", "claim_grade", "strict", "allow_unobserved",
	} {
		assert.True(t, schema[key], "docs/gate.md does not show %s", key)
	}
	_, err = judge.ParseGates([]byte(shown("json")))
	require.NoError(t, err)

	source, err := os.ReadFile("harness/gate/evidence/verdict.go")
	require.NoError(t, err)
	reasons := regexp.MustCompile(`Reason\w+ +StopReason = "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	require.Greater(t, len(reasons), 15)
	for _, reason := range reasons {
		assert.Contains(t, string(page), reason[1])
	}
}

// TestGateExample: the wish of the example can be sealed, and its workspace is there. A
// script of the command line runs it.
func TestGateExample(t *testing.T) {
	text, err := os.ReadFile("examples/gate/wish.yaml")
	require.NoError(t, err)
	w, err := spec.Parse(text, "wish.yaml")
	require.NoError(t, err)
	workspace, err := w.Workspace("examples/gate")
	require.NoError(t, err)
	for _, name := range append(w.ProtectedPaths, w.ReadOnlyPaths...) {
		assert.DirExists(t, workspace+"/"+name)
	}
}
