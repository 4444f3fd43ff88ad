package build

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/configs"
	"github.com/evalbox/evalbox/images"
	"github.com/evalbox/evalbox/images/imagestest"
	"github.com/evalbox/evalbox/internal/treetest"
)

func TestLabelStages(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"one":       {"FROM a\nRUN b", "FROM a\nL\nRUN b\n"},
		"stages":    {"# c\nARG X=1\nfrom a as b\nRUN c\n\n FROM d\n", "# c\nARG X=1\nfrom a as b\nL\nRUN c\n\n FROM d\nL\n"},
		"continued": {"FROM \\\n# c\n\n  a\nRUN x \\\n FROM y\n", "FROM \\\n# c\n\n  a\nL\nRUN x \\\n FROM y\n"},
		"escape":    {"# escape=`\nFROM a `\n AS b\nRUN c:\\\nFROM d\n", "# escape=`\nFROM a `\n AS b\nL\nRUN c:\\\nFROM d\nL\n"},
		"crlf":      {"FROM a\r\nRUN b\r\n", "FROM a\nL\nRUN b\n"},
	} {
		assert.Equal(t, c.want, labelStages(c.in, "L"), name)
	}
}

func TestMakeFromADockerfile(t *testing.T) {
	dir := treetest.Dir(t, map[string]string{
		"app.py": "print(1)\n", "big/data": "left out", "big/kept": "kept", ".dockerignore": "big\n!big/kept\n", "Dockerfile": "FROM scratch\n",
	})
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(dir, "link")))
	eng, opts := imagestest.New(t), options(t, new(atomic.Int32))
	r, err := Make(t.Context(), eng, imagestest.Catalog(t), Own{Name: "mine", Dockerfile: "FROM scratch\nCOPY app.py /\n", Dir: dir}, opts)
	require.NoError(t, err)
	assert.Equal(t, "evalbox/mine:own", r.Reference)
	assert.True(t, r.Own)
	assert.Equal(t, []string{"evalbox/mine:own"}, eng.Built.Tags)
	assert.Equal(t, "default", eng.Built.NetworkMode)
	assert.Empty(t, eng.Built.BuildArgs)
	files := contextOf(t, eng)
	assert.Equal(t, "print(1)\n", files["app.py"])
	assert.Equal(t, "kept", files["big/kept"])
	assert.NotContains(t, files, "big/data")
	assert.Contains(t, files, "link", "as a link")
	assert.Empty(t, files["link"])
	text := files[eng.Built.Dockerfile]
	assert.Contains(t, text, "FROM scratch\nLABEL org.evalbox.image=\"mine\" org.evalbox.recipe=\"")
	assert.Contains(t, text, "\nCOPY app.py /\n")
}

func TestMakeFromPackages(t *testing.T) {
	eng, opts := imagestest.New(t), options(t, new(atomic.Int32))
	var progress bytes.Buffer
	opts.Pull.Progress = &progress
	r, err := Make(t.Context(), eng, imagestest.Catalog(t), Own{Name: "mine", Debian: []string{"git", "python3-yaml"}}, opts)
	require.NoError(t, err)
	assert.Equal(t, "evalbox/mine:own", r.Reference)
	assert.Equal(t, "none", eng.Built.NetworkMode)
	text := contextOf(t, eng)["Dockerfile.runner"]
	assert.True(t, strings.HasPrefix(text, opts.Dockerfile))
	assert.Contains(t, text, `LABEL org.evalbox.own="debian `)
	assert.Contains(t, text, "with git, python3-yaml")
}

// TestMakeExcludes: packages of the user's choice are complete but for documentation, also when the catalog
// excludes more from its own; pip's image has no such packages.
func TestMakeExcludes(t *testing.T) {
	shipped, err := images.LoadCatalog(configs.Images(), "images.yaml")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		cat  images.Catalog
		own  Own
		want []string
	}{
		"the shipped catalog": {
			shipped, Own{Debian: []string{"libc6-dev"}},
			[]string{"/usr/share/doc/*", "/usr/share/man/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/lintian/*"},
		},
		"another catalog": {imagestest.Catalog(t), Own{Debian: []string{"libc6-dev"}}, []string{"/usr/share/doc/*"}},
		"pip":             {imagestest.Catalog(t), Own{Requirements: "tiny==1\n"}, []string{"/usr/share/doc/*", "*.a"}},
	} {
		t.Run(name, func(t *testing.T) {
			opts := options(t, new(atomic.Int32))
			var got []string
			root := opts.Root
			opts.Root = func(ctx context.Context, b images.Bootstrap, w io.Writer, progress func(string)) error {
				got = b.Exclude
				return root(ctx, b, w, progress)
			}
			before, _ := c.cat.Lookup("")
			recipe := before.Recipe()
			c.own.Name = "mine"
			_, err := Make(t.Context(), imagestest.New(t), c.cat, c.own, opts)
			require.NoError(t, err)
			assert.Equal(t, c.want, got)
			assert.Equal(t, recipe, before.Recipe(), "the catalog stays as it is")
		})
	}
}

func TestMakeFromRequirements(t *testing.T) {
	eng, opts := imagestest.New(t), options(t, new(atomic.Int32))
	opts.PipIndex = "http://127.0.0.1:3141/simple"
	_, err := Make(t.Context(), eng, imagestest.Catalog(t), Own{Name: "mine", Requirements: "tiny==1\n"}, opts)
	require.NoError(t, err)
	assert.Equal(t, "default", eng.Built.NetworkMode)
	assert.Equal(t, opts.PipIndex, *eng.Built.BuildArgs["PIP_INDEX"])
	files := contextOf(t, eng)
	assert.Equal(t, "tiny==1\n", files[pipFile])
	assert.Contains(t, files["Dockerfile.runner"], "-r /usr/share/evalbox/requirements.txt\nUSER 64646:64646\n")
}

func TestMakeRefuses(t *testing.T) {
	cat := imagestest.Catalog(t)
	for name, c := range map[string]struct {
		own  Own
		want string
	}{
		"a bad name":            {Own{Name: "My Image", Debian: []string{"git"}}, "must be lower-case words"},
		"a name of the catalog": {Own{Name: "pip", Debian: []string{"git"}}, "is a name of the catalog"},
		"an option of apt":      {Own{Name: "mine", Debian: []string{"--force"}}, "is not a package name"},
		"a base that is not in the engine": {
			Own{Name: "mine", Requirements: "x", Base: "nowhere:1"}, "is neither a name of the catalog nor in the engine",
		},
	} {
		eng := imagestest.New(t)
		_, err := Make(t.Context(), eng, cat, c.own, options(t, new(atomic.Int32)))
		require.ErrorContains(t, err, c.want, name)
		_, calls := eng.State()
		assert.Zero(t, calls["build"], name)
	}
	_, err := Make(t.Context(), imagestest.New(t), images.Catalog{}, Own{Name: "mine", Debian: []string{"git"}}, options(t, new(atomic.Int32)))
	require.ErrorContains(t, err, "no image of Debian packages")
}
