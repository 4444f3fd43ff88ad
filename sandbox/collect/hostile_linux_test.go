package collect

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treetest"
)

// asStranger runs f with the file rights of an ordinary user. It changes one
// thread, which ends with f.
func asStranger(t *testing.T, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread must not be used again
		if err := errors.Join(unix.Setfsgid(64646), unix.Setfsuid(64646)); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

func TestSpecialFilesAreNeverOpened(t *testing.T) {
	root, dir := openRoot(t)
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o666))
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "sock"), Net: "unix"})
	require.NoError(t, err)
	defer listener.Close()
	want := map[string]string{"fifo": "fifo: not a regular file", "sock": "socket: not a regular file"}
	if os.Geteuid() == 0 {
		require.NoError(t, unix.Mknod(filepath.Join(dir, "zero"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
		require.NoError(t, unix.Mknod(filepath.Join(dir, "disk"), unix.S_IFBLK|0o666, int(unix.Mkdev(7, 0))))
		want["zero"], want["disk"] = "device: not a regular file", "device: not a regular file"
	}
	outputs, skipped, err := outputsOf(t.Context(), root, wide, nil)
	require.NoError(t, err)
	require.Empty(t, outputs)
	require.Equal(t, want, reasons(t, skipped))
}

// TestWhiteoutsAreLeftOut: nothing of ./final hides an entry where it becomes a layer.
func TestWhiteoutsAreLeftOut(t *testing.T) {
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{
		"file": "x", ".wh.file": "", "sub/.wh..wh..opq": "", ".wh.dir/inside": "x", ".when": "x", "a.wh.b": "x",
	})
	require.NoError(t, unix.Mknod(filepath.Join(dir, "sub/device"), unix.S_IFCHR|0o666, 0))
	require.NoError(t, os.Symlink("file", filepath.Join(dir, ".wh.link")))
	outputs, skipped, err := outputsOf(t.Context(), root, wide, nil)
	require.NoError(t, err)
	require.Equal(t, []string{".when", "a.wh.b", "file"}, paths(outputs))
	require.Equal(t, map[string]string{
		".wh.file": "file: " + Whiteout, "sub/.wh..wh..opq": "file: " + Whiteout, ".wh.dir": "directory: " + Whiteout,
		".wh.dir/inside": "file: " + Whiteout, "sub/device": "device: " + Whiteout, ".wh.link": "symlink: " + Whiteout,
	}, reasons(t, skipped))
	require.NoError(t, fsx.Empty(root))
	require.Empty(t, treetest.Everything(t, dir), "they can be deleted")
}

func TestSparseFileCostsNothing(t *testing.T) {
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{"sparse": "", "real": "x"})
	require.NoError(t, os.Truncate(filepath.Join(dir, "sparse"), 1<<40))
	limits := wide
	limits.FileBytes, limits.TotalBytes = 10<<30, 20<<30
	outputs, skipped, err := outputsOf(t.Context(), root, limits, nil) // reading it would take an hour
	require.NoError(t, err)
	require.Equal(t, []string{"real"}, paths(outputs))
	require.Len(t, skipped, 1)
	require.Equal(t, int64(1<<40), skipped[0].SizeBytes)

	bytes, entries := Usage(t.Context(), root, 1<<30, 100)
	require.Less(t, bytes, int64(1<<20), "a hole takes no space")
	require.Equal(t, 2, entries)
}

