package collect

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/result"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/treetest"
)

// wide are limits that nothing in these tests reaches.
var wide = Limits{Files: 100_000, Depth: 1000, FileBytes: 1 << 40, TotalBytes: 1 << 41}

// openRoot makes an empty ./final.
func openRoot(t testing.TB) (*os.Root, string) {
	t.Helper()
	dir := t.TempDir()
	return treetest.Root(t, dir), dir
}

func sum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

// outputsOf is Outputs with the list of the skipped entries.
func outputsOf(ctx context.Context, root *os.Root, limits Limits, modes map[fsx.ID]uint32) ([]result.Output, []result.SkippedOutput, error) {
	outputs, skipped, err := Outputs(ctx, root, limits, modes)
	return outputs, skipped.Sorted(), err
}

// TestCount: the files that were left out are counted, whatever the list names.
func TestCount(t *testing.T) {
	files := map[string]string{"empty/": ""}
	for i := range 30 {
		files[fmt.Sprintf("%02d", i)] = "x"
		files[fmt.Sprintf("d/%02d", i)] = "x"
		files[fmt.Sprintf("d/e/f/%02d", i)] = "x"
	}
	most := len(files) + 4 // with the directories
	for name, test := range map[string]struct {
		limits Limits
		links  int
		count  int
		listed int
		lost   string
	}{
		"nothing":    {Limits{Files: most, Depth: 9, FileBytes: 9, TotalBytes: 999}, 0, 0, 0, ""},
		"too many":   {Limits{Files: 3, Depth: 9, FileBytes: 9, TotalBytes: 999}, 0, -1, -1, "more than 3 entries"},
		"too deep":   {Limits{Files: most, Depth: 2, FileBytes: 9, TotalBytes: 999}, 0, 30, 1, "more than 2 levels deep"},
		"too large":  {Limits{Files: most, Depth: 9, FileBytes: 0, TotalBytes: 999}, 0, 90, 90, "larger than 0 bytes"},
		"all large":  {Limits{Files: most, Depth: 9, FileBytes: 9, TotalBytes: 88}, 0, 2, 2, "all outputs together larger than 88 bytes"},
		"many links": {Limits{Files: 9999, Depth: 9, FileBytes: 9, TotalBytes: 999}, maxSkipped + 20, maxSkipped + 20, maxSkipped + 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			root, dir := openRoot(t)
			treetest.Write(t, dir, files)
			for i := range test.links {
				require.NoError(t, os.Symlink("x", filepath.Join(dir, fmt.Sprintf("link%05d", i))))
			}
			outputs, skipped, err := Outputs(t.Context(), root, test.limits, nil)
			require.NoError(t, err)
			require.Equal(t, 90+test.links, len(outputs)+skipped.Count(), "each file is in one of them")
			if test.count >= 0 {
				require.Equal(t, test.count, skipped.Count())
				require.Len(t, skipped.Sorted(), test.listed)
				require.Len(t, skipped.Sorted(), test.listed, "nothing is added twice")
			}
			if lost := skipped.Lost(); test.lost == "" {
				require.Nil(t, lost)
			} else {
				require.Equal(t, test.lost, lost.Reason)
			}
			var twice SkipList
			twice.Merge(skipped)
			require.Equal(t, skipped.Count(), twice.Count())
			twice = SkipList{}
			twice.Add("other", "file", 1, "larger than 0 bytes")
			twice.Merge(skipped)
			if skipped.Count() > 0 && skipped.Lost() != nil {
				require.Equal(t, skipped.Count()+1, twice.Count(), "both are left out")
			}
			require.Equal(t, "other", twice.Lost().Path)
		})
	}
}

// TestUnreadableDirectoryCounts: nobody can count the files in it.
func TestUnreadableDirectoryCounts(t *testing.T) {
	var s SkipList
	require.Zero(t, s.Count())
	s.Add("d", "directory", 0, "cannot be read: permission denied")
	require.Equal(t, 1, s.Count())
	s.Add("a", "symlink", 0, NotRegular)
	s.AtLeast(1)
	require.Equal(t, 1, s.Count())
}

func paths(outputs []result.Output) []string {
	list := []string{}
	for _, o := range outputs {
		list = append(list, o.Path)
	}
	return list
}

