//go:build linux

package execute_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/execute"
	"github.com/evalbox/evalbox/internal/treehash"
	"github.com/evalbox/evalbox/internal/treetest"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// workspaceOf is the workspace of a gate directory.
func workspaceOf(t *testing.T, root *os.Root) string {
	t.Helper()
	var m evidence.RunManifest
	require.NoError(t, evidence.Read(root, evidence.RunManifestFile, 1<<20, &m))
	return m.Workspace
}

func hashOf(t *testing.T, dir string) string {
	t.Helper()
	digest, err := treehash.Of(t.Context(), dir, treehash.Options{})
	require.NoError(t, err)
	return digest.Sum
}

func snapshotOf(t *testing.T, root *os.Root) evidence.EnvSnapshot {
	t.Helper()
	var s evidence.EnvSnapshot
	require.NoError(t, evidence.Read(root, evidence.EnvSnapshotFile, 1<<20, &s))
	return s
}

// TestOneCopy: whatever is done to the workspace while gates run, all of them get what
// was hashed. It is reported, since what is said beside the gates is about the workspace.
func TestOneCopy(t *testing.T) {
	temp := t.TempDir()
	f := newFake(t)
	root := gateDir(t, map[string]string{"test_a.py": "assert False"}, func(m *evidence.RunManifest) { m.Mode.Repeats = 2 }, []string{"one"}, []string{"two"})
	file := filepath.Join(workspaceOf(t, root), "test_a.py")
	var got []string
	var sum string
	f.program = func(req sandbox.Request) (*result.Result, error) {
		text, err := os.ReadFile(filepath.Join(req.Trees[0].Source, "test_a.py"))
		require.NoError(t, err)
		got = append(got, string(text))
		sum = hashOf(t, req.Trees[0].Source)
		if len(got) < 4 { // back again at the end, as if nothing had been
			return ended(0), os.WriteFile(file, []byte("assert True"), 0o644)
		}
		return ended(0), os.WriteFile(file, []byte("assert False"), 0o644)
	}
	t.Setenv("TMPDIR", temp)
	run(t, t.Context(), root, f, execute.Options{})
	require.Equal(t, []string{"assert False", "assert False", "assert False", "assert False"}, got)
	require.Equal(t, sum, snapshotOf(t, root).Workspace)
	left, err := os.ReadDir(temp)
	require.NoError(t, err)
	require.Empty(t, left)

	f.program = func(sandbox.Request) (*result.Result, error) {
		return ended(0), os.WriteFile(file, []byte("assert 1"), 0o644)
	}
	root = gateDir(t, nil, func(m *evidence.RunManifest) { m.Workspace = filepath.Dir(file) }, []string{"one"})
	findings, failure := execute.Run(t.Context(), root, f, execute.Options{})
	require.NoError(t, failure)
	require.Len(t, findings, 1)
	require.Equal(t, evidence.ReasonEnvironment, findings[0].Reason)
}

// TestNotCopied: what git administers, what is excluded and what is not a file is neither
// given to gates nor hashed, and may change.
func TestNotCopied(t *testing.T) {
	f := newFake(t)
	root := gateDir(t, map[string]string{".git/lib/m.py": "1", "sub/.git": "gitdir: x", "sub/a": "1", "out/x": "1", "b": "1"},
		func(m *evidence.RunManifest) { m.Exclude = []string{"out/"} }, []string{"one"})
	workspace := workspaceOf(t, root)
	require.NoError(t, syscall.Mkfifo(filepath.Join(workspace, "pipe"), 0o600))
	f.program = func(req sandbox.Request) (*result.Result, error) {
		for _, name := range []string{".git", "sub/.git", "out", "pipe"} {
			require.NoFileExists(t, filepath.Join(req.Trees[0].Source, name))
			require.NoDirExists(t, filepath.Join(req.Trees[0].Source, name))
		}
		require.FileExists(t, filepath.Join(req.Trees[0].Source, "sub/a"))
		return ended(0), errors.Join(os.WriteFile(filepath.Join(workspace, "out/x"), []byte("2"), 0o644),
			os.WriteFile(filepath.Join(workspace, ".git/lib/m.py"), []byte("2"), 0o644))
	}
	run(t, t.Context(), root, f, execute.Options{})
}