// Between the walk and the open, a name may come to stand for something else.
func TestFileThatIsSwappedAfterTheWalk(t *testing.T) {
	outside := t.TempDir()
	treetest.Write(t, outside, map[string]string{"secret": "12345678"})
	for name, swap := range map[string]func(full string) error{
		"for a link inside":         func(full string) error { return os.Symlink("sibling", full) },
		"for a link to a secret":    func(full string) error { return os.Symlink(filepath.Join(outside, "secret"), full) },
		"for a link to an endless":  func(full string) error { return os.Symlink("/dev/zero", full) },
		"for a fifo":                func(full string) error { return unix.Mkfifo(full, 0o666) },
		"for a directory":           func(full string) error { return os.Mkdir(full, 0o755) },
		"for a file of equal size":  func(full string) error { return os.WriteFile(full, []byte("87654321"), 0o644) },
		"for nothing":               func(string) error { return nil },
		"for a hard link to others": func(full string) error { return os.Link(filepath.Join(filepath.Dir(full), "sibling"), full) },
	} {
		t.Run(name, func(t *testing.T) {
			root, dir := openRoot(t)
			treetest.Write(t, dir, map[string]string{"file": "12345678", "sibling": "12345678"})
			stale := listed(t, root, "file")
			// Renamed, not removed: its inode number must not be used again.
			require.NoError(t, os.Rename(filepath.Join(dir, "file"), filepath.Join(dir, "was")))
			require.NoError(t, swap(filepath.Join(dir, "file")))
			got, err := hashFile(t.Context(), root, stale.Name, stale.Info)
			require.Error(t, err)
			require.Empty(t, got)
		})
	}
}

func TestFolderThatIsSwappedForALinkAfterItWasListed(t *testing.T) {
	outside := t.TempDir()
	treetest.Write(t, outside, map[string]string{"secret": "canary"})
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{"sub/": ""})
	require.NoError(t, os.Remove(filepath.Join(dir, "sub")))
	require.NoError(t, os.Symlink(outside, filepath.Join(dir, "sub")))
	require.Error(t, fsx.ReadDir(t.Context(), root, "sub", func(name string) error {
		t.Errorf("%q was read", name)
		return nil
	}))
}

func TestUnreadableFoldersAndFiles(t *testing.T) {
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{"open/file": "x", "shut/file": "x", "blind/file": "x", "locked": "secret"})
	require.NoError(t, os.Chmod(filepath.Join(dir, "shut"), 0))
	require.NoError(t, os.Chmod(filepath.Join(dir, "blind"), 0o444)) // names can be read, nothing more
	require.NoError(t, os.Chmod(filepath.Join(dir, "locked"), 0))
	t.Cleanup(func() {
		require.NoError(t, os.Chmod(filepath.Join(dir, "shut"), 0o755))
		require.NoError(t, os.Chmod(filepath.Join(dir, "blind"), 0o755))
	})
	require.NoError(t, os.Chmod(dir, 0o755))
	asStranger(t, func() {
		w := &walker{root: root, limits: wide}
		if err := w.walk(t.Context()); err != nil {
			t.Error(err)
		}
		var got []string
		for _, s := range w.skipped.Sorted() {
			got = append(got, strings.TrimSuffix(s.Path, "/file")+": "+s.Reason)
		}
		slices.Sort(got)
		// The directory that shows its names only is left out, or all that is in it.
		if want := []string{"blind: cannot be read: permission denied", "shut: cannot be read: permission denied"}; !slices.Equal(got, want) {
			t.Errorf("left out: %q, want %q", got, want)
		}
		for _, f := range w.files {
			_, err := hashFile(t.Context(), root, f.Name, f.Info)
			if denied := errors.Is(err, os.ErrPermission); denied != (f.Name == "locked") {
				t.Errorf("%s: %v", f.Name, err)
			}
		}
	})
}

// makeDeep nests directories until the path is far longer than any path may be, and
// puts a file at the bottom. The directory is taken apart at the end of the test.
func makeDeep(t testing.TB, root *os.Root, name string, levels int) {
	t.Helper()
	t.Cleanup(func() { flatten(t, root, name) })
	at, err := root.OpenRoot(".")
	require.NoError(t, err)
	for range levels {
		require.NoError(t, at.Mkdir(name, 0o755))
		next, err := at.OpenRoot(name)
		require.NoError(t, err)
		require.NoError(t, at.Close())
		at = next
	}
	require.NoError(t, at.WriteFile("bottom", []byte("x"), 0o644))
	require.NoError(t, at.Close())
}

