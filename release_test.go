package evalbox_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// TestReleaseNamesWhatExists: the files and the variable that a release names exist, because
// the linker ignores a variable that does not.
func TestReleaseNamesWhatExists(t *testing.T) {
	text, err := os.ReadFile(".goreleaser.yaml")
	require.NoError(t, err)
	var release struct {
		Builds []struct {
			Main    string
			Env     []string
			Ldflags []string
			Goos    []string
		}
		Archives []struct{ Files []any }
	}
	require.NoError(t, yaml.Unmarshal(text, &release))
	require.Len(t, release.Builds, 1)
	build := release.Builds[0]
	assert.FileExists(t, filepath.Join(build.Main, "main.go"))
	assert.Contains(t, build.Env, "CGO_ENABLED=0")
	assert.Equal(t, []string{"linux", "darwin"}, build.Goos)

	makefile, err := os.ReadFile("Makefile")
	require.NoError(t, err)
	variable := regexp.MustCompile(`-X ` + module + `/(\S+)\.(\w+)=`).FindStringSubmatch(strings.Join(build.Ldflags, " "))
	require.NotNil(t, variable)
	assert.Contains(t, string(makefile), variable[0])
	sources, err := filepath.Glob(filepath.Join(variable[1], "*.go"))
	require.NoError(t, err)
	declared := false
	for _, source := range sources {
		code, err := os.ReadFile(source)
		require.NoError(t, err)
		declared = declared || strings.Contains(string(code), "\nvar "+variable[2]+" = ")
	}
	assert.True(t, declared, "%s.%s is not a variable", variable[1], variable[2])

	require.Len(t, release.Archives, 1)
	var completions bool
	for _, file := range release.Archives[0].Files {
		if name, ok := file.(string); ok {
			assert.FileExists(t, name)
			continue
		}
		completions = file.(map[string]any)["src"] == "bin/completions/*" // made by make completions
	}
	assert.True(t, completions)
}
