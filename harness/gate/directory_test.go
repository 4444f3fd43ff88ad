package gate

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

func TestOpenDirectory(t *testing.T) {
	for name, c := range map[string]struct {
		files   []string
		replace bool
		rule    string // empty: it can be used, and is empty then
	}{
		"new":                     {},
		"earlier":                 {files: []string{"RunManifest.json", "evidence/raw/01.stdout.log", "ExecutionVerdict.json"}, rule: "holds an earlier run"},
		"earlier, replaced":       {files: []string{"RunManifest.json", "evidence/raw/01.stdout.log", "ExecutionVerdict.json"}, replace: true},
		"half-made, replaced":     {files: []string{"wish.lock.json", "RunManifest.json.new-ABC"}, replace: true},
		"somebody else's":         {files: []string{"RunManifest.json", "thesis.tex"}, replace: true, rule: `holds "thesis.tex"`},
		"somebody else's folder":  {files: []string{"evidence/photo.jpg"}, replace: true, rule: "no earlier gate directory"},
		"somebody's, not replace": {files: []string{"thesis.tex"}, rule: `holds "thesis.tex"`},
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

func TestOutputsDiffer(t *testing.T) {
	file := func(path, sum string) evidence.HashedFile { return evidence.HashedFile{FilePath: path, SHA256: sum} }
	one := file("evidence/outputs/01/bin/app", "a")
	for name, c := range map[string]struct {
		files      []evidence.HashedFile
		name, what string
	}{
		"same":    {[]evidence.HashedFile{one, file("evidence/raw/repeat-2/outputs/01/bin/app", "a"), file("evidence/raw/repeat-2/01.stdout.log", "x")}, "", ""},
		"content": {[]evidence.HashedFile{one, file("evidence/raw/repeat-2/outputs/01/bin/app", "b")}, "evidence/outputs/01/bin/app", "has other content"},
		"missing": {[]evidence.HashedFile{one, file("evidence/raw/repeat-3/outputs/01/bin/app", "a")}, "evidence/outputs/01/bin/app", "is missing"},
		"more":    {[]evidence.HashedFile{one, file("evidence/raw/repeat-2/outputs/01/bin/app", "a"), file("evidence/raw/repeat-2/outputs/02/x", "b")}, "evidence/outputs/02/x", "is there only"},
	} {
		t.Run(name, func(t *testing.T) {
			path, what := outputsDiffer(evidence.Artifacts{Artifacts: c.files}, 2)
			require.Equal(t, c.name, path)
			require.Equal(t, c.what, what)
		})
	}
}

func TestCommandsDiffer(t *testing.T) {
	base := func() evidence.CommandTests {
		return evidence.CommandTests{
			Index: 1, Command: "pytest", Ending: "exited", ExitCode: new(0), Counts: &evidence.Counts{Total: 2, Passed: 2},
			Cases: []evidence.Case{{ID: "a", Outcome: evidence.Passed, Message: "1"}, {ID: "b", Outcome: evidence.Passed}},
		}
	}
	for name, c := range map[string]struct {
		change          func(*evidence.CommandTests)
		subject, detail string
	}{
		"same":         {func(c *evidence.CommandTests) { c.Cases[0].Message = "2" }, "", ""},
		"code":         {func(c *evidence.CommandTests) { c.ExitCode = new(1) }, "pytest", "It exited with code 0, and exited with code 1 in run 2."},
		"ending":       {func(c *evidence.CommandTests) { c.Ending, c.ExitCode = "timed_out", nil }, "pytest", "It exited with code 0, and ended as timed_out in run 2."},
		"outcome":      {func(c *evidence.CommandTests) { c.Cases[1].Outcome = evidence.Failed }, "b", "The test passed, and failed in run 2."},
		"fewer cases":  {func(c *evidence.CommandTests) { c.Cases = c.Cases[:1] }, "b", "The test is not there in run 2."},
		"more cases":   {func(c *evidence.CommandTests) { c.Cases = append(c.Cases, evidence.Case{ID: "c"}) }, "c", "The test is there only in run 2."},
		"other case":   {func(c *evidence.CommandTests) { c.Cases[0].ID = "A" }, "A", "The test is there in one run only; compared with run 2."},
		"only numbers": {func(c *evidence.CommandTests) { c.Counts.Passed = 1 }, "pytest", "2 of 2 tests passed, and 1 of 2 in run 2."},
	} {
		t.Run(name, func(t *testing.T) {
			other := base()
			c.change(&other)
			subject, detail := commandsDiffer(base(), other, 2)
			require.Equal(t, c.subject, subject)
			require.Equal(t, c.detail, detail)
		})
	}
}
