package evalbox_test

import (
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// goModule is what `go mod edit -json` tells of a module.
type goModule struct {
	Go      string
	Require []struct{ Path, Version string }
	Replace []struct{}
}

func readModule(t *testing.T, dir string) (m goModule) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "-C", dir, "mod", "edit", "-json").Output()
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(out, &m))
	return m
}

// TestModulesHaveTheSameVersions: hack is a module of its own, so that nobody who uses the library
// takes over what only the tools need. The tools test the product with the versions that it is built with.
func TestModulesHaveTheSameVersions(t *testing.T) {
	product, tools := readModule(t, "."), readModule(t, "hack")
	assert.Empty(t, product.Replace, "who uses the library would not have what go.mod replaces")
	assert.NoFileExists(t, "go.work", "hack/kube is a module that is built by itself")
	assert.Equal(t, product.Go, tools.Go, "run: go -C hack mod edit -go=%s", product.Go)
	versions := map[string]string{}
	for _, of := range tools.Require {
		versions[of.Path] = of.Version
	}
	shared := 0
	for _, of := range product.Require {
		if version, ok := versions[of.Path]; ok {
			shared++
			assert.Equal(t, of.Version, version, "run: go -C hack get %s@%s && go -C hack mod tidy", of.Path, of.Version)
		}
	}
	assert.NotZero(t, shared)
}
