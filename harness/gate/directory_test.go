package gate

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

func TestOpenDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		files   []string
		replace bool
		rule    string // empty: it can be used, and has only its ignore file then
		aside   bool   // the files are in the place of the last run then
	}{
		"new":                       {},
		"earlier":                   {files: []string{"RunManifest.json", "evidence/raw/01.stdout.log", "ExecutionVerdict.json"}, aside: true},
		"killed at its beginning":   {files: []string{".gitignore"}},
		"somebody's ignore file":    {files: []string{"RunManifest.json", "ExecutionVerdict.json", ".gitignore"}, rule: `holds ".gitignore"`},
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
				text := "x"
				if name == "killed at its beginning" {
					text = evidence.IgnoreText
				}
				require.NoError(t, os.WriteFile(filepath.Join(path, file), []byte(text), 0o644))
			}
			dir, err := openDirectory(path, c.replace, kept{})
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
			require.Len(t, entries, 1)
			require.Equal(t, ".gitignore", entries[0].Name())
			for _, file := range c.files {
				if c.aside {
					require.FileExists(t, filepath.Join(path+".1", file))
				}
			}
			if !c.aside {
				require.NoDirExists(t, path+".1")
			}
			_, err = openDirectory(path, c.replace, kept{})
			require.ErrorIs(t, err, ErrInUse)
			require.NoError(t, dir.close())
			again, err := openDirectory(path, c.replace, kept{})
			require.NoError(t, err)
			require.NoError(t, again.close())
		})
	}
}

// finish leaves what a finished run leaves, and a name for it.
func finish(t *testing.T, path, name string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Join(path, "evidence"), 0o755))
	for _, file := range []string{"RunManifest.json", "ExecutionVerdict.json", "evidence/run_log.txt"} {
		require.NoError(t, os.WriteFile(filepath.Join(path, file), []byte(name), 0o644))
	}
}

// holds are the names of the finished runs in places; empty for none.
func holds(t *testing.T, places ...string) (names []string) {
	t.Helper()
	for _, place := range places {
		text, err := os.ReadFile(filepath.Join(place, "RunManifest.json"))
		if err != nil {
			require.ErrorIs(t, err, os.ErrNotExist)
		}
		names = append(names, string(text))
	}
	return names
}

// TestEarlierRunsMoveAside: the last runs stay beside the directory, the latest first, and no more.
func TestEarlierRunsMoveAside(t *testing.T) {
	base := t.TempDir()
	path := filepath.Join(base, "gate.out")
	places := append([]string{path}, earlierRuns(path)...)
	moved := map[string][2]string{"b": {places[1]}, "c": {places[1]}, "d": {places[1]}, "e": {places[1], places[3]}}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		dir, err := openDirectory(path, false, kept{})
		require.NoError(t, err)
		require.Equal(t, moved[name], [2]string{dir.moved, dir.removed}, name)
		finish(t, path, name)
		require.NoError(t, dir.close())
	}
	require.Equal(t, []string{"e", "d", "c", "b"}, holds(t, places...))
	dir, err := openDirectory(path, true, kept{})
	require.NoError(t, err)
	require.NoError(t, dir.close())
	require.Equal(t, []string{"", "d", "c", "b"}, holds(t, places...), "a replaced run is not kept")
	entries, err := os.ReadDir(base)
	require.NoError(t, err)
	require.Len(t, entries, 4)

	// A gap is closed first, and so is a directory that a crash left empty: nothing is lost.
	for i, name := range []string{"f", "g", "h"} {
		finish(t, path, name)
		require.NoError(t, os.RemoveAll(places[3-i]))
		if i > 0 {
			require.NoError(t, os.Mkdir(places[3-i], 0o755))
		}
		before := holds(t, places...)
		dir, err = openDirectory(path, false, kept{})
		require.NoError(t, err)
		require.NoError(t, dir.close())
		require.Equal(t, places[1], dir.moved)
		require.Empty(t, dir.removed)
		want := slices.Concat([]string{""}, before[:3-i], before[4-i:])
		require.Equal(t, want, holds(t, places...), "a gap in place %d", 3-i)
	}
}

