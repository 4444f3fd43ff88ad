package evalbox_test

import (
	"os"
	"os/exec"
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
		Archives []struct{ Files []contentOfRelease }
		Nfpms    []struct {
			Formats  []string
			Contents []contentOfRelease
		}
		Sboms []struct{ Cmd, Artifacts string }
		Signs []struct{ Artifacts, Cmd string }
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
	require.Len(t, release.Nfpms, 1)
	assert.Equal(t, []string{"deb", "rpm"}, release.Nfpms[0].Formats)
	targets := map[string]bool{}
	for _, file := range append(release.Archives[0].Files, release.Nfpms[0].Contents...) {
		targets[file.Dst] = true
		if !strings.HasPrefix(file.Src, "bin/") { // made by make completions and make man
			assert.FileExists(t, file.Src)
		}
	}
	for _, target := range []string{
		"completions", "man/man1", "sandbox.example.yaml", "/usr/share/man/man1/", "/usr/share/doc/evalbox/copyright",
		"/usr/share/bash-completion/completions/sandbox", "/usr/share/fish/vendor_completions.d/sandbox.fish",
		"/usr/share/zsh/vendor-completions/_sandbox", "/usr/share/zsh/site-functions/_sandbox",
	} {
		assert.True(t, targets[target], target)
	}
	require.Len(t, release.Sboms, 1)
	assert.Equal(t, "cyclonedx-gomod", release.Sboms[0].Cmd)
	require.Len(t, release.Signs, 1)
	assert.Equal(t, "checksum", release.Signs[0].Artifacts)
}

// contentOfRelease is a file in an archive or a package.
type contentOfRelease struct{ Src, Dst, Packager string }

// TestReleaseNotes: the notes of a release are the section of its version, and a tag is the name of
// a version.
func TestReleaseNotes(t *testing.T) {
	changes := filepath.Join(t.TempDir(), "CHANGELOG.md")
	require.NoError(t, os.WriteFile(changes, []byte(`# Changelog

## [Unreleased]

## [1.2.3] - 2026-01-02

### Added

- A thing.

## [1.2.3-rc.1] - 2026-01-01

- The same thing.

[1.2.3]: https://example.org
`), 0o600))
	notes := func(tag string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "hack/release-notes", tag, changes).CombinedOutput()
		return string(out), err
	}
	text, err := notes("v1.2.3")
	require.NoError(t, err)
	assert.Equal(t, "### Added\n\n- A thing.\n", text)
	text, err = notes("v1.2.3-rc.1")
	require.NoError(t, err)
	assert.Equal(t, "- The same thing.\n", text)
	for tag, message := range map[string]string{
		"v1.2.4": "has no section [1.2.4]", "1.2.3": "must be vMAJOR.MINOR.PATCH", "v1.2": "must be", "v01.2.3": "must be", "": "must be",
	} {
		text, err := notes(tag)
		require.Error(t, err, tag)
		assert.Contains(t, text, message)
		assert.Contains(t, text, "\nhint: ")
	}
}

// TestInstall: make install puts each file where its reader looks, and make uninstall removes all
// of them.
func TestInstall(t *testing.T) {
	root := t.TempDir()
	built := t.TempDir() // not bin, which others use
	target := func(name string) {
		cmd := exec.CommandContext(t.Context(), "make", name, "DESTDIR="+root, "PREFIX=/usr", "VERSION=1.2.3", "BIN="+built)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	target("install")
	for _, file := range []string{
		"bin/sandbox", "share/man/man1/sandbox.1.gz", "share/man/man1/sandbox-run.1.gz", "share/zsh/site-functions/_sandbox",
		"share/bash-completion/completions/sandbox", "share/fish/vendor_completions.d/sandbox.fish",
	} {
		assert.FileExists(t, filepath.Join(root, "usr", file))
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, "usr/bin/sandbox"), "version").Output()
	require.NoError(t, err)
	assert.Contains(t, string(out), "sandbox 1.2.3 (")
	target("uninstall")
	require.NoError(t, filepath.WalkDir(root, func(name string, entry os.DirEntry, err error) error {
		assert.True(t, err == nil && entry.IsDir(), "%s stays", name)
		return err
	}))
}