// reasons are the skipped entries by path, as "kind: reason".
func reasons(t *testing.T, skipped []result.SkippedOutput) map[string]string {
	t.Helper()
	list := map[string]string{}
	for _, s := range skipped {
		require.NotContains(t, list, s.Path)
		list[s.Path] = s.Kind + ": " + s.Reason
	}
	return list
}

func TestOutputsOfAnEmptyFolder(t *testing.T) {
	root, _ := openRoot(t)
	outputs, skipped, err := outputsOf(t.Context(), root, wide, nil)
	require.NoError(t, err)
	require.Empty(t, outputs)
	require.Empty(t, skipped)
}

func TestOutputsAreSortedHashedAndComplete(t *testing.T) {
	root, dir := openRoot(t)
	files := map[string]string{
		"model.pt": "weights", "a/b/c.txt": "deep", "a/a.txt": "", "a.txt": "top", "B": "upper", "empty/": "",
		".hidden": "dot", "-rf": "flag", "z z/ blank ": "blank",
	}
	treetest.Write(t, dir, files)
	outputs, skipped, err := outputsOf(t.Context(), root, wide, nil)
	require.NoError(t, err)
	require.Empty(t, skipped)
	require.Equal(t, []string{"-rf", ".hidden", "B", "a.txt", "a/a.txt", "a/b/c.txt", "model.pt", "z z/ blank "}, paths(outputs))
	for _, o := range outputs {
		require.Equal(t, result.Output{Path: o.Path, SizeBytes: int64(len(files[o.Path])), SHA256: sum(files[o.Path]), Mode: "0644"}, o)
	}
}

func TestModesAreReported(t *testing.T) {
	root, dir := openRoot(t)
	for name, mode := range map[string]os.FileMode{
		"0644": 0o644, "0400": 0o400, "0777": 0o777,
		"4755": 0o755 | fs.ModeSetuid, "2755": 0o755 | fs.ModeSetgid, "1644": 0o644 | fs.ModeSticky,
		"7711": 0o711 | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky,
	} {
		treetest.Write(t, dir, map[string]string{name: "x"})
		require.NoError(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	outputs, _, err := outputsOf(t.Context(), root, wide, nil)
	require.NoError(t, err)
	require.Len(t, outputs, 7)
	for _, o := range outputs {
		require.Equal(t, o.Path, o.Mode)
	}
}

func TestKinds(t *testing.T) {
	for mode, want := range map[fs.FileMode]string{
		fs.ModeSymlink: "symlink", fs.ModeNamedPipe: "fifo", fs.ModeSocket: "socket",
		fs.ModeDevice: "device", fs.ModeDevice | fs.ModeCharDevice: "device", fs.ModeIrregular: "other",
	} {
		require.Equal(t, want, KindOf(mode|0o777))
	}
}

func TestLinksAreListedAndNeverFollowed(t *testing.T) {
	outside := t.TempDir()
	treetest.Write(t, outside, map[string]string{"secret": "canary", "folder/secret": "canary"})
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{"real": "mine", "folder/inner": "mine too"})
	for name, target := range map[string]string{
		"to-file": "real", "to-folder": "folder", "to-outside": filepath.Join(outside, "secret"),
		"to-outside-folder": filepath.Join(outside, "folder"), "upwards": "../../../../etc/passwd",
		"dangling": "nowhere", "itself": "itself", "to-root": "/", "dot": ".", "folder/above": "..",
		"proc": "/proc/self/environ",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	outputs, skipped, err := outputsOf(t.Context(), root, wide, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"folder/inner", "real"}, paths(outputs))
	const link = "symlink: not a regular file"
	require.Equal(t, map[string]string{
		"to-file": link, "to-folder": link, "to-outside": link, "to-outside-folder": link, "upwards": link,
		"dangling": link, "itself": link, "to-root": link, "dot": link, "folder/above": link, "proc": link,
	}, reasons(t, skipped))
	text := fmt.Sprint(outputs, skipped)
	require.NotContains(t, text, "secret")
	require.NotContains(t, text, "passwd", "targets are not told")
}

func TestHardLinksAreFilesOfTheirOwn(t *testing.T) {
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{"one": "same"})
	require.NoError(t, os.Link(filepath.Join(dir, "one"), filepath.Join(dir, "two")))
	outputs, skipped, err := outputsOf(t.Context(), root, wide, nil)
	require.NoError(t, err)
	require.Empty(t, skipped)
	require.Equal(t, []string{"one", "two"}, paths(outputs))
	require.Equal(t, outputs[0].SHA256, outputs[1].SHA256)
}

