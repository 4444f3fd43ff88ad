package kubernetes

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRoleOfTheExample(t *testing.T) {
	file, err := os.ReadFile("../../../examples/kubernetes/role.yaml")
	require.NoError(t, err)
	require.Equal(t, RoleYAML("", nil), string(file))
}

func TestRoleMarksWhatIsMissing(t *testing.T) {
	text := RoleYAML("box", []Permission{{"", "pods/exec", []string{"get"}}})
	require.Contains(t, text, "namespace: box\n")
	require.Contains(t, text, "resources: [\"pods/exec\"]\n  verbs:\n  - create\n  - get # missing\n")
	require.Equal(t, 1, strings.Count(text, "# missing"))
}
