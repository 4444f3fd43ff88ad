//go:build unix

package git

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/stretchr/testify/require"

	"github.com/evalbox/evalbox/internal/fsx"
)

func TestCheckout(t *testing.T) {
	f := newFixture(t)
	f.write("a", "1\r\n")
	f.write("repo/sub/b", "2")
	f.write("repo/empty", "")
	f.write("repo/run", "#!")
	require.NoError(t, os.Chmod(f.path("repo/run"), 0o755))
	require.NoError(t, os.Symlink("../../../etc/passwd", f.path("repo/link")))
	head := f.commit()
	f.write("repo/sub/b", "3")

	into := filepath.Join(t.TempDir(), "new")
	commit, err := Checkout(t.Context(), f.dir, "HEAD", into, nil, 1<<20)
	require.NoError(t, err)
	require.Equal(t, head.String(), commit)
	for name, want := range map[string]string{"a": "1\r\n", "repo/sub/b": "2", "repo/empty": "", "repo/run": "#!"} {
		text, err := os.ReadFile(filepath.Join(into, name))
		require.NoError(t, err)
		require.Equal(t, want, string(text), name)
	}
	target, err := os.Readlink(filepath.Join(into, "repo/link"))
	require.NoError(t, err)
	require.Equal(t, "../../../etc/passwd", target)
	info, err := os.Stat(filepath.Join(into, "repo/run"))
	require.NoError(t, err)
	require.NotZero(t, info.Mode()&0o100)
	info, err = os.Stat(filepath.Join(into, "a"))
	require.NoError(t, err)
	require.Zero(t, info.Mode()&0o111)
	require.NoDirExists(t, filepath.Join(into, ".git"))

	// A directory of the repository is that directory of the revision.
	part := filepath.Join(t.TempDir(), "part")
	_, err = Checkout(t.Context(), f.path("repo"), "HEAD", part, nil, 1<<20)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(part, "sub/b"))
	require.NoFileExists(t, filepath.Join(part, "a"))

	_, err = Checkout(t.Context(), f.dir, "HEAD", into, nil, 1<<20)
	require.ErrorIs(t, err, os.ErrExist)
	require.FileExists(t, filepath.Join(into, "a"), "what was there stays")
	f.write("later/x", "1")
	_, err = Checkout(t.Context(), f.path("later"), "HEAD", filepath.Join(t.TempDir(), "x"), nil, 1<<20)
	require.ErrorContains(t, err, "later: directory not found")
	_, err = Checkout(t.Context(), t.TempDir(), "HEAD", filepath.Join(t.TempDir(), "x"), nil, 1<<20)
	require.ErrorContains(t, err, "is in no git repository")
	var broken *RevisionError
	_, err = Resolve(t.TempDir(), "HEAD")
	require.ErrorAs(t, err, &broken)
	_, err = Resolve(f.dir, "nosuch")
	require.ErrorAs(t, err, &broken)
	require.EqualError(t, err, `revision "nosuch": is not a branch, tag or commit of this repository`)
	resolved, err := Resolve(f.path("repo"), "HEAD")
	require.NoError(t, err)
	require.Equal(t, head.String(), resolved)
	_, err = Checkout(t.Context(), f.dir, "HEAD", filepath.Join(t.TempDir(), "x", "y"), nil, 1<<20)
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestRevisions(t *testing.T) {
	f := newFixture(t)
	var all []plumbing.Hash
	for i := range 5 {
		f.write("n", fmt.Sprint(i))
		all = append(all, f.commit())
	}
	refs := f.repo.Storer
	set := func(name string, h plumbing.Hash) {
		require.NoError(t, refs.SetReference(plumbing.NewHashReference(plumbing.ReferenceName(name), h)))
	}
	set("refs/heads/topic/x", all[1])
	set("refs/tags/v1", all[2])
	set("refs/remotes/origin/main", all[3])
	set("refs/heads/deadbeef", all[0]) // a branch that looks like the beginning of a hash
	// A branch with the name of another commit's beginning is the branch.
	short := all[4].String()[:6]
	set("refs/heads/"+short, all[0])
	annotated, err := f.repo.CreateTag("v2", all[1], &gogit.CreateTagOptions{
		Tagger: &object.Signature{Name: "a", Email: "a"}, Message: "m",
	})
	require.NoError(t, err)
	blob := f.object(plumbing.BlobObject, []byte("x"))
	set("refs/tags/blob", blob)
	merge := f.object(plumbing.CommitObject, fmt.Appendf(nil,
		"tree %s\nparent %s\nparent %s\nauthor a <a> 1 +0000\ncommitter a <a> 1 +0000\n\nm\n", treeOf(t, f, all[4]), all[4], all[1]))
	set("refs/heads/merge", merge)

	for revision, want := range map[string]plumbing.Hash{
		"HEAD": all[4], "master": all[4], "refs/heads/master": all[4], "heads/master": all[4],
		"HEAD~1": all[3], "HEAD~": all[3], "HEAD^": all[3], "HEAD^^": all[2], "HEAD~2^": all[1], "HEAD~4": all[0], "HEAD~0": all[4], "HEAD^0": all[4],
		"topic/x": all[1], "v1": all[2], "v2": all[1], "v2^": all[0], "origin/main": all[3], "deadbeef": all[0],
		short: all[0], all[3].String(): all[3],
		annotated.Hash().String(): all[1], "merge": merge, "merge^1": all[4], "merge^2": all[1], "merge^2~1": all[0],
	} {
		commit, err := Resolve(f.dir, revision)
		require.NoError(t, err, revision)
		require.Equal(t, want.String(), commit, revision)
	}
	for revision, want := range map[string]string{
		"":                       "must be a branch, a tag or the hash of a commit",
		"none":                   "is not a branch, tag or commit of this repository",
		"abc":                    "is not a branch, tag or commit",
		"HEAD~5":                 "has no such parent",
		"HEAD^2":                 "has no such parent",
		"HEAD~1000000":           "must be",
		"merge^3":                "must be",
		"blob":                   "is not a branch, tag or commit",
		all[4].String()[:12]:     "is not a branch, tag or commit",
		strings.Repeat("0", 40):  "is not a branch, tag or commit",
		"master@{1}":             "must be a branch",
		"master:n":               "must be",
		"master..topic/x":        "must be",
		"HEAD^{/x}":              "must be",
		"-x":                     "must be",
		"a b":                    "must be",
		"../../etc/passwd":       "must be",
		strings.Repeat("a", 300): "must be",
	} {
		_, err := Resolve(f.dir, revision)
		require.ErrorContains(t, err, want, revision)
		var unknown *RevisionError
		require.ErrorAs(t, err, &unknown, revision)
	}
}

