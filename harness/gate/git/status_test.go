//go:build unix

package git

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// fixture is a repository of a test.
type fixture struct {
	t    *testing.T
	dir  string
	repo *gogit.Repository
	n    int
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	repo, err := gogit.PlainInit(dir, false)
	require.NoError(t, err)
	return &fixture{t: t, dir: dir, repo: repo}
}

func (f *fixture) path(name string) string { return filepath.Join(f.dir, filepath.FromSlash(name)) }

func (f *fixture) write(name, text string) {
	f.t.Helper()
	require.NoError(f.t, os.MkdirAll(filepath.Dir(f.path(name)), 0o755))
	require.NoError(f.t, os.WriteFile(f.path(name), []byte(text), 0o644))
}

// commit commits everything.
func (f *fixture) commit() plumbing.Hash {
	f.t.Helper()
	w, err := f.repo.Worktree()
	require.NoError(f.t, err)
	require.NoError(f.t, w.AddWithOptions(&gogit.AddOptions{All: true}))
	f.n++
	h, err := w.Commit(fmt.Sprint("commit ", f.n), &gogit.CommitOptions{
		AllowEmptyCommits: true, Author: &object.Signature{Name: "a", Email: "a@example.com", When: time.Unix(int64(f.n), 0)},
	})
	require.NoError(f.t, err)
	return h
}

// object stores an object as it is.
func (f *fixture) object(kind plumbing.ObjectType, content []byte) plumbing.Hash {
	f.t.Helper()
	o := &plumbing.MemoryObject{}
	o.SetType(kind)
	_, err := o.Write(content)
	require.NoError(f.t, err)
	h, err := f.repo.Storer.SetEncodedObject(o)
	require.NoError(f.t, err)
	return h
}

// tree stores a tree of any names, in the order that is given.
func (f *fixture) tree(entries ...object.TreeEntry) plumbing.Hash {
	f.t.Helper()
	var text bytes.Buffer
	for _, e := range entries {
		fmt.Fprintf(&text, "%o %s\x00", uint32(e.Mode), e.Name)
		text.Write(e.Hash[:])
	}
	return f.object(plumbing.TreeObject, text.Bytes())
}

// commitTree stores a commit of a tree, as branch.
func (f *fixture) commitTree(branch string, tree plumbing.Hash) plumbing.Hash {
	f.t.Helper()
	h := f.object(plumbing.CommitObject, fmt.Appendf(nil,
		"tree %s\nauthor a <a@example.com> 1 +0000\ncommitter a <a@example.com> 1 +0000\n\nx\n", tree))
	require.NoError(f.t, f.repo.Storer.SetReference(plumbing.NewHashReference(plumbing.NewBranchReferenceName(branch), h)))
	return h
}

func (f *fixture) status(dir string, ignore ...string) (evidence.Repo, []string) {
	f.t.Helper()
	r, differ, err := Status(f.t.Context(), f.path(dir), ignore)
	require.NoError(f.t, err)
	return r, differ
}

func TestStatusClean(t *testing.T) {
	f := newFixture(t)
	f.write("a", "1")
	f.write("sub/deep/b", "2")
	f.write(".gitignore", "*.log\n/out/\n!keep.log\n")
	f.write("sub/.gitignore", "local\n")
	require.NoError(t, os.Symlink("a", f.path("link")))
	require.NoError(t, os.Symlink("../../../etc", f.path("far")))
	f.write("run.sh", "x")
	require.NoError(t, os.Chmod(f.path("run.sh"), 0o755))
	head := f.commit()
	f.write("x.log", "ignored")
	f.write("sub/local", "ignored")
	f.write("out/x/y", "ignored")
	require.NoError(t, os.Mkdir(f.path("empty"), 0o755))
	require.NoError(t, syscall.Mkfifo(f.path("pipe"), 0o644))
	for dir, root := range map[string]string{"": ".", "sub": "..", "sub/deep": "../.."} {
		r, differ := f.status(dir)
		require.Equal(t, evidence.Repo{Commit: head.String(), Root: root}, r, dir)
		require.Empty(t, differ)
	}
	// A new time alone is not a change.
	require.NoError(t, os.Chtimes(f.path("a"), time.Unix(5, 0), time.Unix(5, 0)))
	r, _ := f.status("")
	require.False(t, r.Dirty)
}

