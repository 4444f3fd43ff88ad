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

func testCatalog(t *testing.T) Catalog {
	t.Helper()
	cat, err := LoadCatalog(read(t, "testdata/valid/full.yaml"), "full.yaml")
	require.NoError(t, err)
	return cat
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

func TestRecipeChangesWithWhatDecidesTheImage(t *testing.T) {
	cat := testCatalog(t)
	base, _ := cat.Lookup("small")
	assert.Regexp(t, `^evalbox/small:[0-9a-f]{12}$`, base.Tag())

	for name, change := range map[string]func(*Entry, *Bootstrap){
		"packages":     func(_ *Entry, b *Bootstrap) { b.Packages = []string{"python3"} },
		"stand-ins":    func(_ *Entry, b *Bootstrap) { b.StandIns = nil },
		"exclude":      func(_ *Entry, b *Bootstrap) { b.Exclude = nil },
		"suite":        func(_ *Entry, b *Bootstrap) { b.Suite = "trixie" },
		"epoch":        func(_ *Entry, b *Bootstrap) { b.Epoch = b.Epoch.AddDate(0, 0, 1) },
		"dockerfile":   func(e *Entry, _ *Bootstrap) { e.DockerfileSHA256 = "0" + e.DockerfileSHA256[1:] },
		"requirements": func(e *Entry, _ *Bootstrap) { e.RequirementsSHA256 = e.DockerfileSHA256 },
	} {
		t.Run(name, func(t *testing.T) {
			e, b := base, *base.Base.Bootstrap
			e.Base.Bootstrap = &b
			change(&e, &b)
			assert.NotEqual(t, base.Tag(), e.Tag())
		})
	}

	described := base
	described.Description = "other words"
	assert.Equal(t, base.Tag(), described.Tag(), "the description is not part of the recipe")

	onRegistry, _ := cat.Lookup("pip")
	later := onRegistry
	later.Epoch = later.Epoch.AddDate(0, 0, 1)
	assert.NotEqual(t, onRegistry.Tag(), later.Tag(), "the time stamp is part of the recipe")
}
