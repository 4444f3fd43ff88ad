package wire

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const sourceDir = "../../../cmd/sandbox-init"

// TestBinariesAreOfTheseSources checks that the embedded binaries were compiled from the
// sources in this repository. After a change of the sources, run
// `go generate ./sandbox/engine/wire`.
func TestBinariesAreOfTheseSources(t *testing.T) {
	hash := sha256.New()
	// In the order of build.sh.
	for _, pattern := range []string{"*.c", "*.h"} {
		files, err := filepath.Glob(filepath.Join(sourceDir, pattern)) // sorted
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			hash.Write(text)
		}
	}
	require.Equal(t, hex.EncodeToString(hash.Sum(nil)), BuildID(), "run: go generate ./sandbox/engine/wire")
}

// TestBinariesAreReproducible checks that the same compilers produce the same bytes, also at
// another path. With other compilers it only logs their versions.
func TestBinariesAreReproducible(t *testing.T) {
	here, there := t.TempDir(), t.TempDir()
	require.NoError(t, os.CopyFS(there, os.DirFS(sourceDir)))
	require.NoError(t, os.Chmod(filepath.Join(there, "build.sh"), 0o755)) // executable
	notes, err := exec.CommandContext(t.Context(), filepath.Join(there, "build.sh"), "notes").Output()
	if err != nil || string(notes) != initBuild {
		t.Logf("the binaries were built with other compilers (%v):\n%s", err, notes)
		return
	}
	for _, build := range []string{filepath.Join(there, "build.sh"), filepath.Join(sourceDir, "build.sh")} {
		out, err := exec.CommandContext(t.Context(), build, here).CombinedOutput()
		require.NoError(t, err, "%s", out)
		for _, arch := range []string{"amd64", "arm64"} {
			want, err := Init(arch)
			require.NoError(t, err)
			got, err := os.ReadFile(filepath.Join(here, "init_"+arch))
			require.NoError(t, err)
			assert.True(t, string(want) == string(got), "%s differs: run go generate ./sandbox/engine/wire", arch) // not assert.Equal, which prints both binaries
			assert.NotContains(t, string(got), there, arch)
		}
	}
}

// TestBinariesAreSmall: every container has one.
func TestBinariesAreSmall(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		binary, err := Init(arch)
		require.NoError(t, err)
		assert.LessOrEqual(t, len(binary), 2<<20, arch)
	}
}