// committed makes a repository of a directory.
func committed(t *testing.T, dir string) string {
	t.Helper()
	r, err := gogit.PlainInit(dir, false)
	require.NoError(t, err)
	tree, err := r.Worktree()
	require.NoError(t, err)
	require.NoError(t, tree.AddWithOptions(&gogit.AddOptions{All: true}))
	h, err := tree.Commit("first", &gogit.CommitOptions{Author: &object.Signature{Name: "a", Email: "a@example.com"}})
	require.NoError(t, err)
	return h.String()
}

// TestStrict: the gates get what the commit has, and nothing else.
func TestStrict(t *testing.T) {
	f := newFake(t)
	var m evidence.RunManifest
	root := gateDir(t, map[string]string{"test_a.py": "assert False", ".gitignore": "conftest.py\ncache\n", "lock": "1"},
		func(all *evidence.RunManifest) {
			all.Mode.Strict, all.Uncounted = true, []string{"lock"}
			all.Repo.Commit = committed(t, all.Workspace)
			m = *all
		}, []string{"one"})
	treetest.Write(t, m.Workspace, map[string]string{"conftest.py": "rep.outcome = 'passed'", "cache/x": "x", "lock": "2"})
	f.program = func(req sandbox.Request) (*result.Result, error) {
		names, err := filepath.Glob(filepath.Join(req.Trees[0].Source, "*"))
		require.NoError(t, err)
		require.Len(t, names, 3, names) // .gitignore, lock, test_a.py
		return ended(0), nil
	}
	run(t, t.Context(), root, f, execute.Options{})
	require.Len(t, f.ran, 2)

	// Whatever the workspace holds, the gates get the commit.
	treetest.File(t, filepath.Join(m.Workspace, "test_a.py"), "assert True")
	again := func(commit string) []evidence.Finding {
		root := gateDir(t, nil, func(all *evidence.RunManifest) {
			gates := all.Gates
			*all = m
			all.Gates, all.Repo.Commit = gates, commit
		}, []string{"one"})
		f.ran = nil
		findings, err := execute.Run(t.Context(), root, f, execute.Options{})
		require.NoError(t, err)
		return findings
	}
	f.program = func(req sandbox.Request) (*result.Result, error) {
		text, err := os.ReadFile(filepath.Join(req.Trees[0].Source, "test_a.py"))
		require.NoError(t, err)
		require.Equal(t, "assert False", string(text))
		return ended(0), nil
	}
	require.Empty(t, again(m.Repo.Commit))
	require.NotEmpty(t, f.ran)
	findings := again(strings.Repeat("0", 40))
	require.Len(t, findings, 1)
	require.Equal(t, evidence.ReasonDirty, findings[0].Reason)
	require.Empty(t, f.ran)
}

// TestReadOnlyPaths are mounted over the copy, from it; the outermost are enough. What is
// hidden, a link or not there is not mounted.
func TestReadOnlyPaths(t *testing.T) {
	f := newFake(t)
	root := gateDir(t, map[string]string{"tests/data/a": "1", "tests/.git/x": "1", "secret/key": "1", "file": "1", "other": "1"},
		func(m *evidence.RunManifest) {
			m.ReadOnlyPaths = []string{"tests/data", "tests", "secret/key", "file", "none", "link", "through/data"}
			m.ProtectedPaths = []string{"secret"}
			require.NoError(t, os.Symlink("other", filepath.Join(m.Workspace, "link")))
			require.NoError(t, os.Symlink("tests", filepath.Join(m.Workspace, "through")))
			require.NoError(t, os.Chmod(filepath.Join(m.Workspace, "tests/data/a"), 0o600))
		}, []string{"one"})
	f.program = func(req sandbox.Request) (*result.Result, error) {
		source := req.Trees[0].Source
		require.Equal(t, []sandbox.Mount{
			{Source: filepath.Join(source, "file"), Target: "/repo/file"}, {Source: filepath.Join(source, "tests"), Target: "/repo/tests"},
		}, req.Mounts)
		info, err := os.Stat(filepath.Join(source, "tests/data/a"))
		require.NoError(t, err)
		require.Equal(t, "-rw-r--r--", info.Mode().String(), "the program's user can read it")
		require.NoDirExists(t, filepath.Join(source, "tests/.git"))
		return ended(0), nil
	}
	run(t, t.Context(), root, f, execute.Options{})
	require.Len(t, f.ran, 2)
}

