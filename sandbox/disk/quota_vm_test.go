//go:build linux && quota

package disk

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// These tests take root and a kernel with quotas (CONFIG_QFMT_V2), which not every machine has:
// go test -tags quota ./sandbox/disk ./sandbox/stage

// newVolume is a file system that enforces project quotas, and an empty directory on it.
func newVolume(t *testing.T) (place string) {
	t.Helper()
	place = t.TempDir()
	for at := place; len(at) > len(os.TempDir()); at = filepath.Dir(at) {
		require.NoError(t, os.Chmod(at, 0o755)) // for the user of the program
	}
	i := Image{File: filepath.Join(place, "image"), Dir: filepath.Join(place, "volume")}
	require.NoError(t, os.WriteFile(i.File, nil, 0o600))
	require.NoError(t, os.Truncate(i.File, 200<<20))
	require.NoError(t, os.Mkdir(i.Dir, 0o755))
	out, err := exec.CommandContext(t.Context(), "mkfs.ext4", "-q", "-F", "-O", "quota,project", "-E", "quotatype=prjquota", i.File).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, i.attach("prjquota"))
	t.Cleanup(func() { require.NoError(t, i.Remove()) })
	return i.Dir
}

// bounded is a directory of a project that a program may write.
func bounded(t *testing.T, volume, name string, limit Limit) (p Project, dir string) {
	t.Helper()
	p, err := Claim(volume, limit)
	require.NoError(t, err)
	dir = filepath.Join(volume, name)
	require.NoError(t, os.Mkdir(dir, 0o777))
	require.NoError(t, os.Chmod(dir, 0o777))
	root := rootOf(t, dir)
	require.NoError(t, p.Add(root))
	return p, dir
}

func TestQuotaHoldsNoMore(t *testing.T) {
	for name, script := range map[string]string{
		"one file":         "dd if=/dev/zero of=big bs=64k count=500",
		"allocated":        "fallocate -l 30000000 big; dd if=/dev/zero of=big bs=64k count=500",
		"many files":       "for i in 1 2 3 4 5 6 7 8 9; do dd if=/dev/zero of=$i bs=64k count=50 || exit 1; done",
		"deleted and open": "exec 5>a; rm a; dd if=/dev/zero bs=64k count=90 >&5; exec 6>b; rm b; dd if=/dev/zero bs=64k count=90 >&6",
		"many small files": "i=0; while [ $i -lt 6000 ]; do echo $i > f$i || exit 1; i=$((i+1)); done 2>&1",
		"many empty files": "i=0; while [ $i -lt 6000 ]; do : > f$i || exit 1; i=$((i+1)); done 2>&1",
		"folders":          "mkdir -p a/b/c; cd a/b/c; dd if=/dev/zero of=big bs=64k count=500",
	} {
		t.Run(name, func(t *testing.T) {
			volume := newVolume(t)
			limit := Limit{8 << 20, 1000}
			p, dir := bounded(t, volume, "out", limit)
			neighbor, beside := bounded(t, volume, "beside", limit)
			require.NotEqual(t, p.ID, neighbor.ID)
			before, err := p.Usage()
			require.NoError(t, err)
			require.False(t, before.Full)
			out, err := shell(t, dir, script)
			require.Error(t, err)
			require.Contains(t, out, "Disk quota exceeded")
			usage, err := p.Usage()
			require.NoError(t, err)
			require.LessOrEqual(t, usage.Bytes, limit.Bytes+before.Bytes)
			require.LessOrEqual(t, usage.Entries, limit.Entries+before.Entries)
			require.Equal(t, name != "deleted and open", usage.Full)
			_, err = shell(t, beside, "head -c 8000000 /dev/zero > x")
			require.NoError(t, err)
		})
	}
}

