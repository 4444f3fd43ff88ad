//go:build linux

package observe

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// shown is what is shown of a hidden directory of a tree, and who showed it.
func shown(t *testing.T, tree string, left int) (string, *namer) {
	t.Helper()
	source := filepath.Join(t.TempDir(), "watch-0")
	require.NoError(t, fsx.MkdirReadable(source))
	s := &namer{left: left}
	w := spec.WatchedPath{Target: "/repo/sub/keys", Dir: true, Names: true}
	layout := spec.Layout{Entries: []spec.Entry{
		{Role: spec.RoleMount, Source: t.TempDir(), Target: "/repo", Dir: true}, {Role: spec.RoleTree, Source: tree, Target: "/repo/sub", Dir: true},
	}}
	require.NoError(t, s.show(t.Context(), source, w, layout))
	return source, s
}

func TestShowNames(t *testing.T) {
	tree := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(tree, "keys", "a", "b"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(tree, "keys", "a", "secret"), []byte("secret"), 0o600))
	require.NoError(t, os.Symlink("/", filepath.Join(tree, "keys", "link")))
	require.NoError(t, unix.Mkfifo(filepath.Join(tree, "keys", "fifo"), 0o600))
	source, s := shown(t, tree, maxShownNames)
	for _, name := range []string{"a/secret", "link", "fifo"} {
		info, err := os.Lstat(filepath.Join(source, name))
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o444), info.Mode())
		text, err := os.ReadFile(filepath.Join(source, name))
		require.NoError(t, err)
		require.Equal(t, canaryText, string(text))
	}
	require.Equal(t, []innerDir{
		{filepath.Join(source, "a"), spec.WatchedPath{Target: "/repo/sub/keys/a", Dir: true, Inner: true}},
		{filepath.Join(source, "a/b"), spec.WatchedPath{Target: "/repo/sub/keys/a/b", Dir: true, Inner: true}},
	}, s.inner)
	require.False(t, s.cut)
}

// TestShowNamesIsBounded: so many names, and so deep; and it is told.
func TestShowNamesIsBounded(t *testing.T) {
	wide := t.TempDir()
	for i := range 5 {
		require.NoError(t, os.MkdirAll(filepath.Join(wide, "keys", fmt.Sprint(i)), 0o755))
	}
	_, s := shown(t, wide, 5)
	require.False(t, s.cut)
	source, s := shown(t, wide, 4)
	require.True(t, s.cut)
	entries, err := os.ReadDir(source)
	require.NoError(t, err)
	require.Len(t, entries, 4)

	deep := t.TempDir()
	path := strings.Repeat("d/", maxShownDepth)
	require.NoError(t, os.MkdirAll(filepath.Join(deep, "keys", path, "below"), 0o755))
	source, s = shown(t, deep, maxShownNames)
	require.True(t, s.cut)
	require.DirExists(t, filepath.Join(source, path))
	require.NoDirExists(t, filepath.Join(source, path, "below"))
}

// TestShowNamesStaysInTheTree: whoever puts a link in the place of what is hidden learns
// no names of the host.
func TestShowNamesStaysInTheTree(t *testing.T) {
	tree, s := t.TempDir(), &namer{left: maxShownNames}
	require.NoError(t, os.Symlink("/etc", filepath.Join(tree, "keys")))
	source := filepath.Join(t.TempDir(), "watch-0")
	require.NoError(t, fsx.MkdirReadable(source))
	w := spec.WatchedPath{Target: "/repo/keys", Dir: true, Names: true}
	layout := spec.Layout{Entries: []spec.Entry{{Role: spec.RoleTree, Source: tree, Target: "/repo", Dir: true}}}
	err := s.show(t.Context(), source, w, layout)
	require.ErrorContains(t, err, "its names cannot be read")

	require.NoError(t, os.Remove(filepath.Join(tree, "keys")))
	require.NoError(t, s.show(t.Context(), source, w, layout), "it is gone meanwhile")
	w.Names = false
	require.NoError(t, s.show(t.Context(), source, w, layout))
}
