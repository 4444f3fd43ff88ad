package disk

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// These tests make loop mounts below their own directories, which takes root; `make test` has it.

// newImage is an image with a directory that a program may write.
func newImage(t *testing.T, limit Limit) (i Image, dir string) {
	t.Helper()
	place := t.TempDir()
	i = Image{File: filepath.Join(place, "image"), Dir: filepath.Join(place, "mounted")}
	require.NoError(t, i.Create(t.Context(), limit))
	t.Cleanup(func() { require.NoError(t, i.Remove()) })
	dir = filepath.Join(i.Dir, "out")
	require.NoError(t, os.Mkdir(dir, 0o777))
	require.NoError(t, os.Chmod(dir, 0o777))
	for at := place; len(at) > len(os.TempDir()); at = filepath.Dir(at) {
		require.NoError(t, os.Chmod(at, 0o755)) // for the user of the program
	}
	require.NoError(t, os.Chmod(i.Dir, 0o755))
	return i, dir
}

// shell runs a script as a user of its own in a directory.
func shell(t *testing.T, dir, script string) (out string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 64646, Gid: 64646}}
	text, err := cmd.CombinedOutput()
	return string(text), err
}

func TestImageHasExactlyTheSpaceOfItsLimit(t *testing.T) {
	for _, size := range []int64{4 << 10, 1 << 20, 10 << 20, 100 << 20, 20 << 30} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			i, dir := newImage(t, Limit{size, 1_000_000})
			free, err := i.free()
			require.NoError(t, err)
			require.InDelta(t, size, free, 64<<10)
			usage, err := i.Usage()
			require.NoError(t, err)
			require.Equal(t, size < 32<<10, usage.Full)
			require.Less(t, blocks(t, i.File), int64(8<<20), "the file is sparse")
			_, err = shell(t, dir, "echo x > x")
			require.NoError(t, err)
			var stat unix.Statfs_t
			require.NoError(t, unix.Statfs(dir, &stat))
			require.EqualValues(t, unix.ST_NOSUID|unix.ST_NODEV, stat.Flags&(unix.ST_NOSUID|unix.ST_NODEV))
		})
	}
}

// blocks is the space that a file takes.
func blocks(t *testing.T, name string) int64 {
	t.Helper()
	var stat unix.Stat_t
	require.NoError(t, unix.Stat(name, &stat))
	return stat.Blocks * 512
}

// TestImageHoldsNoMore tries what a program can try.
func TestImageHoldsNoMore(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"one file":            "head -c 30000000 /dev/zero > big",
		"allocated":           "fallocate -l 30000000 big; head -c 30000000 /dev/zero > big",
		"many files":          "for i in 1 2 3 4 5 6 7 8 9; do head -c 3000000 /dev/zero > $i || exit 1; done",
		"deleted and open":    "exec 5>a; rm a; head -c 6000000 /dev/zero >&5; exec 6>b; rm b; head -c 6000000 /dev/zero >&6",
		"many small files":    "i=0; while [ $i -lt 60000 ]; do echo $i > f$i || exit 1; i=$((i+1)); done 2>&1",
		"many empty files":    "i=0; while [ $i -lt 60000 ]; do : > f$i || exit 1; i=$((i+1)); done 2>&1",
		"holes that are full": "truncate -s 30000000 s; head -c 30000000 /dev/zero | dd of=s conv=notrunc bs=64k",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i, dir := newImage(t, Limit{8 << 20, 5000})
			neighbor, beside := newImage(t, Limit{8 << 20, 5000})
			out, err := shell(t, dir, script)
			require.Error(t, err)
			require.Contains(t, out, "No space left on device")
			require.Less(t, blocks(t, i.File), int64(14<<20))
			_, err = shell(t, beside, "head -c 7000000 /dev/zero > x")
			require.NoError(t, err)
			usage, err := neighbor.Usage()
			require.NoError(t, err)
			require.False(t, usage.Full)
			if name != "deleted and open" {
				usage, err := i.Usage()
				require.NoError(t, err)
				require.True(t, usage.Full)
			}
		})
	}
}

// TestImageIsOpenedAgain: by another process, whether it is still mounted or not.
func TestImageIsOpenedAgain(t *testing.T) {
	i, dir := newImage(t, Limit{8 << 20, 5000})
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x"), []byte("kept"), 0o644))
	require.NoError(t, i.Open(t.Context()))
	require.NoError(t, unix.Unmount(i.Dir, 0))
	require.NoFileExists(t, filepath.Join(dir, "x"))
	require.NoError(t, i.Open(t.Context()))
	text, err := os.ReadFile(filepath.Join(dir, "x"))
	require.NoError(t, err)
	require.Equal(t, "kept", string(text))
}

// TestImageIsRemoved: nothing of it stays, also while somebody uses it.
func TestImageIsRemoved(t *testing.T) {
	i, dir := newImage(t, Limit{8 << 20, 5000})
	file, err := os.Create(filepath.Join(dir, "open"))
	require.NoError(t, err)
	require.NoError(t, i.Remove())
	require.NoError(t, i.Remove())
	require.NoFileExists(t, i.File)
	require.NoDirExists(t, i.Dir)
	require.NoError(t, file.Close())
	require.ErrorIs(t, i.Open(t.Context()), os.ErrNotExist)
	require.Eventually(t, func() bool { return !devices(t, i.File) }, patience, patience/1000)
}

// devices reports whether a loop device has a file.
func devices(t *testing.T, name string) bool {
	t.Helper()
	found, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	require.NoError(t, err)
	for _, each := range found {
		if text, err := os.ReadFile(each); err == nil && strings.HasPrefix(string(bytes.TrimSpace(text)), name) {
			return true
		}
	}
	return false
}

// TestImageWithoutTools names the package.
func TestImageWithoutTools(t *testing.T) {
	_, err := tool("mkfs.none")
	require.ErrorIs(t, err, ErrImpossible)
	require.ErrorContains(t, err, "install e2fsprogs")
	i := Image{File: filepath.Join(t.TempDir(), "there"), Dir: filepath.Join(t.TempDir(), "dir")}
	require.NoError(t, os.WriteFile(i.File, nil, 0o600))
	require.ErrorIs(t, i.Create(t.Context(), Limit{1 << 20, 100}), os.ErrExist)
	require.FileExists(t, i.File, "another's")
}