func TestStatusDirty(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f *fixture)
		want   []string
	}{
		"changed":   {func(f *fixture) { f.write("a", "2") }, []string{"a"}},
		"untracked": {func(f *fixture) { f.write("new", "") }, []string{"new"}},
		"below":     {func(f *fixture) { f.write("sub/more/new", "") }, []string{"sub/more/new"}},
		"deleted":   {func(f *fixture) { require.NoError(f.t, os.Remove(f.path("a"))) }, []string{"a"}},
		"mode":      {func(f *fixture) { require.NoError(f.t, os.Chmod(f.path("a"), 0o755)) }, []string{"a"}},
		"link": {func(f *fixture) {
			require.NoError(f.t, os.Remove(f.path("link")))
			require.NoError(f.t, os.Symlink("b", f.path("link")))
		}, []string{"link"}},
		"file to link": {func(f *fixture) {
			f.write("other", "1")
			require.NoError(f.t, os.Remove(f.path("a")))
			require.NoError(f.t, os.Symlink("other", f.path("a")))
		}, []string{"a", "other"}},
		"file to directory": {func(f *fixture) {
			require.NoError(f.t, os.Remove(f.path("a")))
			f.write("a/b", "1")
		}, []string{"a", "a/b"}},
		"file to pipe": {func(f *fixture) {
			require.NoError(f.t, os.Remove(f.path("a")))
			require.NoError(f.t, syscall.Mkfifo(f.path("a"), 0o644))
		}, []string{"a"}},
		// The directory has another content by the same names: nothing is followed.
		"folder to link": {func(f *fixture) {
			require.NoError(f.t, os.Rename(f.path("sub"), f.path("elsewhere")))
			require.NoError(f.t, os.Symlink("elsewhere", f.path("sub")))
		}, []string{"elsewhere/b", "sub", "sub/b"}},
		"ignored but tracked": {func(f *fixture) {
			f.write(".gitignore", ".gitignore\na\nsub\n")
			f.write("a", "2")
			f.write("sub/b", "3")
			f.write("sub/c", "ignored")
		}, []string{"a", "sub/b"}},
		// What is in no commit hides nothing.
		"hidden without telling": {func(f *fixture) {
			f.write(".git/info/exclude", "conftest.py\n")
			f.write("conftest.py", "rep.outcome = 'passed'")
		}, []string{"conftest.py"}},
		"repository inside": {func(f *fixture) {
			_, err := gogit.PlainInit(f.path("inner"), false)
			require.NoError(f.t, err)
		}, []string{"inner/.git"}},
		"staged": {func(f *fixture) {
			f.write("a", "2")
			w, err := f.repo.Worktree()
			require.NoError(f.t, err)
			_, err = w.Add("a")
			require.NoError(f.t, err)
		}, []string{"a"}},
		"not looked at": {func(f *fixture) { // what git update-index --skip-worktree does
			idx, err := f.repo.Storer.Index()
			require.NoError(f.t, err)
			for _, e := range idx.Entries {
				e.SkipWorktree = true
			}
			idx.Version = 3
			require.NoError(f.t, f.repo.Storer.SetIndex(idx))
			f.write("a", "2")
		}, []string{"a"}},
		"same size and time": {func(f *fixture) {
			info, err := os.Stat(f.path("a"))
			require.NoError(f.t, err)
			f.write("a", "2")
			require.NoError(f.t, os.Chtimes(f.path("a"), info.ModTime(), info.ModTime()))
		}, []string{"a"}},
		"ignore file is a link": {func(f *fixture) {
			f.write("../patterns", "new\n")
			require.NoError(f.t, os.Symlink("../patterns", f.path(".gitignore")))
			f.write("new", "")
		}, []string{".gitignore", "new"}},
		"ignore file is a pipe": {func(f *fixture) {
			require.NoError(f.t, syscall.Mkfifo(f.path(".gitignore"), 0o644))
			f.write("new", "")
		}, []string{"new"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.write("a", "1")
			f.write("sub/b", "2")
			require.NoError(t, os.Symlink("a", f.path("link")))
			f.commit()
			c.change(f)
			r, differ := f.status("")
			require.Equal(t, c.want, differ)
			require.True(t, r.Dirty)
		})
	}
}

