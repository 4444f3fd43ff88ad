package main

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const repository = "../.."

// TestPagesAreCurrent: the pages of the documents are those of the commands and of the code.
func TestPagesAreCurrent(t *testing.T) {
	for name, page := range pages {
		want, err := page(repository)
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(repository, name))
		require.NoError(t, err)
		assert.Equal(t, want, string(got), "%s is not current: make reference", name)
	}
}

// TestEveryFormIsDocumented: the code and the page have the same forms, and each form once.
func TestEveryFormIsDocumented(t *testing.T) {
	code, err := formsInCode(repository)
	require.NoError(t, err)
	var documented []string
	for _, section := range sections {
		for _, f := range section.forms {
			documented = append(documented, "evalbox/"+f.name)
		}
	}
	schemas, err := schemaFiles(repository)
	require.NoError(t, err)
	for name, file := range schemas {
		assert.Contains(t, documented, name, file)
		code = append(code, name)
	}
	slices.Sort(code)
	slices.Sort(documented)
	assert.Equal(t, slices.Compact(code), documented)
}

// TestDocumentedCommandsExist: the commands and flags that the page of forms names are there.
func TestDocumentedCommandsExist(t *testing.T) {
	for _, section := range sections[:2] {
		for _, f := range section.forms {
			if strings.HasPrefix(f.name, "gate-document") {
				continue // it names a field
			}
			for i, quoted := range strings.Split(f.where+f.meaning, "`") {
				words := strings.Fields(quoted)
				if i%2 == 0 || strings.HasSuffix(quoted, ".json") || strings.HasPrefix(quoted, "-") {
					continue
				}
				cmd, rest, err := tree().Find(words)
				if err != nil || cmd.Name() == "sandbox" {
					cmd, rest, err = tree().Find(append([]string{"image"}, words...))
				}
				require.NoError(t, err, "%s: %s", f.name, quoted)
				assert.NotEqual(t, "image", cmd.Name(), "%s: %s", f.name, quoted)
				for _, flag := range rest {
					assert.NotNil(t, cmd.Flag(strings.TrimPrefix(flag, "--")), "%s: %s", f.name, quoted)
				}
			}
		}
	}
}

func TestFlagOf(t *testing.T) {
	cmd := &cobra.Command{}
	cmd.Flags().StringP("final", "f", "out", "`directory` for files")
	cmd.Flags().Bool("json", false, "print JSON")
	assert.Equal(t, flag{"-f, --final", "directory", `directory for files (default "out")`}, flagOf(cmd.Flag("final")))
	assert.Equal(t, flag{"--json", "", "print JSON"}, flagOf(cmd.Flag("json")))
}

func TestExitCodes(t *testing.T) {
	assert.Equal(t, "The exit code is 1 if it failed.", exitCodes("Check it. It is quick.\nThe exit code is 1 if\nit failed.\n\nMore."))
	assert.Equal(t, "The exit code is the program's.", exitCodes("Run.\n\nThe exit code is the program's."))
	assert.Empty(t, exitCodes("It has an exit code."))
}

// TestManPages: every command has a page that man renders without a warning, the same bytes
// each time, and none of its words is lost.
func TestManPages(t *testing.T) {
	dir, again, date := t.TempDir(), t.TempDir(), time.Unix(1_700_000_000, 0).UTC()
	require.NoError(t, writeManPages(dir, "1.2.3", date))
	require.NoError(t, writeManPages(again, "1.2.3", date))
	commands := visible(tree())
	require.Greater(t, len(commands), 50)
	for _, cmd := range commands {
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-") + ".1.gz"
		packed, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		same, err := os.ReadFile(filepath.Join(again, name))
		require.NoError(t, err)
		assert.Equal(t, packed, same, name)
		r, err := gzip.NewReader(bytes.NewReader(packed))
		require.NoError(t, err)
		page, err := io.ReadAll(r)
		require.NoError(t, err)
		assert.Contains(t, string(page), `"Nov 2023" "evalbox 1.2.3"`, name)
		assert.NotContains(t, string(page), noValue, name)
		groff, err := exec.LookPath("groff")
		if err != nil {
			continue // make release-dry-run renders pages as well
		}
		groffed := exec.CommandContext(t.Context(), groff, "-man", "-Tascii", "-ww", "-P-c", "-rLL=200n")
		groffed.Stdin = bytes.NewReader(page)
		var warnings bytes.Buffer
		groffed.Stderr = &warnings
		shown, err := groffed.Output()
		require.NoError(t, err, name)
		assert.Empty(t, warnings.String(), name)
		rendered := unspaced(overstrike(string(shown)))
		for _, text := range []string{cmd.Short, cmd.Long, strings.ReplaceAll(cmd.UseLine(), "\n  ", "\n")} {
			for line := range strings.Lines(text) {
				assert.Contains(t, rendered, unspaced(line), name)
			}
		}
	}
}

// unspaced is a text without spaces, because groff breaks lines elsewhere.
func unspaced(text string) string { return strings.Join(strings.Fields(text), "") }

// overstrike is a text of groff without the backspaces with which it shows bold letters.
func overstrike(text string) string {
	var b []rune
	for _, r := range text {
		if r == '\b' && len(b) > 0 {
			b = b[:len(b)-1]
			continue
		}
		b = append(b, r)
	}
	return string(b)
}
