package evaluate

import (
	"os"
	"path/filepath"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox"
)

// tree lists what is below a directory: "/" after directories, "@" after links.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	names := []string{}
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		switch {
		case entry.IsDir():
			rel += "/"
		case entry.Type()&os.ModeSymlink != 0:
			rel += "@"
		}
		names = append(names, rel)
		return err
	}))
	sort.Strings(names)
	return names
}

func TestSetupWorkingDirectory(t *testing.T) {
	base := filepath.Join(t.TempDir(), "new", "base")
	for range 2 {
		got, err := SetupWorkingDirectory(base)
		require.NoError(t, err)
		require.Equal(t, base, got)
		require.Equal(t, []string{"final/", "input/"}, tree(t, base))
	}
	writeFile(t, filepath.Join(base, "input", "train.csv"), "x")
	writeFile(t, filepath.Join(base, "final", "old.csv"), "x")
	_, err := SetupWorkingDirectory(base)
	require.NoError(t, err)
	require.Equal(t, []string{"final/", "final/old.csv", "input/", "input/train.csv"}, tree(t, base), "files are kept")

	t.Chdir(base)
	got, err := SetupWorkingDirectory(".")
	require.NoError(t, err)
	require.Equal(t, base, got, "the path is absolute")
}

func TestSetupWorkingDirectoryRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(base string) error
		want    string
	}{
		"final is a file":        {func(b string) error { return os.WriteFile(filepath.Join(b, "final"), nil, 0o600) }, "is not a directory"},
		"final is a link":        {func(b string) error { return os.Symlink(os.TempDir(), filepath.Join(b, "final")) }, "is a link"},
		"input is a file":        {func(b string) error { return os.WriteFile(filepath.Join(b, "input"), nil, 0o600) }, "is not a directory"},
		"input leads nowhere":    {func(b string) error { return os.Symlink("nowhere", filepath.Join(b, "input")) }, "is not a directory"},
		"the base itself a file": {func(b string) error { return os.WriteFile(filepath.Join(b, "file"), nil, 0o600) }, "cannot be made"},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			require.NoError(t, test.prepare(base))
			if name == "the base itself a file" {
				base = filepath.Join(base, "file")
			}
			_, err := SetupWorkingDirectory(base)
			var path *sandbox.PathError
			require.ErrorAs(t, err, &path)
			require.ErrorContains(t, err, test.want)
		})
	}
	// The data may be a link to a directory elsewhere.
	base := t.TempDir()
	require.NoError(t, os.Symlink(t.TempDir(), filepath.Join(base, "input")))
	_, err := SetupWorkingDirectory(base)
	require.NoError(t, err)
}

func TestMakeWorkspace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	for range 2 {
		_, err := makeWorkspace(dir)
		require.NoError(t, err)
		require.Equal(t, []string{"final/"}, tree(t, dir))
	}
	writeFile(t, filepath.Join(dir, "solution.py"), "of an evaluation")
	_, err := makeWorkspace(dir)
	require.NoError(t, err)

	other := t.TempDir()
	writeFile(t, filepath.Join(other, "solution.py"), "precious")
	_, err = makeWorkspace(other)
	require.ErrorContains(t, err, "is there without the final/ of an evaluation, so it may be yours")
	require.Equal(t, []string{"solution.py"}, tree(t, other))
}

func TestCleanOutputDirectory(t *testing.T) {
	base, outside := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(outside, "data.csv"), "kept")
	writeFile(t, filepath.Join(base, "input", "train.csv"), "kept")
	for _, name := range []string{"a.csv", ".hidden", "sub/b.csv", "sub/deeper/c.csv"} {
		writeFile(t, filepath.Join(base, "final", name), "x")
	}
	final := filepath.Join(base, "final")
	require.NoError(t, os.Mkdir(filepath.Join(final, "empty"), 0o700))
	for name, target := range map[string]string{"file": filepath.Join(outside, "data.csv"), "folder": outside, "nowhere": "nowhere", "sub/up": "../.."} {
		require.NoError(t, os.Symlink(target, filepath.Join(final, name)))
	}
	before, err := os.Stat(final)
	require.NoError(t, err)
	for range 2 {
		require.NoError(t, CleanOutputDirectory(base))
		require.Equal(t, []string{"final/", "input/", "input/train.csv"}, tree(t, base))
	}
	require.Equal(t, []string{"data.csv"}, tree(t, outside), "nothing is followed")
	after, err := os.Stat(final)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after), "the directory is kept")

	require.NoError(t, os.Remove(final))
	require.NoError(t, CleanOutputDirectory(base))
	require.DirExists(t, final)
}

func TestCleanOutputDirectoryRefuses(t *testing.T) {
	outside := t.TempDir()
	writeFile(t, filepath.Join(outside, "data.csv"), "kept")
	base := t.TempDir()
	require.NoError(t, os.Symlink(outside, filepath.Join(base, "final")))
	require.ErrorContains(t, CleanOutputDirectory(base), "is a link")
	require.FileExists(t, filepath.Join(outside, "data.csv"))
	require.Error(t, CleanOutputDirectory(filepath.Join(base, "missing")))
}

func TestCleanOutputDirectoryOfARun(t *testing.T) {
	base := t.TempDir()
	writeFile(t, filepath.Join(base, "final", "half.csv"), "x")
	root, err := os.OpenRoot(filepath.Join(base, "final"))
	require.NoError(t, err)
	defer root.Close()
	lock, err := fsx.Lock(root)
	require.NoError(t, err)
	require.ErrorIs(t, CleanOutputDirectory(base), sandbox.ErrBusy)
	require.FileExists(t, filepath.Join(base, "final", "half.csv"))
	require.NoError(t, lock.Close())
	require.NoError(t, CleanOutputDirectory(base))
}

func TestBuildExecutionEnv(t *testing.T) {
	fixed := func(more map[string]string) map[string]string {
		env := map[string]string{"PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0"}
		for name, text := range more {
			env[name] = text
		}
		return env
	}
	for name, test := range map[string]struct {
		parent map[string]string
		gpus   []int
		want   map[string]string
	}{
		"nothing":             {nil, nil, fixed(nil)},
		"a parent":            {map[string]string{"A": "b"}, nil, fixed(map[string]string{"A": "b"})},
		"fixed ones win":      {map[string]string{"PYTHONUNBUFFERED": "", "PYTHONHASHSEED": "random"}, nil, fixed(nil)},
		"inherited GPUs":      {map[string]string{"CUDA_VISIBLE_DEVICES": "5"}, nil, fixed(map[string]string{"CUDA_VISIBLE_DEVICES": "5"})},
		"GPUs in their order": {map[string]string{"CUDA_VISIBLE_DEVICES": "5"}, []int{3, 0}, fixed(map[string]string{"CUDA_VISIBLE_DEVICES": "3,0"})},
		"no GPUs":             {nil, []int{}, fixed(map[string]string{"CUDA_VISIBLE_DEVICES": ""})},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := BuildExecutionEnv(test.parent, test.gpus)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
			got["B"] = "c"
			require.NotContains(t, test.parent, "B", "the parent is copied")
		})
	}
	_, err := BuildExecutionEnv(nil, []int{0, -1})
	require.EqualError(t, err, "gpus -1: is not the index of a GPU")
}
