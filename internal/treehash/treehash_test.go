package treehash

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/treetest"
)

// build creates a tree with a file, a program, a link and directories.
func build(t *testing.T, change func(dir string) error) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "bin"), 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "bin", "go"), []byte("program"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "VERSION"), []byte("1"), 0o600))
	require.NoError(t, os.Symlink("bin/go", filepath.Join(dir, "link")))
	if change != nil {
		require.NoError(t, change(dir))
	}
	return dir
}

func sumOf(t *testing.T, dir string, exclude ...string) string {
	t.Helper()
	digest, err := Of(t.Context(), dir, Options{Exclude: exclude})
	require.NoError(t, err)
	return digest.Sum
}

// TestFormat: the digest is on the wire, in the documents of gates.
func TestFormat(t *testing.T) {
	dir := build(t, nil)
	const want = "02f8b0801e73f6c9b47a90c9769f35c5a4d90db54a17dc22c9d288d31f69a727"
	require.Equal(t, want, sumOf(t, dir))
}

func TestOf(t *testing.T) {
	same := sumOf(t, build(t, nil))
	require.Equal(t, same, sumOf(t, build(t, func(d string) error {
		return cmpErr(os.Chmod(filepath.Join(d, "VERSION"), 0o644), os.Chtimes(filepath.Join(d, "VERSION"), time.Unix(1, 0), time.Unix(1, 0)))
	})), "neither other permissions nor times count")
	seen := map[string]string{same: "as it is"}
	for name, change := range map[string]func(dir string) error{
		"content":   func(d string) error { return os.WriteFile(filepath.Join(d, "VERSION"), []byte("2"), 0o600) },
		"mode":      func(d string) error { return os.Chmod(filepath.Join(d, "bin", "go"), 0o600) },
		"new":       func(d string) error { return os.WriteFile(filepath.Join(d, "x"), nil, 0o600) },
		"odd bytes": func(d string) error { return os.WriteFile(filepath.Join(d, "\xff"), nil, 0o600) },
		"directory": func(d string) error { return os.Mkdir(filepath.Join(d, "x"), 0o700) },
		"gone":      func(d string) error { return os.Remove(filepath.Join(d, "VERSION")) },
		"empty":     func(d string) error { return os.Remove(filepath.Join(d, "empty")) },
		"renamed":   func(d string) error { return os.Rename(filepath.Join(d, "VERSION"), filepath.Join(d, "version")) },
		"link": func(d string) error {
			return cmpErr(os.Remove(filepath.Join(d, "link")), os.Symlink("bin", filepath.Join(d, "link")))
		},
		"link to file": func(d string) error {
			return cmpErr(os.Remove(filepath.Join(d, "link")), os.WriteFile(filepath.Join(d, "link"), []byte("bin/go"), 0o600))
		},
	} {
		sum := sumOf(t, build(t, change))
		require.Empty(t, seen[sum], name)
		seen[sum] = name
	}
	_, err := Of(t.Context(), filepath.Join(t.TempDir(), "none"), Options{})
	require.ErrorIs(t, err, fs.ErrNotExist)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Of(ctx, build(t, nil), Options{})
	require.ErrorIs(t, err, context.Canceled)
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestExclude(t *testing.T) {
	plain := build(t, nil)
	more := build(t, func(d string) error {
		return cmpErr(os.MkdirAll(filepath.Join(d, "bin", "out"), 0o700), os.WriteFile(filepath.Join(d, "bin", "out", "x"), nil, 0o600),
			os.WriteFile(filepath.Join(d, "bin", "y"), nil, 0o600))
	})
	require.Equal(t, sumOf(t, plain), sumOf(t, more, "bin/out/", "bin/y", "not/there"))
	require.NotEqual(t, sumOf(t, plain), sumOf(t, more, "out", "bin/y"), "a path, not a name")
	require.Equal(t, sumOf(t, more), sumOf(t, more, ".", ""), "never all of it")
}

// TestState: a change that was taken back is seen.
func TestState(t *testing.T) {
	dir := build(t, nil)
	before, err := Of(t.Context(), dir, Options{})
	require.NoError(t, err)
	file := filepath.Join(dir, "VERSION")
	treetest.Tick(t)
	require.NoError(t, cmpErr(os.Rename(file, file+".new"), os.Rename(file+".new", file)))
	after, err := Of(t.Context(), dir, Options{})
	require.NoError(t, err)
	require.Equal(t, before.Sum, after.Sum)
	require.NotEqual(t, before.State, after.State)
}

func TestMemory(t *testing.T) {
	dir := build(t, nil)
	file, path := filepath.Join(dir, "VERSION"), filepath.Join(t.TempDir(), "memory.json")
	// The kernel sets the time of the last change of an inode, so a file of this test is not
	// older than a moment, and is not remembered.
	memory := LoadMemory(path)
	first, err := Of(t.Context(), dir, Options{Memory: memory})
	require.NoError(t, err)
	memory.Save(path)
	require.NoFileExists(t, path)

	info, err := os.Stat(file)
	require.NoError(t, err)
	stamp, ok := stampOf(info)
	require.True(t, ok, "Linux says when an inode changed")
	memory.Files["VERSION"], memory.fresh = known{info.Size(), stamp, strings.Repeat("0", 64)}, true
	memory.Save(path)
	second, err := Of(t.Context(), dir, Options{Memory: LoadMemory(path)})
	require.NoError(t, err)
	require.NotEqual(t, first.Sum, second.Sum, "the file was not read")

	treetest.Tick(t)
	require.NoError(t, os.WriteFile(file, []byte("1"), 0o600))
	require.NoError(t, os.Chtimes(file, info.ModTime(), info.ModTime()))
	third, err := Of(t.Context(), dir, Options{Memory: LoadMemory(path)})
	require.NoError(t, err)
	require.Equal(t, first.Sum, third.Sum, "a write is seen although size and time of modification are the same")

	require.NoError(t, os.WriteFile(path, []byte("{nonsense"), 0o600))
	again, err := Of(t.Context(), dir, Options{Memory: LoadMemory(path)})
	require.NoError(t, err)
	require.Equal(t, first.Sum, again.Sum, "a memory that cannot be read is empty")
}

// TestMemoryForgets: a memory does not grow with the files that a tree once had.
func TestMemoryForgets(t *testing.T) {
	dir, path := build(t, nil), filepath.Join(t.TempDir(), "memory.json")
	memory := LoadMemory(path)
	memory.Files["gone"] = known{1, [4]int64{}, strings.Repeat("0", 64)}
	_, err := Of(t.Context(), dir, Options{Memory: memory})
	require.NoError(t, err)
	memory.Save(path)
	require.NotContains(t, LoadMemory(path).Files, "gone")
	require.FileExists(t, path)
}

// BenchmarkOf: a tree of 1 GiB, with and without a memory.
func BenchmarkOf(b *testing.B) {
	dir := b.TempDir()
	block := []byte(strings.Repeat("0123456789abcdef", 16<<20))
	for _, name := range []string{"a", "b", "c", "d"} {
		if err := os.WriteFile(filepath.Join(dir, name), block, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	for name, memory := range map[string]*Memory{"read": nil, "remembered": LoadMemory("")} {
		b.Run(name, func(b *testing.B) {
			if memory != nil {
				time.Sleep(settled + time.Second) // a younger file is not remembered
			}
			for b.Loop() {
				if _, err := Of(b.Context(), dir, Options{Memory: memory}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