func treeOf(t *testing.T, f *fixture, h plumbing.Hash) plumbing.Hash {
	t.Helper()
	c, err := f.repo.CommitObject(h)
	require.NoError(t, err)
	return c.TreeHash
}

// TestCheckoutHostile: whatever a tree says, nothing is written outside of the directory or
// through a link, and nothing stays.
func TestCheckoutHostile(t *testing.T) {
	outside := t.TempDir()
	regular := func(name string, h plumbing.Hash) object.TreeEntry {
		return object.TreeEntry{Name: name, Mode: filemode.Regular, Hash: h}
	}
	for name, c := range map[string]struct {
		tree func(f *fixture, blob plumbing.Hash) plumbing.Hash
		want string
	}{
		"parent": {func(f *fixture, blob plumbing.Hash) plumbing.Hash { return f.tree(regular("..", blob)) }, `".." in "": is a name that no file`},
		"self":   {func(f *fixture, blob plumbing.Hash) plumbing.Hash { return f.tree(regular(".", blob)) }, "is a name that no file"},
		"path":   {func(f *fixture, blob plumbing.Hash) plumbing.Hash { return f.tree(regular("../x", blob)) }, "is a name that no file"},
		"root":   {func(f *fixture, blob plumbing.Hash) plumbing.Hash { return f.tree(regular("/etc/x", blob)) }, "is a name that no file"},
		".git":   {func(f *fixture, blob plumbing.Hash) plumbing.Hash { return f.tree(regular(".git", blob)) }, "is a name that no file"},
		".GIT":   {func(f *fixture, blob plumbing.Hash) plumbing.Hash { return f.tree(regular(".GiT", blob)) }, "is a name that no file"},
		".git .": {func(f *fixture, blob plumbing.Hash) plumbing.Hash { return f.tree(regular(".git . ", blob)) }, "is a name that no file"},
		"git~1":  {func(f *fixture, blob plumbing.Hash) plumbing.Hash { return f.tree(regular("GIT~1", blob)) }, "is a name that no file"},
		"stream": {func(f *fixture, blob plumbing.Hash) plumbing.Hash {
			return f.tree(regular(".git::$INDEX_ALLOCATION", blob))
		}, "is a name that no file"},
		"unseen": {func(f *fixture, blob plumbing.Hash) plumbing.Hash { return f.tree(regular(".g\u200cit", blob)) }, "is a name that no file"},
		"deep .git": {func(f *fixture, blob plumbing.Hash) plumbing.Hash {
			return f.tree(object.TreeEntry{Name: "a", Mode: filemode.Dir, Hash: f.tree(regular(".git", blob))})
		}, `".git" in "a": is a name that no file`},
		"link and directory": {func(f *fixture, blob plumbing.Hash) plumbing.Hash {
			link := f.object(plumbing.BlobObject, []byte(outside))
			return f.tree(object.TreeEntry{Name: "a", Mode: filemode.Symlink, Hash: link},
				object.TreeEntry{Name: "a", Mode: filemode.Dir, Hash: f.tree(regular("x", blob))})
		}, `"a": is there twice`},
		"twice": {func(f *fixture, blob plumbing.Hash) plumbing.Hash {
			return f.tree(regular("a", blob), regular("a", blob))
		}, `"a": is there twice`},
		"deep": {func(f *fixture, _ plumbing.Hash) plumbing.Hash {
			h := f.tree()
			for range maxDepth + 2 {
				h = f.tree(object.TreeEntry{Name: "d", Mode: filemode.Dir, Hash: h})
			}
			return h
		}, "is nested deeper than 200 directories"},
		"not there": {func(f *fixture, _ plumbing.Hash) plumbing.Hash {
			return f.tree(regular("a", plumbing.NewHash(strings.Repeat("1", 40))))
		}, `"a": object not found`},
		"a tree as file": {func(f *fixture, blob plumbing.Hash) plumbing.Hash {
			return f.tree(regular("a", f.tree(regular("b", blob))))
		}, "object not found"},
		"a file as tree": {func(f *fixture, blob plumbing.Hash) plumbing.Hash {
			return f.tree(object.TreeEntry{Name: "a", Mode: filemode.Dir, Hash: blob})
		}, "object not found"},
		"long link": {func(f *fixture, _ plumbing.Hash) plumbing.Hash {
			return f.tree(object.TreeEntry{Name: "a", Mode: filemode.Symlink, Hash: f.object(plumbing.BlobObject, bytes.Repeat([]byte("a"), maxPath+1))})
		}, "is a link to nowhere"},
		"link nowhere": {func(f *fixture, _ plumbing.Hash) plumbing.Hash {
			return f.tree(object.TreeEntry{Name: "a", Mode: filemode.Symlink, Hash: f.object(plumbing.BlobObject, nil)})
		}, "is a link to nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.commitTree("evil", c.tree(f, f.object(plumbing.BlobObject, []byte("x"))))
			parent := t.TempDir()
			_, err := Checkout(t.Context(), f.dir, "evil", filepath.Join(parent, "into"), nil, 1<<20)
			require.ErrorContains(t, err, c.want)
			left, err := os.ReadDir(outside)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

// TestCheckoutBomb: four trees that stand for 10^9 files.
func TestCheckoutBomb(t *testing.T) {
	f := newFixture(t)
	h := f.tree(object.TreeEntry{Name: "x", Mode: filemode.Regular, Hash: f.object(plumbing.BlobObject, []byte("x"))})
	for range 3 {
		var entries []object.TreeEntry
		for i := range 1000 {
			entries = append(entries, object.TreeEntry{Name: fmt.Sprint(i), Mode: filemode.Dir, Hash: h})
		}
		h = f.tree(entries...)
	}
	f.commitTree("evil", h)
	r, commit, err := resolve(f.dir, "evil")
	require.NoError(t, err)
	defer r.close()
	visited := 0
	err = r.walkTree(t.Context(), commit, func(string, object.TreeEntry) (bool, error) {
		visited++
		return true, nil
	})
	require.EqualError(t, err, "the commit has more than 500000 files and directories")
	require.LessOrEqual(t, visited, maxFiles)
}

// TestCheckoutWide: the entries of a tree count before the trees in it are read. Otherwise
// each of many nested trees could hold the limit in memory.
func TestCheckoutWide(t *testing.T) {
	f := newFixture(t)
	file := f.object(plumbing.BlobObject, []byte("x"))
	entries := []object.TreeEntry{{Name: "a", Mode: filemode.Dir, Hash: plumbing.NewHash("1234567890123456789012345678901234567890")}}
	for i := range maxFiles {
		entries = append(entries, object.TreeEntry{Name: fmt.Sprintf("b%06d", i), Mode: filemode.Regular, Hash: file})
	}
	f.commitTree("evil", f.tree(entries...))
	_, err := Checkout(t.Context(), f.dir, "evil", filepath.Join(t.TempDir(), "into"), nil, 1<<20)
	require.ErrorContains(t, err, "more than 500000 files and directories")
}

// loose writes an object file by hand, under a hash that it need not have.
func (f *fixture) loose(h plumbing.Hash, write func(w io.Writer)) {
	f.t.Helper()
	var file bytes.Buffer
	w := zlib.NewWriter(&file)
	write(w)
	require.NoError(f.t, w.Close())
	f.write(".git/objects/"+h.String()[:2]+"/"+h.String()[2:], file.String())
}

// TestDamagedObjects: sizes that are not true, contents that are not what the hash says,
// and what has no end.
func TestDamagedObjects(t *testing.T) {
	zeros := func(w io.Writer, n int64) {
		_, err := io.CopyN(w, zeroReader{}, n)
		require.NoError(t, err)
	}
	for name, c := range map[string]struct {
		write func(w io.Writer)
		want  string
	}{
		"other content": {func(w io.Writer) { fmt.Fprint(w, "blob 3\x00abc") }, "its content does not have that hash"},
		"too long":      {func(w io.Writer) { fmt.Fprint(w, "blob 3\x00"); zeros(w, 64<<20) }, "its header is not that of its content"},
		"too short":     {func(w io.Writer) { fmt.Fprint(w, "blob 300\x00abc") }, "its header is not that of its content"},
		"huge":          {func(w io.Writer) { fmt.Fprintf(w, "blob %d\x00", int64(maxObject)+1) }, "more than 268435456 bytes"},
		"negative":      {func(w io.Writer) { fmt.Fprint(w, "blob -1\x00") }, "its header is not"},
		"no header":     {func(w io.Writer) { zeros(w, 1); fmt.Fprint(w, "x") }, "is damaged"},
		"endless":       {func(w io.Writer) { fmt.Fprint(w, strings.Repeat("b", 1<<20)) }, "its header is not"},
		"other kind":    {func(w io.Writer) { fmt.Fprint(w, "blub 3\x00abc") }, "is damaged"},
		"empty":         {func(io.Writer) {}, "is damaged"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			h := plumbing.NewHash("1234567890123456789012345678901234567890")
			f.loose(h, c.write)
			f.commitTree("evil", f.tree(object.TreeEntry{Name: "a", Mode: filemode.Regular, Hash: h}))
			_, err := Checkout(t.Context(), f.dir, "evil", filepath.Join(t.TempDir(), "into"), nil, 1<<20)
			require.ErrorContains(t, err, c.want)
		})
	}
	t.Run("bomb", func(t *testing.T) {
		f := newFixture(t)
		h := plumbing.NewHash("1234567890123456789012345678901234567890")
		f.loose(h, func(w io.Writer) { fmt.Fprint(w, "blob 3\x00"); zeros(w, maxObject+100) })
		f.commitTree("evil", f.tree(object.TreeEntry{Name: "a", Mode: filemode.Regular, Hash: h}))
		_, err := Checkout(t.Context(), f.dir, "evil", filepath.Join(t.TempDir(), "into"), nil, 1<<20)
		require.ErrorContains(t, err, "is damaged")
	})
	t.Run("huge tree", func(t *testing.T) { // an entry needs several times its bytes in memory
		f := newFixture(t)
		h := plumbing.NewHash("1234567890123456789012345678901234567890")
		f.loose(h, func(w io.Writer) { fmt.Fprintf(w, "tree %d\x00", maxSmall+1); zeros(w, maxSmall+1) })
		f.commitTree("evil", h)
		_, err := Checkout(t.Context(), f.dir, "evil", filepath.Join(t.TempDir(), "into"), nil, 1<<20)
		require.ErrorContains(t, err, "more than 67108864 bytes")
	})
	t.Run("commit", func(t *testing.T) {
		f := newFixture(t)
		h := plumbing.NewHash("1234567890123456789012345678901234567890")
		f.loose(h, func(w io.Writer) { fmt.Fprint(w, "commit 3\x00abc") })
		require.NoError(t, f.repo.Storer.SetReference(plumbing.NewHashReference("refs/heads/evil", h)))
		_, err := Checkout(t.Context(), f.dir, "evil", filepath.Join(t.TempDir(), "into"), nil, 1<<20)
		require.Error(t, err)
	})
}

type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestCheckoutLimit: the files of a commit have no more bytes than a workspace may have.
func TestCheckoutLimit(t *testing.T) {
	f := newFixture(t)
	f.write("a", "12345")
	f.commit()
	_, err := Checkout(t.Context(), f.dir, "HEAD", filepath.Join(t.TempDir(), "into"), nil, 4)
	var limit *fsx.LimitError
	require.ErrorAs(t, err, &limit)
}

// TestResolveHashOnly: a full hash stands for its object alone. A repository without that
// commit can have a branch of this name.
func TestResolveHashOnly(t *testing.T) {
	f := newFixture(t)
	f.write("a", "1")
	other := f.commit()
	hash := "1234567890123456789012345678901234567890"
	require.NoError(t, f.repo.Storer.SetReference(plumbing.NewHashReference(plumbing.NewBranchReferenceName(hash), other)))
	for _, revision := range []string{hash, hash + "~0", hash + "^0"} {
		_, err := Resolve(f.dir, revision)
		var unknown *RevisionError
		require.ErrorAs(t, err, &unknown, revision)
	}
	got, err := Resolve(f.dir, other.String())
	require.NoError(t, err)
	require.Equal(t, other.String(), got)
}
