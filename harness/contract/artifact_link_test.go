package contract

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTextOfAnArtifactBehindALink: what a program left is read below its directory only.
func TestTextOfAnArtifactBehindALink(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "kept")
	require.NoError(t, os.MkdirAll(filepath.Join(base, "secret"), 0o755))
	require.NoError(t, os.Mkdir(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(base, "secret/a.txt"), []byte("text"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.txt"), []byte("text"), 0o644))
	require.NoError(t, os.Symlink("../secret", filepath.Join(dir, "out")))
	require.NoError(t, os.Symlink("../secret/a.txt", filepath.Join(dir, "b.txt")))
	for name, want := range map[string]string{"a.txt": "text", "out/a.txt": "", "b.txt": ""} {
		file := writtenFile{size: 4, in: dir, kept: filepath.Join(dir, name)}
		require.Equal(t, want, artifactText("text/plain", file), name)
	}
}