// TestStatusIgnores: what is given does not count, and the rest of
// the repository does not count for a directory of it.
func TestStatusIgnores(t *testing.T) {
	f := newFixture(t)
	f.write("repo/a", "1")
	f.write("b", "1")
	f.commit()
	f.write("b", "2")
	f.write("repo/gate/x/y", "out")
	f.write("repo/wish.lock.json", "{}")
	r, differ := f.status("repo", "gate", "wish.lock.json", "../b")
	require.False(t, r.Dirty, differ)
	_, differ = f.status("repo", "gate/x")
	require.Equal(t, []string{"wish.lock.json"}, differ)
	_, differ = f.status("", "repo")
	require.Equal(t, []string{"b"}, differ)
	// Also what is tracked and gone.
	require.NoError(t, os.Remove(f.path("repo/a")))
	_, differ = f.status("repo", "gate", "wish.lock.json", "a")
	require.Empty(t, differ)
	// Through a link to the directory.
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(f.path("repo"), link))
	_, differ, err := Status(t.Context(), link, []string{"gate", "wish.lock.json", "a"})
	require.NoError(t, err)
	require.Empty(t, differ)
}

func TestStatusWithoutCommit(t *testing.T) {
	none, _, err := Status(t.Context(), t.TempDir(), nil)
	require.NoError(t, err)
	require.Equal(t, evidence.Repo{}, none)

	f := newFixture(t)
	r, _ := f.status("")
	require.Equal(t, evidence.Repo{Root: "."}, r)
	f.write("a", "1")
	r, differ := f.status("")
	require.Equal(t, evidence.Repo{Dirty: true, Root: "."}, r)
	require.Equal(t, []string{"a"}, differ)
}

