package guides

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	const page = "<!-- guide: ssh -->\n# Title\n\nSave this as\n`a.py`:\n\n```python a.py\nprint(1)\n```\n\n" +
		"```console\n$ sandbox run \\\n    a.py\n1\n$ echo $?\n0\n```\n\n```json\n{}\n```\n"
	g, err := Parse(page)
	require.NoError(t, err)
	assert.Equal(t, Guide{Setting: "ssh", Steps: []Step{
		{Line: 7, File: "a.py", Text: "print(1)\n"},
		{Line: 12, Command: "sandbox run \\\n    a.py", Output: "1\n", End: 15},
		{Line: 15, Command: "echo $?", Output: "0\n", End: 17},
	}}, g)
}

// TestPages: every guide can be run, also those that a short form leaves out.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("../../docs/guides/*.md")
	require.NoError(t, err)
	require.NotEmpty(t, pages)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		_, err = Parse(string(text))
		require.NoError(t, err, page)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ page, want string }{
		{"# T\n```console\n$ a", "line 2: the block has no end"},
		{"# T\n```console\na\n```\n", "line 3: want a command"},
		{"# T\n```sh\na\n```\n", "line 2: want console"},
		{"# T\n```\na\n```\n", "line 2: want console"},
		{"`a.py`\n\nother\n\n```python a.py\n```\n", "line 5: the paragraph above the block does not name `a.py`"},
	} {
		_, err := Parse(c.page)
		assert.ErrorContains(t, err, c.want)
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		shown, printed string
		want           bool
	}{
		{"exited 0 · 0.04s · peak 11.96 MiB · id 20261122t105002-1ea0a2cd98\n", "exited 0 · 1m02s · peak 8 KiB · id 20261123t105002-1ea0a2cdff\n", true},
		{"exited 0\n", "exited  0\n\n", true},
		{"exited 0\n", "signaled 0\n", false},
		{"a\nb\n", "a\n", false},
		{"", "", true},
		{"", "a\n", false},
		{"a\n...\nz\n", "a\nb\nc\nz\n", true},
		{"a\n...\nz\n", "a\nz\n", true},
		{"...\n", "", true},
		{"a … c\n", "a b, c\n", true},
		{"a … c\n", "a b\nc\n", false},
		{"sha256:6cb9d8e7f0 2 % 90%\n", "sha256:6cb9d8e7f0aa 100 % 9%\n", true},
		{"decade\n", "facade\n", false}, // seven hex digits and more are a hash
		{"999999 bytes\n", "1000000 bytes\n", true},
		{"1.5e-3 -1\n", "7 -2\n", true},
		{"a-…-py3.whl\n", "a-0.1.2+a4fd2430-py3.whl\n", true},
		{"at 2026-01-02T15:04:05Z\n", "at 2027-01-02T15:04:05.123Z\n", true},
	} {
		assert.Equal(t, c.want, Matches(c.shown, c.printed), "%q and %q", c.shown, c.printed)
	}
}
