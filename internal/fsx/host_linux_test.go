package fsx

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/treetest"
)

func TestMountPointsBelow(t *testing.T) {
	const mountinfo = `22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:5 / /dev rw - devtmpfs devtmpfs rw
24 23 0:6 / /dev/shm rw,nosuid shared:3 master:1 - tmpfs tmpfs rw
25 22 0:7 / /data rw - tmpfs tmpfs rw
26 25 0:8 / /data/a\040b rw - tmpfs tmpfs rw
27 25 0:9 / /data/tab\011and\012line rw - tmpfs tmpfs rw
28 25 0:10 / /data/back\134slash rw - tmpfs tmpfs rw
29 25 0:11 / /data/back\134040slash rw - tmpfs tmpfs rw
30 22 0:12 / /database rw - tmpfs tmpfs rw
31 22 0:13 / /data/..hidden rw - tmpfs tmpfs rw
32 22 0:14 / /mnt/grün/日本 rw - tmpfs tmpfs rw
33 22
`
	for dir, want := range map[string][]string{
		"/data":                     {"/data/a b", "/data/tab\tand\nline", `/data/back\slash`, `/data/back\040slash`, "/data/..hidden"},
		"/data/a b":                 nil,
		"/data/a":                   nil,
		"/dev":                      {"/dev/shm"},
		"/dev/shm":                  nil,
		"/database":                 nil,
		"/mnt":                      {"/mnt/grün/日本"},
		"/elsewhere":                nil,
		"/data/tab\tand\nline/deep": nil,
	} {
		require.Equal(t, want, mountPointsBelow(mountinfo, dir), dir)
	}
	require.Len(t, mountPointsBelow(mountinfo, "/"), 10, "all but the root itself")
	require.Empty(t, mountPointsBelow("", "/"))
}

func TestMountsOfThisMachine(t *testing.T) {
	below, err := MountsBelow("/")
	require.NoError(t, err)
	require.Contains(t, below, "/proc")
	below, err = MountsBelow(t.TempDir())
	require.NoError(t, err)
	require.Empty(t, below)
}

func TestFreeBytes(t *testing.T) {
	free, ok := FreeBytes(t.TempDir())
	require.True(t, ok)
	require.Positive(t, free)
	_, ok = FreeBytes("/no/such/folder")
	require.False(t, ok)
}

func TestReserveSetsSpaceAside(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "reserve"))
	require.NoError(t, err)
	defer file.Close()
	require.NoError(t, Reserve(file, 1<<20))
	info, err := file.Stat()
	require.NoError(t, err)
	require.Equal(t, int64(1<<20), info.Size())

	if treetest.IsRoot() {
		dir := filepath.Join(t.TempDir(), "small")
		treetest.MountTmpfs(t, dir, "size=64k")
		full, err := os.Create(filepath.Join(dir, "reserve"))
		require.NoError(t, err)
		defer full.Close()
		require.True(t, IsNoSpace(Reserve(full, 1<<20)))
	}
}

// TestSameMount: a directory that is mounted once more is another mount, although its device is the same.
func TestSameMount(t *testing.T) {
	base := t.TempDir()
	treetest.Write(t, base, map[string]string{"a/": "", "b/": ""})
	a, b := filepath.Join(base, "a"), filepath.Join(base, "b")
	require.True(t, SameMount(a, b))
	require.False(t, SameMount(a, filepath.Join(base, "none")))
	require.False(t, SameMount(a, "/proc"))
	if treetest.IsRoot() {
		require.NoError(t, unix.Mount(a, b, "", unix.MS_BIND, ""))
		t.Cleanup(func() { require.NoError(t, unix.Unmount(b, unix.MNT_DETACH)) })
		require.False(t, SameMount(a, b))
	}
}