func TestOddNames(t *testing.T) {
	root, dir := openRoot(t)
	names := []string{
		"new\nline", "\x1b]0;title\a", "bad\xff\xfe", "txt\u202egnp", `back\slash`, "tab\t", " ", "*", "$(id)", "~", "#",
		strings.Repeat("n", 255), strings.Repeat("\xff", 255), "é", "e\u0301", "CASE", "case", "...", `"`, `\"`,
	}
	for _, name := range names {
		treetest.Write(t, dir, map[string]string{name: name})
	}
	outputs, skipped, err := outputsOf(t.Context(), root, wide, nil)
	require.NoError(t, err)
	require.Empty(t, skipped)
	require.Len(t, outputs, len(names))
	seen := map[string]bool{}
	for _, o := range outputs {
		require.False(t, seen[o.Path], o.Path)
		seen[o.Path] = true
		name := decodePath(t, o.Path)
		require.Contains(t, names, name)
		require.Equal(t, sum(name), o.SHA256, "the file of this name")
		if o.PathBase64 != "" {
			raw, err := base64.StdEncoding.DecodeString(o.PathBase64)
			require.NoError(t, err)
			require.Equal(t, name, string(raw))
		}
		require.NotContains(t, o.Path, "\x1b")
		require.NotContains(t, o.Path, "\n")
	}
}

func TestOddNamesOfWhatIsLeftOut(t *testing.T) {
	root, dir := openRoot(t)
	require.NoError(t, os.Symlink("x", filepath.Join(dir, "\x1b[2J\xff")))
	_, skipped, err := outputsOf(t.Context(), root, wide, nil)
	require.NoError(t, err)
	require.Equal(t, []result.SkippedOutput{{
		Path: `\x1b[2J\xff`, PathBase64: base64.StdEncoding.EncodeToString([]byte("\x1b[2J\xff")),
		Kind: "symlink", Reason: "not a regular file",
	}}, skipped)
}

func TestFileLimit(t *testing.T) {
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{"exact": "12345", "over": "123456", "empty": ""})
	limits := wide
	limits.FileBytes = 5
	outputs, skipped, err := outputsOf(t.Context(), root, limits, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"empty", "exact"}, paths(outputs))
	require.Equal(t, []result.SkippedOutput{{Path: "over", Kind: "file", SizeBytes: 6, Reason: "larger than 5 bytes"}}, skipped)
}

func TestTotalLimit(t *testing.T) {
	root, dir := openRoot(t)
	for i := range 10 {
		treetest.Write(t, dir, map[string]string{fmt.Sprint(i): "1234"})
	}
	limits := wide
	limits.TotalBytes = 17
	outputs, skipped, err := outputsOf(t.Context(), root, limits, nil)
	require.NoError(t, err)
	require.Len(t, outputs, 4, "16 of 17 bytes")
	require.Len(t, skipped, 6)
	for _, s := range skipped {
		require.Equal(t, "all outputs together larger than 17 bytes", s.Reason)
		require.Equal(t, int64(4), s.SizeBytes)
	}
}

// A file that does not fit does not keep smaller ones out.
func TestTotalLimitLeavesRoomForSmallerFiles(t *testing.T) {
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{"big": strings.Repeat("x", 100), "small": "x"})
	limits := wide
	limits.TotalBytes = 50
	outputs, _, err := outputsOf(t.Context(), root, limits, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"small"}, paths(outputs))
}

func TestTotalDoesNotOverflow(t *testing.T) {
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{"a": "12345678"})
	w := &walker{root: root, limits: Limits{Files: 10, Depth: 10, FileBytes: math.MaxInt64, TotalBytes: math.MaxInt64 - 1}}
	w.total = math.MaxInt64 - 4
	require.NoError(t, w.walk(t.Context()))
	require.Empty(t, w.files)
	require.Len(t, w.skipped.Sorted(), 1)
}