// TestStatusWorktree: a further work tree has its files beside a file .git.
func TestStatusWorktree(t *testing.T) {
	f := newFixture(t)
	f.write("a", "1")
	head := f.commit()
	idx, err := os.ReadFile(f.path(".git/index"))
	require.NoError(t, err)

	tree := t.TempDir()
	f.write(".git/worktrees/w/HEAD", head.String()+"\n")
	f.write(".git/worktrees/w/commondir", "../..\n")
	f.write(".git/worktrees/w/index", string(idx))
	require.NoError(t, os.WriteFile(filepath.Join(tree, ".git"), []byte("gitdir: "+f.path(".git/worktrees/w")+"\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(tree, "a"), []byte("1"), 0o644))
	r, _, err := Status(t.Context(), tree, nil)
	require.NoError(t, err)
	require.Equal(t, evidence.Repo{Commit: head.String(), Root: "."}, r)
	require.NoError(t, os.WriteFile(filepath.Join(tree, "a"), []byte("2"), 0o644))
	_, differ, err := Status(t.Context(), tree, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"a"}, differ)
	commit, err := Checkout(t.Context(), tree, "HEAD", filepath.Join(t.TempDir(), "into"), nil, 1<<20)
	require.NoError(t, err)
	require.Equal(t, head.String(), commit)
}

// TestSubmodule: the files of a submodule are in another repository, and are not read.
func TestSubmodule(t *testing.T) {
	f := newFixture(t)
	f.write("a", "1")
	f.write("part/m/x", "1")
	require.NoError(t, os.Mkdir(f.path("part/m/.git"), 0o755))
	head := f.commitTree("master", f.tree(
		object.TreeEntry{Name: "a", Mode: filemode.Regular, Hash: f.object(plumbing.BlobObject, []byte("1"))},
		object.TreeEntry{Name: "part", Mode: filemode.Dir, Hash: f.tree(
			object.TreeEntry{Name: "m", Mode: filemode.Submodule, Hash: plumbing.NewHash(strings.Repeat("1", 40))})},
	))
	_, differ := f.status("")
	require.Equal(t, []string{"part/m"}, differ)
	_, differ = f.status("part", "m")
	require.Empty(t, differ)
	into := filepath.Join(t.TempDir(), "into")
	_, err := Checkout(t.Context(), f.path("part"), "master", into, nil, 1<<20)
	var refused *RevisionError
	require.ErrorAs(t, err, &refused)
	require.ErrorContains(t, err, `has the submodule "m"`)
	into = filepath.Join(t.TempDir(), "into")
	_, err = Checkout(t.Context(), f.dir, "master", into, []string{"part/m/"}, 1<<20)
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Join(into, "part/m"))

	// One that was never fetched.
	require.NoError(t, os.RemoveAll(f.path("part/m")))
	_, differ = f.status("")
	require.Equal(t, []string{"part/m"}, differ, "gone")
	require.NoError(t, os.Mkdir(f.path("part/m"), 0o755))
	r, differ := f.status("")
	require.Equal(t, evidence.Repo{Commit: head.String(), Root: "."}, r, differ)
	into = filepath.Join(t.TempDir(), "into")
	_, err = Checkout(t.Context(), f.dir, "master", into, nil, 1<<20)
	require.NoError(t, err)
	require.DirExists(t, filepath.Join(into, "part/m"))
}

func TestStatusErrors(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f *fixture)
		want   string
	}{
		"no HEAD": {func(f *fixture) { require.NoError(f.t, os.Remove(f.path(".git/HEAD"))) }, "is not a repository: it has no HEAD"},
		"HEAD pipe": {func(f *fixture) {
			require.NoError(f.t, os.Remove(f.path(".git/HEAD")))
			require.NoError(f.t, syscall.Mkfifo(f.path(".git/HEAD"), 0o644))
		}, "is not a repository: it has no HEAD"},
		"extension": {func(f *fixture) {
			f.write(".git/config", "[core]\n\trepositoryformatversion = 1\n[extensions]\n\tobjectformat = sha256\n")
		}, "is not supported"},
		"version":     {func(f *fixture) { f.write(".git/config", "[core]\n\trepositoryformatversion = 9\n") }, `core.repositoryformatversion "9" is not supported`},
		"config":      {func(f *fixture) { f.write(".git/config", "[core\n") }, "config: "},
		"ignore file": {func(f *fixture) { f.write(".gitignore", strings.Repeat("a", maxIgnoreFile+1)) }, "has more than 1048576 bytes"},
		"patterns":    {func(f *fixture) { f.write(".gitignore", strings.Repeat("a\n", maxPatterns+1)) }, "more than 20000 patterns"},
		"pointer":     {func(f *fixture) { require.NoError(f.t, os.RemoveAll(f.path(".git"))); f.write(".git", "elsewhere") }, "does not say where the repository is"},
		"pointer away": {func(f *fixture) {
			require.NoError(f.t, os.RemoveAll(f.path(".git")))
			f.write(".git", "gitdir: /nowhere/git\n")
		}, "no such file or directory"},
		"pointer long": {func(f *fixture) {
			require.NoError(f.t, os.RemoveAll(f.path(".git")))
			f.write(".git", "gitdir: "+strings.Repeat("a", 2*maxPath))
		}, "has more than"},
		"commit gone": {func(f *fixture) {
			f.write(".git/refs/heads/master", strings.Repeat("1", 40)+"\n")
		}, "commit 1111111111111111111111111111111111111111: object not found"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.write("a", "1")
			f.commit()
			c.change(f)
			_, _, err := Status(t.Context(), f.dir, nil)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, _, err := Status(t.Context(), filepath.Join(t.TempDir(), "none"), nil)
	require.ErrorIs(t, err, os.ErrNotExist)

	f := newFixture(t)
	f.write("a", "1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = Status(ctx, f.dir, nil)
	require.ErrorIs(t, err, context.Canceled)
}

// TestNothingIsExecuted: whatever a repository says to run, nothing of it is run, and
// nothing in it is changed.
func TestNothingIsExecuted(t *testing.T) {
	f := newFixture(t)
	marker := filepath.Join(t.TempDir(), "ran")
	program := f.path(".git/evil.sh")
	f.write(".git/evil.sh", "#!/bin/sh\necho \"$0\" >> "+marker+"\ncat\n")
	require.NoError(t, os.Chmod(program, 0o755))
	f.write("a.txt", "1")
	f.write(".gitattributes", "* filter=evil diff=evil merge=evil text eol=crlf\n")
	first := f.commit()
	f.write("a.txt", "2")
	f.commit()
	f.write(".git/config", fmt.Sprintf(`[core]
	repositoryformatversion = 0
	fsmonitor = %[1]s
	hooksPath = %[2]s
	sshCommand = %[1]s
	pager = %[1]s
	editor = %[1]s
	gitProxy = %[1]s
	askPass = %[1]s
[filter "evil"]
	clean = %[1]s
	smudge = %[1]s
	process = %[1]s
	required = true
[diff]
	external = %[1]s
[diff "evil"]
	command = %[1]s
	textconv = %[1]s
[include]
	path = %[3]s
[uploadpack]
	packObjectsHook = %[1]s
[credential]
	helper = %[1]s
[gpg]
	program = %[1]s
`, program, f.path(".git/hooks"), f.path(".git/more")))
	f.write(".git/more", "[core]\n\tfsmonitor = "+program+"\n")
	for _, hook := range []string{"post-checkout", "pre-commit", "post-index-change", "fsmonitor-watchman", "reference-transaction"} {
		f.write(".git/hooks/"+hook, "#!/bin/sh\necho "+hook+" >> "+marker+"\n")
		require.NoError(t, os.Chmod(f.path(".git/hooks/"+hook), 0o755))
	}
	before := listing(t, f.path(".git"))
	r, _ := f.status("")
	require.False(t, r.Dirty)
	into := filepath.Join(t.TempDir(), "into")
	commit, err := Checkout(t.Context(), f.dir, "HEAD~1", into, nil, 1<<20)
	require.NoError(t, err)
	require.Equal(t, first.String(), commit)
	text, err := os.ReadFile(filepath.Join(into, "a.txt"))
	require.NoError(t, err)
	require.Equal(t, "1", string(text))
	_, _, err = Compare(t.Context(), into, f.dir, nil)
	require.NoError(t, err)
	require.NoFileExists(t, marker)
	require.Equal(t, before, listing(t, f.path(".git")))
	// The program would have left the marker.
	require.NotEmpty(t, before)
}

// listing is every file with its size and time.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	require.NoError(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		require.NoError(t, err)
		all[path] = fmt.Sprint(info.Size(), info.ModTime(), info.Mode())
		return nil
	}))
	return all
}

