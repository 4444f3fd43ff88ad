package images

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestLoadCatalogValid(t *testing.T) {
	for _, path := range corpus(t, "valid") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			cat, err := LoadCatalog(read(t, path), path)
			require.NoError(t, err)
			assert.Equal(t, path, cat.Source)
			def, ok := cat.Lookup("")
			require.True(t, ok)
			assert.Equal(t, cat.Default, def.Name)
			for _, name := range cat.Names() {
				e, ok := cat.Lookup(name)
				require.True(t, ok)
				assert.Equal(t, name, e.Name)
			}
			_, ok = cat.Lookup("absent")
			assert.False(t, ok)
		})
	}
}

// Each invalid file says in its first lines what the error must hold.
func TestLoadCatalogInvalid(t *testing.T) {
	for _, path := range corpus(t, "invalid") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			data := read(t, path)
			var wanted []string
			for line := range strings.Lines(string(data)) {
				if want, ok := strings.CutPrefix(line, "# want: "); ok {
					wanted = append(wanted, strings.TrimSuffix(want, "\n"))
				}
			}
			require.NotEmpty(t, wanted, "the file does not say what it wants")
			cat, err := LoadCatalog(data, path)
			require.Error(t, err)
			assert.Empty(t, cat)
			for _, want := range wanted {
				assert.ErrorContains(t, err, want)
			}
			for line := range strings.Lines(err.Error()) {
				assert.True(t, strings.HasPrefix(line, path+":"), "does not name the file: %s", line)
			}
		})
	}
}

func corpus(t *testing.T, kind string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("testdata", kind, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	return paths
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return data
}
