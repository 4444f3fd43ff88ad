package disk

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// copyOf runs a script in one directory and copies that to another.
func copyOf(t *testing.T, script string) (to string, err error) {
	t.Helper()
	from, to := t.TempDir(), t.TempDir()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", "umask 022; "+script)
	cmd.Dir = from
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return to, CopyOut(t.Context(), rootOf(t, from), rootOf(t, to))
}

func rootOf(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, root.Close()) })
	return root
}

func TestCopyOutIsFaithful(t *testing.T) {
	const script = `mkdir -p a/b; printf text > a/b/x; chmod 0 a/b/x; chmod 500 a/b; ln a/b/x y; ln -s /etc/passwd link; mkfifo p
		printf s > set; chmod 6755 set; odd=$(printf 'odd\377'); mkdir "$odd"; printf o > "$odd/$odd"; truncate -s 1T huge; printf end >> huge; touch -d @1000 old`
	to, err := copyOf(t, script)
	require.NoError(t, err)
	lstat := func(name string) unix.Stat_t {
		var stat unix.Stat_t
		require.NoError(t, unix.Lstat(filepath.Join(to, name), &stat), name)
		return stat
	}
	require.EqualValues(t, unix.S_IFREG, lstat("a/b/x").Mode)
	require.EqualValues(t, unix.S_IFDIR|0o500, lstat("a/b").Mode)
	require.Equal(t, lstat("a/b/x").Ino, lstat("y").Ino, "a file of two names")
	require.EqualValues(t, unix.S_IFREG|0o755, lstat("set").Mode, "no set-id bits")
	require.EqualValues(t, unix.S_IFIFO, lstat("p").Mode&unix.S_IFMT)
	require.EqualValues(t, 1000, lstat("old").Mtim.Sec)
	huge := lstat("huge")
	require.EqualValues(t, 1<<40+3, huge.Size)
	require.Less(t, huge.Blocks*512, int64(1<<20), "holes stay holes")
	for name, want := range map[string]string{"a/b/x": "text", "odd\xff/odd\xff": "o"} {
		text, err := os.ReadFile(filepath.Join(to, name))
		require.NoError(t, err)
		require.Equal(t, want, string(text))
	}
	target, err := os.Readlink(filepath.Join(to, "link"))
	require.NoError(t, err)
	require.Equal(t, "/etc/passwd", target)
}

// TestCopyOutOfADeepTree: what is not too deep is there, and the error says that the rest is not.
func TestCopyOutOfADeepTree(t *testing.T) {
	to, err := copyOf(t, "echo z > z; i=0; while [ $i -lt 600 ]; do mkdir d; cd d; echo $i > f; i=$((i+1)); done")
	require.ErrorContains(t, err, "nested deeper than 500")
	require.FileExists(t, filepath.Join(to, "z"))
	require.FileExists(t, filepath.Join(to, strings.Repeat("d/", 499), "f"))
	require.NoFileExists(t, filepath.Join(to, strings.Repeat("d/", 501), "f"))
}

// TestCopyOutOverwritesNothing: the other directory should have been empty.
func TestCopyOutOverwritesNothing(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for _, dir := range []string{from, to} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "x"), []byte(dir), 0o644))
	}
	require.ErrorIs(t, CopyOut(t.Context(), rootOf(t, from), rootOf(t, to)), os.ErrExist)
	text, err := os.ReadFile(filepath.Join(to, "x"))
	require.NoError(t, err)
	require.Equal(t, to, string(text))
}
