package wish

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHashTreeExclude: what is excluded does not count, wherever it is and whether or
// not it is there; everything else does.
func TestHashTreeExclude(t *testing.T) {
	write := func(dir string, files ...string) string {
		for _, name := range files {
			file := filepath.Join(dir, name)
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			require.NoError(t, os.WriteFile(file, []byte(name), 0o644))
		}
		return dir
	}
	hash := func(dir string, exclude ...string) string {
		sum, err := HashTree(t.Context(), dir, exclude...)
		require.NoError(t, err)
		return sum
	}
	plain := hash(write(t.TempDir(), "a", "dir/b"))
	more := write(t.TempDir(), "a", "dir/b", "dir/out/x", "dir/file", ".git/index")
	require.Equal(t, plain, hash(more, "dir/out/", ".git", "dir/file", "not/there"))
	require.NotEqual(t, plain, hash(more, "dir/out", ".git"))
	require.NotEqual(t, plain, hash(more, "out", ".git", "dir/file"), "a path, not a name")
	require.Equal(t, hash(more), hash(more, ".", ""), "never all of it")
}