// flatten deletes a chain of directories from the top, without recursion.
func flatten(t testing.TB, root *os.Root, name string) {
	t.Helper()
	for {
		if err := root.Rename(name+"/"+name, "next"); err != nil {
			require.ErrorIs(t, err, os.ErrNotExist)
			require.NoError(t, root.RemoveAll(name))
			return
		}
		require.NoError(t, root.Remove(name))
		require.NoError(t, root.Rename("next", name))
	}
}

func TestDeepTree(t *testing.T) {
	root, dir := openRoot(t)
	makeDeep(t, root, "d", 5000)
	treetest.Write(t, dir, map[string]string{"beside": "x"})
	for _, depth := range []int{0, 32, 400} {
		treetest.WithFewDescriptors(t, func() {
			limits := wide
			limits.Depth = depth
			outputs, skipped, err := outputsOf(t.Context(), root, limits, nil)
			require.NoError(t, err)
			require.Equal(t, []string{"beside"}, paths(outputs))
			require.Len(t, skipped, 1)
			require.Equal(t, strings.Count(skipped[0].Path, "/"), depth)
			require.Equal(t, fmt.Sprintf("more than %d levels deep", depth), skipped[0].Reason)
		})
	}
}

func TestPathLongerThanAnyPathMayBe(t *testing.T) {
	root, _ := openRoot(t)
	name := strings.Repeat("n", 250)
	makeDeep(t, root, name, 100)
	outputs, skipped, err := outputsOf(t.Context(), root, wide, nil)
	require.NoError(t, err)
	require.Empty(t, skipped)
	require.Equal(t, []string{strings.Repeat(name+"/", 100) + "bottom"}, paths(outputs))
	require.Equal(t, sum("x"), outputs[0].SHA256)
}

// The watch of the disk must get through any tree in about the time that it took
// to make it: while it looks, nothing else bounds the disk.
func TestUsageOfADeepTree(t *testing.T) {
	root, dir := openRoot(t)
	makeDeep(t, root, "d", 5000)
	treetest.Write(t, dir, map[string]string{"beside": "x", "other/more": "x"})
	treetest.WithFewDescriptors(t, func() {
		_, entries := Usage(t.Context(), root, math.MaxInt64, math.MaxInt)
		require.Equal(t, 5000+1+3, entries)
		_, entries = Usage(t.Context(), root, math.MaxInt64, 500)
		require.Greater(t, entries, 500)
		require.Less(t, entries, 1000)
	})
}

// A program that moves its directories about may hide something from one look, but
// must not lead the look out of the directory.
func TestUsageWhileFoldersMove(t *testing.T) {
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{"a/b/c/d/e/f": "x", "away/": ""})
	ctx := &meddler{Context: t.Context(), do: map[int]func() error{}}
	for i := range 200 {
		ctx.do[i] = func() error {
			// Whichever of the two is possible now.
			_ = root.Rename("a/b/c", "away/c")
			_ = root.Rename("away/c/d", "a/d")
			_ = root.Rename("a/d", "away/d")
			_ = root.Rename("away/c", "a/b/c")
			return nil
		}
	}
	_, entries := Usage(ctx, root, math.MaxInt64, math.MaxInt)
	require.LessOrEqual(t, entries, 16, "nothing but what is there, if some of it twice")
	require.Greater(t, ctx.calls, 3)
}

func TestUsageCountsUnreadableFoldersAsEntries(t *testing.T) {
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{"shut/file": "x", "open/file": "x"})
	require.NoError(t, os.Chmod(filepath.Join(dir, "shut"), 0))
	require.NoError(t, os.Chmod(dir, 0o755))
	t.Cleanup(func() { require.NoError(t, os.Chmod(filepath.Join(dir, "shut"), 0o755)) })
	asStranger(t, func() {
		if _, entries := Usage(t.Context(), root, math.MaxInt64, math.MaxInt); entries != 3 {
			t.Errorf("%d entries, want shut, open and open/file", entries)
		}
	})
}