// TestNotApart: a workspace with what changes while gates run is refused, before
// anything does.
func TestNotApart(t *testing.T) {
	for what, c := range map[string]func(t *testing.T, workspace string, f *fake){
		"holds the state directory": func(_ *testing.T, workspace string, f *fake) {
			f.store = stateIn(t, filepath.Join(workspace, "state"))
		},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFake(t)
			root := gateDir(t, map[string]string{"a": "1"}, nil, []string{"one"})
			c(t, workspaceOf(t, root), f)
			findings, err := execute.Run(t.Context(), root, f, execute.Options{})
			require.NoError(t, err)
			require.Len(t, findings, 1)
			require.Contains(t, findings[0].Detail, what)
			require.Empty(t, f.ran)
		})
	}
	// Unless no gate sees it.
	f := newFake(t)
	root := gateDir(t, map[string]string{"a": "1", "state/x": "1"}, func(m *evidence.RunManifest) {
		m.Exclude, f.store = []string{"state"}, stateIn(t, filepath.Join(m.Workspace, "state"))
	}, []string{"one"})
	run(t, t.Context(), root, f, execute.Options{})
}

func stateIn(t *testing.T, dir string) *record.Store {
	t.Helper()
	store, err := record.Open(dir)
	require.NoError(t, err)
	return store
}

// TestTooLarge: the disk limit bounds what is copied.
func TestTooLarge(t *testing.T) {
	f := newFake(t)
	root := gateDir(t, map[string]string{"a": "12345"}, func(m *evidence.RunManifest) { m.TimeoutCaps.DiskBytes = 4 }, []string{"one"})
	findings, failure := execute.Run(t.Context(), root, f, execute.Options{})
	require.NoError(t, failure)
	require.Len(t, findings, 1)
	require.Contains(t, findings[0].Detail, "limits.disk")
	require.Empty(t, f.ran)
}

// TestOutputsOfEachSet are bounded for themselves, so that equal sets keep the same; what
// is not kept is reported.
func TestOutputsOfEachSet(t *testing.T) {
	f := newFake(t)
	many := 1200
	f.program = func(req sandbox.Request) (*result.Result, error) {
		res := ended(0)
		tree := result.Tree{Target: spec.RepoDir, Complete: true}
		dir := f.store.TreeDir(req.ID, 0)
		require.NoError(t, os.MkdirAll(dir, 0o700))
		for i := range many {
			name := fmt.Sprintf("o%04d", i)
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
			tree.Created = append(tree.Created, result.TreeEntry{Path: name, Kind: "file"})
		}
		res.Trees = []result.Tree{tree}
		return res, nil
	}
	manifest := func(m *evidence.RunManifest) { m.ArtifactPaths, m.Mode.Repeats = []string{"o*"}, 2 }
	root := gateDir(t, nil, manifest, []string{"one"})
	run(t, t.Context(), root, f, execute.Options{})
	for _, set := range []string{"", evidence.RepeatPass(2)} {
		var outputs execute.Outputs
		require.NoError(t, evidence.Read(root, evidence.RawFile(set, 1, "outputs.json"), 1<<20, &outputs))
		require.Len(t, outputs.Kept, many)
	}

	many = 2001 // one too many
	root = gateDir(t, nil, func(m *evidence.RunManifest) { m.ArtifactPaths = []string{"o*"} }, []string{"one"})
	findings, failure := execute.Run(t.Context(), root, f, execute.Options{})
	require.NoError(t, failure)
	require.Len(t, findings, 1)
	require.Equal(t, evidence.ReasonIncomplete, findings[0].Reason)
	require.Equal(t, 1, findings[0].Gate)
	require.Contains(t, findings[0].Detail, "o2000 is one too many")
}