func TestZeroLimitsCollectNothing(t *testing.T) {
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{"a": "x", "empty": "", "d/e": "x"})
	outputs, skipped, err := outputsOf(t.Context(), root, Limits{}, nil)
	require.NoError(t, err)
	require.Empty(t, outputs)
	require.NotEmpty(t, skipped)

	outputs, skipped, err = outputsOf(t.Context(), root, Limits{Files: 10}, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"empty"}, paths(outputs))
	require.Equal(t, map[string]string{"a": "file: larger than 0 bytes", "d": "directory: more than 0 levels deep"}, reasons(t, skipped))
}

func TestDepthLimit(t *testing.T) {
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{"0": "x", "a/1": "x", "a/b/2": "x", "a/b/c/3": "x", "a/b/c/d/4": "x"})
	limits := wide
	limits.Depth = 2
	outputs, skipped, err := outputsOf(t.Context(), root, limits, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"0", "a/1", "a/b/2"}, paths(outputs))
	require.Equal(t, map[string]string{"a/b/c": "directory: more than 2 levels deep"}, reasons(t, skipped))
}

func TestEntryLimit(t *testing.T) {
	root, dir := openRoot(t)
	for i := range 50 {
		treetest.Write(t, dir, map[string]string{fmt.Sprintf("d%d/f", i): "x"})
	}
	limits := wide
	limits.Files = 20
	outputs, skipped, err := outputsOf(t.Context(), root, limits, nil)
	require.NoError(t, err)
	require.Empty(t, outputs)
	require.NotEmpty(t, skipped)
	for _, s := range skipped {
		require.Equal(t, "more than 20 entries", s.Reason)
	}

	limits.Files = 100
	outputs, skipped, err = outputsOf(t.Context(), root, limits, nil)
	require.NoError(t, err)
	require.Len(t, outputs, 50, "exactly the limit is allowed")
	require.Empty(t, skipped)

	limits.Files = 99
	outputs, skipped, err = outputsOf(t.Context(), root, limits, nil)
	require.NoError(t, err)
	require.Len(t, outputs, 49)
	require.Len(t, skipped, 1)
}

// What is left out is listed up to a bound, and then counted.
func TestManyEntriesOverTheLimit(t *testing.T) {
	root, dir := openRoot(t)
	const links = maxSkipped + 234
	for i := range links {
		require.NoError(t, os.Symlink("x", filepath.Join(dir, fmt.Sprintf("link%05d", i))))
	}
	_, skipped, err := outputsOf(t.Context(), root, wide, nil)
	require.NoError(t, err)
	require.Len(t, skipped, maxSkipped+1)
	last := skipped[maxSkipped]
	require.Equal(t, result.SkippedOutput{Kind: "other", Reason: "234 further entries were left out"}, last)
	require.True(t, slices.IsSortedFunc(skipped[:maxSkipped], func(a, b result.SkippedOutput) int { return strings.Compare(a.Path, b.Path) }))
}

func TestCanceledCollection(t *testing.T) {
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{"a": "x", "d/b": "x"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	outputs, _, err := outputsOf(ctx, root, wide, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, outputs, "no file without its hash")
}

// meddler is a context that does something the n-th time it is asked, which the
// collection does before every read.
type meddler struct {
	context.Context
	calls int
	do    map[int]func() error
}

func (m *meddler) Err() error {
	m.calls++
	if do := m.do[m.calls]; do != nil {
		return do()
	}
	return nil
}

func TestCanceledWhileHashing(t *testing.T) {
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{"big": strings.Repeat("x", 1<<20)})
	gone, big := errors.New("gone"), listed(t, root, "big")
	ctx := &meddler{Context: t.Context(), do: map[int]func() error{3: func() error { return gone }}}
	_, err := hashFile(ctx, root, big.Name, big.Info)
	require.ErrorIs(t, err, gone)
	require.Equal(t, 3, ctx.calls, "nothing is read after that")
}

// listed is a file as the walk saw it.
func listed(t *testing.T, root *os.Root, name string) File {
	t.Helper()
	info, err := root.Lstat(name)
	require.NoError(t, err)
	return File{name, info}
}