// TestQuotaIsGivenBack: nothing of the project stays on the files, and its number is free.
func TestQuotaIsGivenBack(t *testing.T) {
	volume := newVolume(t)
	p, dir := bounded(t, volume, "out", Limit{8 << 20, 1000})
	_, err := shell(t, dir, "mkdir -p a/b; echo x > a/b/x; ln a/b/x y; chmod 0 a/b/x; chmod 0 a; echo z > z")
	require.NoError(t, err)
	root := rootOf(t, dir)
	require.NoError(t, p.Remove(root))
	usage, err := p.Usage()
	require.NoError(t, err)
	require.Zero(t, usage.Bytes+usage.Entries)
	require.NoError(t, p.Release())
	for _, name := range []string{".", "a", "a/b", "a/b/x", "z"} {
		file, err := root.Open(name)
		require.NoError(t, err)
		a, err := attributesOf(int(file.Fd()))
		require.NoError(t, err)
		require.Zero(t, a.project, name)
		require.Zero(t, a.flags&inherit, name)
		require.NoError(t, file.Close())
	}
	require.NoError(t, CanQuota(dir))
	_, err = shell(t, dir, "head -c 30000000 /dev/zero > big")
	require.NoError(t, err, "the directory is not bounded any more")
	require.NoError(t, os.Mkdir(filepath.Join(volume, "elsewhere"), 0o755))
	require.NoError(t, os.Rename(filepath.Join(dir, "z"), filepath.Join(volume, "elsewhere", "z")))
}

// TestQuotaNumbersAreNotShared: a number with a limit, or with files, is taken.
func TestQuotaNumbersAreNotShared(t *testing.T) {
	volume := newVolume(t)
	seen := map[uint32]bool{}
	for i := range 50 {
		p, err := Claim(volume, Limit{1 << 20, 100})
		require.NoError(t, err)
		require.False(t, seen[p.ID])
		seen[p.ID] = true
		if i%2 == 0 {
			require.NoError(t, p.Release())
			delete(seen, p.ID)
		}
	}
	// Links keep their number.
	p, dir := bounded(t, volume, "out", Limit{8 << 20, 1000})
	_, err := shell(t, dir, "ln -s x link")
	require.NoError(t, err)
	require.NoError(t, p.Remove(rootOf(t, dir)))
	require.NoError(t, p.Release())
	usage, err := p.Usage()
	require.NoError(t, err)
	require.EqualValues(t, 1, usage.Entries)
	root, err := os.Open(volume)
	require.NoError(t, err)
	defer root.Close()
	found, err := p.get(root)
	require.NoError(t, err)
	require.NotZero(t, found.used, "and so it is not taken again")
}

func TestQuotaIsRefused(t *testing.T) {
	volume := newVolume(t)
	require.NoError(t, CanQuota(volume))
	require.ErrorIs(t, CanQuota("/tmp"), ErrImpossible)
	_, dir := bounded(t, volume, "out", Limit{8 << 20, 1000})
	require.ErrorIs(t, CanQuota(dir), ErrImpossible)
	require.ErrorContains(t, CanQuota(dir), "of somebody else")
}

// TestQuotaByTheOwner: the owner of a file may change its project, which is why the program's
// filter of system calls must not let it.
func TestQuotaByTheOwner(t *testing.T) {
	if name := os.Getenv("EVALBOX_LEAVE"); name != "" {
		file, err := os.Open(name)
		require.NoError(t, err)
		fmt.Println((Project{}).mark(int(file.Fd()), func(a *attributes) bool { a.project = 0; return true }))
		return
	}
	volume := newVolume(t)
	p, dir := bounded(t, volume, "out", Limit{8 << 20, 1000})
	self, err := os.Executable()
	require.NoError(t, err)
	out, err := shell(t, dir, "echo x > x; EVALBOX_LEAVE=$PWD/x "+self+" -test.run TestQuotaByTheOwner")
	require.NoError(t, err, out)
	require.True(t, strings.HasPrefix(out, "<nil>"), out)
	usage, err := p.Usage()
	require.NoError(t, err)
	require.EqualValues(t, 1, usage.Entries, "only the directory is left")
}
