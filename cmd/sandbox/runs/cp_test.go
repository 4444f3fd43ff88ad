package runs

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treetest"
)

// copying is a copy from a ./final with one file of a directory, and what it warns of.
func copying(t *testing.T, final string) (c *copyOut, warnings *[]string) {
	t.Helper()
	root, err := os.OpenRoot(final)
	require.NoError(t, err)
	t.Cleanup(func() { root.Close() })
	warnings = new([]string)
	sum := sha256.Sum256([]byte("kept"))
	return &copyOut{ctx: t.Context(), from: root, run: "r1", seen: map[string]bool{}, sums: map[string]string{"d/kept": hex.EncodeToString(sum[:])},
		warn: func(format string, args ...any) { *warnings = append(*warnings, fmt.Sprintf(format, args...)) }}, warnings
}

func copyPath(t *testing.T, c *copyOut, path, dest string) error {
	t.Helper()
	info, err := fsx.LstatBelow(c.from, path)
	require.NoError(t, err)
	return c.toDir(path, info, dest)
}

// Nothing is written through a link, and nothing is read through one.
func TestCopyFollowsNoLink(t *testing.T) {
	final, dest, outside := t.TempDir(), t.TempDir(), t.TempDir()
	treetest.File(t, filepath.Join(final, "d", "kept"), "kept")
	secret := treetest.File(t, filepath.Join(outside, "secret"), "secret")
	require.NoError(t, os.Symlink(secret, filepath.Join(final, "d", "link")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(final, "d", "pipe"), 0o600))

	// A directory of that name that leads elsewhere.
	require.NoError(t, os.Symlink(outside, filepath.Join(dest, "d")))
	c, _ := copying(t, final)
	require.ErrorContains(t, copyPath(t, c, "d", dest), "is not a directory (a symbolic link)")
	require.NoFileExists(t, filepath.Join(outside, "kept"))

	// A file of that name that is a link is replaced.
	require.NoError(t, os.Remove(filepath.Join(dest, "d")))
	require.NoError(t, os.Mkdir(filepath.Join(dest, "d"), 0o755))
	require.NoError(t, os.Symlink(secret, filepath.Join(dest, "d", "kept")))
	c, warnings := copying(t, final)
	require.NoError(t, copyPath(t, c, "d", dest))
	text, err := os.ReadFile(filepath.Join(dest, "d", "kept"))
	require.NoError(t, err)
	require.Equal(t, "kept", string(text))
	text, err = os.ReadFile(secret)
	require.NoError(t, err)
	require.Equal(t, "secret", string(text))
	require.NoFileExists(t, filepath.Join(dest, "d", "link"))
	require.Len(t, *warnings, 2)

	// What is neither a file nor a link stays as it is.
	require.NoError(t, syscall.Mkfifo(filepath.Join(dest, "pipe"), 0o600))
	require.ErrorContains(t, copyPath(t, c, "d/kept", filepath.Join(dest, "pipe")), "is not a regular file (a named pipe)")
}

// What the run did not leave so is not copied as if it had.
func TestCopyChecksTheRun(t *testing.T) {
	final, dest := t.TempDir(), t.TempDir()
	treetest.File(t, filepath.Join(final, "d", "kept"), "other")
	treetest.File(t, filepath.Join(final, "d", "later"), "of another run")
	c, warnings := copying(t, final)
	c.strict = true
	require.EqualError(t, copyPath(t, c, "d", dest), `run r1: "d/kept" has changed since the run ended`)
	require.Equal(t, []string{`"d/later" is left out: the run did not leave it`}, *warnings)
	require.NoFileExists(t, filepath.Join(dest, "d", "kept"))
	require.NoFileExists(t, filepath.Join(dest, "d", "later"))
}