func TestFileThatChangesWhileItIsHashed(t *testing.T) {
	for name, change := range map[string]func(f *os.File) error{
		"grows":        func(f *os.File) error { _, err := f.WriteAt([]byte("more"), 1<<20); return err },
		"shrinks":      func(f *os.File) error { return f.Truncate(1000) },
		"is rewritten": func(f *os.File) error { _, err := f.WriteAt([]byte("other"), 0); return err },
	} {
		t.Run(name, func(t *testing.T) {
			root, dir := openRoot(t)
			full := filepath.Join(dir, "file")
			treetest.Write(t, dir, map[string]string{"file": strings.Repeat("x", 1<<20)})
			long := listed(t, root, "file").Info.ModTime().Add(-1e9)
			require.NoError(t, os.Chtimes(full, long, long))
			ctx := &meddler{Context: t.Context(), do: map[int]func() error{2: func() error {
				f, err := os.OpenFile(full, os.O_WRONLY, 0)
				return errors.Join(err, change(f), f.Close())
			}}}
			got, err := hashOf(ctx, t, root, "file")
			require.ErrorIs(t, err, fsx.ErrChanged)
			require.Empty(t, got)
			require.Greater(t, ctx.calls, 1, "the change happened")
		})
	}
}

func TestFileThatGrowsForEverEndsTheHash(t *testing.T) {
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{"log": "x"})
	f, err := os.OpenFile(filepath.Join(dir, "log"), os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	defer f.Close()
	grow := func() error { _, err := f.Write([]byte("xxxx")); return err }
	do := map[int]func() error{}
	for i := range 1000 {
		do[i] = grow
	}
	ctx := &meddler{Context: t.Context(), do: do}
	_, err = hashOf(ctx, t, root, "log")
	require.ErrorIs(t, err, fsx.ErrChanged)
	require.Less(t, ctx.calls, 5)
}

func TestFilesThatVanishAreLeftOut(t *testing.T) {
	root, dir := openRoot(t)
	treetest.Write(t, dir, map[string]string{"a": "x", "b": "y"})
	w := &walker{root: root, limits: wide}
	require.NoError(t, w.walk(t.Context()))
	require.NoError(t, os.Remove(filepath.Join(dir, "a")))
	outputs, err := w.hashAll(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, []string{"b"}, paths(outputs))
	require.Equal(t, map[string]string{"a": "file: cannot be read: no such file or directory"}, reasons(t, w.skipped.Sorted()))
}

func TestClosedFolderIsAnError(t *testing.T) {
	dir := t.TempDir()
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	require.NoError(t, root.Close())
	outputs, _, err := outputsOf(t.Context(), root, wide, nil)
	require.ErrorIs(t, err, os.ErrClosed)
	require.Empty(t, outputs)
}

func TestFolderIsTheOneThatWasOpened(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "final")
	treetest.Write(t, base, map[string]string{"final/mine": "x", "other/secret": "x"})
	root, err := os.OpenRoot(dir)
	require.NoError(t, err)
	defer root.Close()
	require.NoError(t, os.Rename(dir, filepath.Join(base, "moved")))
	require.NoError(t, os.Symlink("other", dir))
	outputs, _, err := outputsOf(t.Context(), root, wide, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"mine"}, paths(outputs))
}

func FuzzOutputNames(f *testing.F) {
	f.Add("a", "b\nc")
	f.Add("\xff", `\xff`)
	f.Fuzz(func(t *testing.T, one, two string) {
		for _, name := range []string{one, two} {
			if name == "" || name == "." || name == ".." || len(name) > 255 || strings.ContainsAny(name, "/\x00") {
				return
			}
		}
		root, dir := openRoot(t)
		want := map[string]bool{one: true, two: true}
		for name := range want {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644))
		}
		outputs, skipped, err := outputsOf(t.Context(), root, wide, nil)
		require.NoError(t, err)
		require.Empty(t, skipped)
		require.Len(t, outputs, len(want))
		for _, o := range outputs {
			require.True(t, want[decodePath(t, o.Path)])
		}
	})
}

// hashOf hashes a file as the walk saw it.
func hashOf(ctx context.Context, t *testing.T, root *os.Root, name string) (string, error) {
	t.Helper()
	f := listed(t, root, name)
	return hashFile(ctx, root, f.Name, f.Info)
}
