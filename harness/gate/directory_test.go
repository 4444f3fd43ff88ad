package gate

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOpenDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		files   []string
		replace bool
		rule    string // empty: it can be used, and is empty then
	}{
		"new":                       {},
		"earlier":                   {files: []string{"RunManifest.json", "evidence/raw/01.stdout.log", "ExecutionVerdict.json"}, rule: "holds an earlier run"},
		"killed":                    {files: []string{"wish.lock.json", "RunManifest.json", "evidence/raw/01.stdout.log"}},
		"killed at its verdict":     {files: []string{"RunManifest.json", "ExecutionVerdict.json.new-ABC"}},
		"earlier, replaced":         {files: []string{"RunManifest.json", "evidence/raw/01.stdout.log", "ExecutionVerdict.json"}, replace: true},
		"half-made, replaced":       {files: []string{"wish.lock.json", "RunManifest.json.new-ABC"}, replace: true},
		"somebody else's":           {files: []string{"RunManifest.json", "thesis.tex"}, replace: true, rule: `holds "thesis.tex"`},
		"somebody else's directory": {files: []string{"evidence/photo.jpg"}, replace: true, rule: "no earlier gate directory"},
		"somebody's, not replace":   {files: []string{"thesis.tex"}, rule: `holds "thesis.tex"`},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "deep", "gate")
			for _, file := range c.files {
				require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(path, file)), 0o755))
				require.NoError(t, os.WriteFile(filepath.Join(path, file), []byte("x"), 0o644))
			}
			dir, err := openDirectory(path, c.replace)
			if c.rule != "" {
				var refused *DirectoryError
				require.ErrorAs(t, err, &refused)
				require.Contains(t, refused.Rule, c.rule)
				require.NotEmpty(t, refused.Hint())
				for _, file := range c.files {
					require.FileExists(t, filepath.Join(path, file))
				}
				return
			}
			require.NoError(t, err)
			entries, err := os.ReadDir(path)
			require.NoError(t, err)
			require.Empty(t, entries)
			_, err = openDirectory(path, c.replace)
			require.ErrorIs(t, err, ErrInUse)
			require.NoError(t, dir.close())
			again, err := openDirectory(path, c.replace)
			require.NoError(t, err)
			require.NoError(t, again.close())
		})
	}
}

// TestOutside: a gate directory never is or holds the workspace, whose files would be
// removed with it.
func TestOutside(t *testing.T) {
	base := t.TempDir()
	workspace := filepath.Join(base, "a", "workspace")
	require.NoError(t, os.MkdirAll(workspace, 0o755))
	require.NoError(t, os.Symlink(workspace, filepath.Join(base, "link")))
	for _, bad := range []string{workspace, filepath.Dir(workspace), base, filepath.Join(base, "link"), workspace + "/new/.."} {
		require.Error(t, outside(bad, workspace), bad)
	}
	for _, good := range []string{filepath.Join(workspace, ".gate"), filepath.Join(base, "link", "new", "gate"), filepath.Join(base, "b"), workspace + "-2"} {
		require.NoError(t, outside(good, workspace), good)
	}
	rel, ok := within(filepath.Join(base, "link", "x", "gate"), workspace)
	require.True(t, ok)
	require.Equal(t, "x/gate", rel)
	_, ok = within(filepath.Join(base, "gate"), workspace)
	require.False(t, ok)
	_, ok = within(workspace, workspace)
	require.False(t, ok)
}

// An untrusted workspace may have a link where the gate directory goes.
func TestOpenDirectoryThatIsALink(t *testing.T) {
	elsewhere, path := t.TempDir(), filepath.Join(t.TempDir(), "gate.out")
	require.NoError(t, os.Symlink(elsewhere, path))
	_, err := openDirectory(path, true)
	var refused *DirectoryError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "is a link", refused.Rule)
	require.NotEmpty(t, refused.Hint())
}
