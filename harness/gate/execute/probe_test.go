package execute

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/result"
)

// TestParseProbe: of what an image prints only the first clean line of a known name
// counts.
func TestParseProbe(t *testing.T) {
	found, complete := parseProbe("timezone\tUTC\nlocale\tC.UTF-8\npython3\tPython 3.11.2\npython3\tPython 9.9.9\npytest\tpytest 7.2.1\n" +
		"go\tgo version go1.26.0 linux/amd64\ngit\t\x1b[31mgit version 2.0\nunknown\t1.0\nmake\nruby\t" + strings.Repeat("1", maxVersion+1) +
		"\nnode\tv20.1.0-rc.1+x\nnpm\t\xff1.0\njava\tno version here\n")
	require.Equal(t, map[string]string{
		"timezone": "UTC", "locale": "C.UTF-8", "python3": "Python 3.11.2", "pytest": "pytest 7.2.1",
		"go": "go version go1.26.0 linux/amd64", "node": "v20.1.0-rc.1+x", "java": "no version here",
	}, found)
	require.True(t, complete)

	var s evidence.EnvSnapshot
	fill(&s, found, &result.Result{Image: result.Image{ID: "sha256:01", Platform: "linux/arm64/v8", Locked: true}})
	require.Equal(t, map[string]string{"python": "3.11.2", "go": "1.26.0", "node": "20.1.0-rc.1+x", "java": "no version here"}, s.LanguageRuntimes)
	require.Equal(t, map[string]string{"pytest": "7.2.1"}, s.ToolVersions)
	require.Equal(t, "linux", s.OS)
	require.Equal(t, "arm64/v8", s.Arch)
	require.True(t, s.ImageLocked)

	found, complete = parseProbe("locale\t\npython3\tPython 3.11.2\npytest\t\n")
	require.Equal(t, map[string]string{"locale": "", "python3": "Python 3.11.2"}, found)
	require.False(t, complete, "a tool that did not answer in time is asked again")
	found, _ = parseProbe("")
	require.Empty(t, found)
}
