//go:build unix

package collect

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/treetest"
)

func allocated(t *testing.T, info os.FileInfo) int64 {
	t.Helper()
	stat, ok := info.Sys().(*syscall.Stat_t)
	require.True(t, ok)
	return int64(stat.Blocks) * 512 //nolint:unconvert // int32 on some platforms
}

func TestUsageOfAnEmptyFolder(t *testing.T) {
	root, _ := openRoot(t)
	bytes, entries := Usage(t.Context(), root, math.MaxInt64, math.MaxInt)
	require.Zero(t, bytes)
	require.Zero(t, entries)
}

func TestUsageAddsUpBlocks(t *testing.T) {
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{
		"a": strings.Repeat("x", 100_000), "b/c/d": strings.Repeat("x", 200_000), "b/empty": "", "e/": "",
	})
	require.NoError(t, os.Symlink("/etc", filepath.Join(dir, "link")))
	var want int64
	for _, name := range []string{"a", "b/c/d", "b/empty", "link"} {
		info, err := root.Lstat(name)
		require.NoError(t, err)
		want += allocated(t, info)
	}
	bytes, entries := Usage(t.Context(), root, math.MaxInt64, math.MaxInt)
	require.Equal(t, want, bytes)
	require.GreaterOrEqual(t, bytes, int64(300_000))
	require.Equal(t, 7, entries, "a, b, b/c, b/c/d, b/empty, e and link")
}

func TestUsageCountsAFileOfSeveralNamesOnce(t *testing.T) {
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{"checkpoint": strings.Repeat("x", 1<<20), "names/": ""})
	once, _ := Usage(t.Context(), root, math.MaxInt64, math.MaxInt)
	for i := range 7 {
		require.NoError(t, os.Link(filepath.Join(dir, "checkpoint"), filepath.Join(dir, fmt.Sprintf("names/%d", i))))
	}
	bytes, entries := Usage(t.Context(), root, math.MaxInt64, math.MaxInt)
	require.Equal(t, once, bytes)
	require.Equal(t, 9, entries)
}

func TestUsageDoesNotFollowLinks(t *testing.T) {
	outside := t.TempDir()
	treetest.Write(t, outside, map[string]string{"big": strings.Repeat("x", 1<<20)})
	root, dir := openRoot(t)
	for i := range 5 {
		require.NoError(t, os.Symlink(outside, filepath.Join(dir, fmt.Sprintf("folder%d", i))))
		require.NoError(t, os.Symlink(filepath.Join(outside, "big"), filepath.Join(dir, fmt.Sprintf("file%d", i))))
		require.NoError(t, os.Symlink(".", filepath.Join(dir, fmt.Sprintf("loop%d", i))))
	}
	bytes, entries := Usage(t.Context(), root, math.MaxInt64, math.MaxInt)
	require.Less(t, bytes, int64(1<<20))
	require.Equal(t, 15, entries)
}

func TestUsageStopsEarly(t *testing.T) {
	root, dir := openRoot(t)
	for i := range 1000 {
		treetest.Write(t, dir, map[string]string{fmt.Sprintf("d%d/f", i): strings.Repeat("x", 5000)})
	}
	all, everything := Usage(t.Context(), root, math.MaxInt64, math.MaxInt)
	require.Equal(t, 2000, everything)

	_, entries := Usage(t.Context(), root, math.MaxInt64, 10)
	require.Greater(t, entries, 10, "the bound is seen to be broken")
	require.LessOrEqual(t, entries, 300, "one reading beyond the bound at most")

	bytes, entries := Usage(t.Context(), root, 50_000, math.MaxInt)
	require.Greater(t, bytes, int64(50_000))
	require.Less(t, bytes, all)
	require.Less(t, entries, everything)
}

func TestUsageOfACanceledRun(t *testing.T) {
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{"a": "x"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, entries := Usage(ctx, root, math.MaxInt64, math.MaxInt)
	require.Zero(t, entries)
}

func TestUsageOfAClosedFolder(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, root.Close())
	bytes, entries := Usage(t.Context(), root, math.MaxInt64, math.MaxInt)
	require.Zero(t, bytes)
	require.Zero(t, entries)
}
