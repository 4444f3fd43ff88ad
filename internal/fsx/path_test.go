package fsx_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
)

func TestWithin(t *testing.T) {
	for _, in := range [][2]string{{"/a", "/a"}, {"/a/b", "/a"}, {"/a", "/"}, {"/", "/"}, {"a/b/c", "a"}} {
		require.True(t, fsx.Within(in[0], in[1]), in)
	}
	for _, out := range [][2]string{{"/ab", "/a"}, {"/a", "/a/b"}, {"/", "/a"}, {"a", "/"}, {"b", "a"}} {
		require.False(t, fsx.Within(out[0], out[1]), out)
	}
}

func TestReal(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(dir, "real"), 0o755))
	require.NoError(t, os.Symlink("real", filepath.Join(dir, "link")))
	for path, want := range map[string]string{
		"real": "real", "link": "real", "link/not/there": "real/not/there", "not/there": "not/there",
	} {
		require.Equal(t, filepath.Join(dir, want), fsx.RealPath(filepath.Join(dir, path)))
	}
	require.Equal(t, "/", fsx.RealPath("/"))
}