// TestAlternates: the objects of another repository of this machine are not read.
func TestAlternates(t *testing.T) {
	f := newFixture(t)
	f.write("a", "1")
	f.commit()
	f.write(".git/objects/info/alternates", "/elsewhere/.git/objects\n")
	_, _, err := Status(t.Context(), f.dir, nil)
	require.ErrorContains(t, err, "borrows objects from another repository")
}

func TestPacked(t *testing.T) {
	f := newFixture(t)
	var text strings.Builder
	for i := range 200 {
		fmt.Fprintf(&text, "line %d of a text that grows\n", i)
		f.write("grows", text.String())
		f.write(fmt.Sprint("d/", i), fmt.Sprint(i))
		if i%20 == 0 {
			f.commit()
		}
	}
	head := f.commit()
	require.NoError(t, f.repo.RepackObjects(&gogit.RepackConfig{}))
	packs, err := filepath.Glob(f.path(".git/objects/pack/*.pack"))
	require.NoError(t, err)
	require.NotEmpty(t, packs)
	loose, err := filepath.Glob(f.path(".git/objects/??/*"))
	require.NoError(t, err)
	require.Empty(t, loose)
	r, differ := f.status("")
	require.Equal(t, evidence.Repo{Commit: head.String(), Root: "."}, r, differ)
	into := filepath.Join(t.TempDir(), "into")
	_, err = Checkout(t.Context(), f.dir, head.String(), into, nil, 1<<20)
	require.NoError(t, err)
	changes, diff, err := Compare(t.Context(), into, f.dir, nil)
	require.NoError(t, err)
	require.Empty(t, changes.Files)
	require.Empty(t, diff)
}

func TestShallow(t *testing.T) {
	f := newFixture(t)
	f.write("a", "1")
	first := f.commit()
	f.write("a", "2")
	second := f.commit()
	require.NoError(t, os.Remove(f.path(".git/objects/"+first.String()[:2]+"/"+first.String()[2:])))
	f.write(".git/shallow", second.String()+"\n")
	r, _ := f.status("")
	require.Equal(t, second.String(), r.Commit)
	_, err := Checkout(t.Context(), f.dir, "HEAD~1", filepath.Join(t.TempDir(), "x"), nil, 1<<20)
	require.ErrorContains(t, err, `revision "HEAD~1": is not here, because the clone is shallow`)
}

func TestConfigOfOtherFormsIsRead(t *testing.T) {
	f := newFixture(t)
	f.write("a", "1")
	f.commit()
	cfg, err := f.repo.Config()
	require.NoError(t, err)
	cfg.Remotes["origin"] = &config.RemoteConfig{Name: "origin", URLs: []string{"https://example.com/x.git"}}
	require.NoError(t, f.repo.SetConfig(cfg))
	r, _ := f.status("")
	require.False(t, r.Dirty)
}
