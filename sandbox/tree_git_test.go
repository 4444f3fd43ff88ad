package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/evalbox/evalbox/sandbox/tree"

	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/treetest"
)

// TestGitIsNotApplied: what a program writes for Git to execute stays in the record,
// and is applied only for a caller who says so.
func TestGitIsNotApplied(t *testing.T) {
	dir := readable(t, map[string]string{"a": "A", ".git/config": "[core]", "b.git/HEAD": "ref", "open": "x", "run": "x"})
	require.NoError(t, os.Chmod(filepath.Join(dir, "open"), 0o664))
	r, _, req := treeRun(t, TransferBind, dir, func(copied string) error {
		treetest.Write(t, copied, map[string]string{
			"new": "N", ".git/hooks/post-checkout": "evil", ".git/config": "evil", "b.git/config": "evil", "c/.git": "gitdir: x",
			"d/HEAD": "ref", "d/config": "evil", "open": "y", "run": "y",
		})
		return errors.Join(
			os.Chmod(filepath.Join(copied, "new"), 0o777), os.Chmod(filepath.Join(copied, "open"), 0o666),
			os.Chmod(filepath.Join(copied, "run"), 0o777), os.Chmod(filepath.Join(copied, "a"), 0))
	})
	res, err := r.Run(t.Context(), req)
	require.NoError(t, err)
	require.Zero(t, res.ExitCode, res.Stderr)
	for range 2 { // the second time changes nothing
		report, err := r.ApplyTree(t.Context(), "r1", "/repo", tree.ApplyOptions{})
		require.NoError(t, err)
		var skipped []string
		for _, c := range report.Changes {
			if c.State == tree.Skipped {
				skipped = append(skipped, c.Path)
				require.Contains(t, c.Reason, "is of Git")
			} else {
				require.Equal(t, tree.Applied, c.State, c)
			}
		}
		require.ElementsMatch(t, []string{".git/config", ".git/hooks", ".git/hooks/post-checkout", "b.git/config", "c/.git", "d/HEAD", "d/config"}, skipped)
		for name, mode := range map[string]os.FileMode{"new": 0o755, "open": 0o664, "run": 0o755, "a": 0o600} {
			info, err := os.Stat(filepath.Join(dir, name))
			require.NoError(t, err)
			require.Equal(t, mode, info.Mode().Perm(), name)
		}
		text, err := os.ReadFile(filepath.Join(dir, ".git/config"))
		require.NoError(t, err)
		require.Equal(t, "[core]", string(text))
	}
	report, err := r.ApplyTree(t.Context(), "r1", "/repo", tree.ApplyOptions{Git: true})
	require.NoError(t, err)
	require.Zero(t, report.Count(tree.Skipped))
	require.FileExists(t, filepath.Join(dir, ".git/hooks/post-checkout"))
}