// TestNeededDirectories: what a run or a replay reads is never removed, and what is read by its name does
// not move. Nothing is changed then.
func TestNeededDirectories(t *testing.T) {
	for name, c := range map[string]struct {
		finished int // places from the first one, which is the directory itself
		needed   int // the place that is needed
		still    bool
		replace  bool
		rule     string
	}{
		"the last place":              {4, 3, false, false, "gate.out.3 must stay: it is or holds"},
		"the directory, replaced":     {4, 0, false, true, "is or holds"},
		"a place with room behind it": {3, 2, false, false, ""},
		"the directory moves":         {4, 0, false, false, ""},
		"another place, replaced":     {4, 3, false, true, ""},
		"a wish in the last place":    {4, 3, true, false, "gate.out.3 must stay: it is or holds"},
		"a wish in another place":     {2, 1, true, false, "gate.out.1 must stay: it is or holds"},
		"a wish beyond the gap":       {1, 2, true, false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			t.Chdir(base)
			places := []string{"gate.out", "gate.out.1", "gate.out.2", "gate.out.3"}
			for i, place := range places {
				if i < c.finished || i == c.needed {
					finish(t, place, place)
				}
			}
			before := holds(t, places...)
			keep := kept{whole: []string{places[c.needed]}}
			if c.still {
				keep.still = keep.whole
			}
			dir, err := openDirectory(places[0], c.replace, keep)
			if c.rule != "" {
				require.ErrorAs(t, err, new(*DirectoryError))
				require.ErrorContains(t, err, c.rule)
				require.Equal(t, before, holds(t, places...))
				return
			}
			require.NoError(t, err)
			require.NoError(t, dir.close())
			require.Contains(t, holds(t, places...), places[c.needed])
		})
	}
}

// TestEarlierRunsStay: what is not a run of a gate, or is in use, is never moved or removed, and
// then nothing is.
func TestEarlierRunsStay(t *testing.T) {
	for name, c := range map[string]struct {
		in   func(t *testing.T, places []string)
		want string
	}{
		"a file": {func(t *testing.T, places []string) { require.NoError(t, os.WriteFile(places[1], nil, 0o644)) }, "cannot be opened"},
		"a link": {func(t *testing.T, places []string) { require.NoError(t, os.Symlink(t.TempDir(), places[1])) }, "is a link"},
		"other files": {func(t *testing.T, places []string) {
			finish(t, places[1], "x")
			finish(t, filepath.Join(places[1], "more"), "x")
		}, `gate.out.1 is not an earlier run`},
		"only a lock": {func(t *testing.T, places []string) {
			require.NoError(t, os.Mkdir(places[1], 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(places[1], "wish.lock.json"), nil, 0o644))
		}, "gate.out.1 is not an earlier run"},
		"the last one": {func(t *testing.T, places []string) {
			finish(t, places[1], "1")
			finish(t, places[2], "2")
			require.NoError(t, os.MkdirAll(filepath.Join(places[3], "photos"), 0o755))
		}, "gate.out.3 is not an earlier run"},
		"in use": {func(t *testing.T, places []string) {
			dir, err := openDirectory(places[1], false, kept{})
			require.NoError(t, err)
			t.Cleanup(func() { _ = dir.close() })
		}, "is in use by another run"},
		"here": {func(t *testing.T, places []string) { t.Chdir(filepath.Join(places[0], "evidence")) }, "gate.out is or holds the current directory"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "gate.out")
			places := append([]string{path}, earlierRuns(path)...)
			finish(t, path, "last")
			c.in(t, places)
			before, err := filepath.Glob(filepath.Dir(path) + "/*/*")
			require.NoError(t, err)
			_, err = openDirectory(path, false, kept{})
			require.ErrorAs(t, err, new(*DirectoryError))
			require.ErrorContains(t, err, c.want)
			after, err := filepath.Glob(filepath.Dir(path) + "/*/*")
			require.NoError(t, err)
			require.Equal(t, before, after)
			require.Equal(t, []string{"last"}, holds(t, path))
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
	_, err := openDirectory(path, true, kept{})
	var refused *DirectoryError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "is a link", refused.Rule)
	require.NotEmpty(t, refused.Hint())
}
