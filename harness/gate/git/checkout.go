package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/evalbox/evalbox/internal/fsx"
)

// A RevisionError is a revision that a repository does not have.
type RevisionError struct {
	Revision, Rule string
}

func (e *RevisionError) Error() string { return fmt.Sprintf("revision %.200q: %s", e.Revision, e.Rule) }

// revisionForm is a name with ~N and ^N behind it.
var revisionForm = regexp.MustCompile(`^[^\x00-\x20~^:?*@{\[\\\x7f.-][^\x00-\x20~^:?*{\[\\\x7f]{0,254}(?:~[0-9]{0,4}|\^[0-2]?)*$`)

// Resolve returns the commit that a revision stands for. A [*RevisionError] says that the
// repository of dir does not have it, or that there is no repository.
func Resolve(dir, revision string) (commit string, err error) {
	r, h, err := resolve(dir, revision)
	if err != nil {
		return "", err
	}
	r.close()
	return h.String(), nil
}

// resolve opens the repository of a directory and finds a commit in it.
func resolve(dir, revision string) (*repository, plumbing.Hash, error) {
	refuse := func(rule string) (*repository, plumbing.Hash, error) {
		return nil, plumbing.ZeroHash, &RevisionError{revision, rule}
	}
	r, err := open(dir)
	if err != nil {
		return nil, plumbing.ZeroHash, err
	}
	if r == nil {
		return refuse(dir + " is in no git repository")
	}
	if !revisionForm.MatchString(revision) || strings.Contains(revision, "..") {
		r.close()
		return refuse("must be a branch, a tag or the hash of a commit, with ~N or ^N behind it")
	}
	h, err := (&gogit.Repository{Storer: r}).ResolveRevision(plumbing.Revision(revision))
	switch {
	case err == nil:
		return r, *h, nil
	case errors.Is(err, plumbing.ErrReferenceNotFound):
		err = &RevisionError{revision, "is not a branch, tag or commit of this repository"}
	case errors.Is(err, io.EOF) || errors.Is(err, plumbing.ErrObjectNotFound):
		err = &RevisionError{revision, "has no such parent here"}
		if info, statErr := r.common.Lstat("shallow"); statErr == nil && info.Size() > 0 {
			err = &RevisionError{revision, "is not here, because the clone is shallow: fetch more of its history"}
		}
	}
	r.close()
	return nil, plumbing.ZeroHash, err
}

// Checkout writes the files that a revision has in dir to the directory into, which must not
// exist, and returns the revision's commit. exclude lists paths relative to dir that are left
// out, and limit bounds the bytes of all files. Files keep whether they may be executed. Links are written as links and never
// followed. Nothing is converted. A fetched submodule has the files of its recorded commit;
// any other is an empty directory.
func Checkout(ctx context.Context, dir, revision, into string, exclude []string, limit int64) (commit string, err error) {
	r, h, err := resolve(dir, revision)
	if err != nil {
		return "", err
	}
	defer r.close()
	if err := os.Mkdir(into, 0o755); err != nil {
		return "", err
	}
	root, err := os.OpenRoot(into)
	if err != nil {
		return "", err
	}
	defer root.Close()
	w := &writer{root: root, files: maxFiles, bytes: limit, limit: limit, leave: map[string]bool{}}
	for _, name := range exclude {
		w.leave[path.Clean(name)] = true
	}
	if err := w.commit(ctx, r, h, "", 0); err != nil {
		return "", fmt.Errorf("checkout %s: %w", h, err)
	}
	return h.String(), nil
}

// writer writes the entries of commits.
type writer struct {
	root  *os.Root
	leave map[string]bool
	// files and bytes are how many more there may be.
	files        int
	bytes, limit int64
}

// commit writes the files of a commit below at.
func (w *writer) commit(ctx context.Context, r *repository, h plumbing.Hash, at string, nested int) error {
	return r.walkTree(ctx, h, func(name string, e object.TreeEntry) (bool, error) {
		to := path.Join(at, name)
		if w.leave[to] {
			return false, nil
		}
		if w.files--; w.files < 0 {
			return false, fmt.Errorf("has more than %d files and directories", maxFiles)
		}
		if e.Mode != filemode.Submodule {
			return true, w.entry(r, to, e)
		}
		if err := w.root.Mkdir(to, 0o755); err != nil {
			return false, err
		}
		inner, err := r.inner(path.Join(r.prefix, name), nested)
		if err != nil || inner == nil {
			return false, err
		}
		defer inner.close()
		if _, err := inner.EncodedObject(plumbing.CommitObject, e.Hash); errors.Is(err, plumbing.ErrObjectNotFound) {
			return false, nil
		}
		return false, w.commit(ctx, inner, e.Hash, to, nested+1)
	})
}

// entry writes one entry. Everything is new, so that no entry is written through another.
func (w *writer) entry(r *repository, name string, e object.TreeEntry) error {
	if e.Mode == filemode.Dir {
		return w.root.Mkdir(name, 0o755)
	}
	blob, err := object.GetBlob(r, e.Hash)
	if err != nil {
		return fmt.Errorf("%.200q: %w", name, err)
	}
	if w.bytes -= blob.Size; w.bytes < 0 {
		return &fsx.LimitError{What: "bytes", Most: w.limit}
	}
	from, err := blob.Reader()
	if err != nil {
		return err
	}
	defer from.Close()
	switch e.Mode {
	case filemode.Symlink:
		target, err := io.ReadAll(io.LimitReader(from, maxPath+1))
		if err != nil || len(target) == 0 || len(target) > maxPath || strings.Contains(string(target), "\x00") {
			return errors.Join(err, fmt.Errorf("%.200q: is a link to nowhere", name))
		}
		return w.root.Symlink(string(target), name)
	case filemode.Regular, filemode.Deprecated, filemode.Executable:
		mode := fs.FileMode(0o644)
		if e.Mode == filemode.Executable {
			mode = 0o755
		}
		file, err := w.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, from)
		return errors.Join(err, file.Close())
	default:
		return fmt.Errorf("%.200q: has the mode %s, which no file has", name, e.Mode)
	}
}

// walkTree visits the entries that a commit has below the prefix, each directory before its
// entries, which are visited if visit returns true. Paths are relative to the prefix.
func (r *repository) walkTree(ctx context.Context, h plumbing.Hash, visit func(name string, e object.TreeEntry) (into bool, err error)) error {
	commit, err := object.GetCommit(r, h)
	if err != nil {
		return fmt.Errorf("commit %s: %w", h, err)
	}
	tree, err := commit.Tree()
	if err == nil && r.prefix != "" {
		tree, err = tree.Tree(r.prefix)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(r.root, r.prefix), err)
	}
	left := maxFiles
	var walk func(dir string, tree *object.Tree, depth int) error
	walk = func(dir string, tree *object.Tree, depth int) error {
		if depth > maxDepth {
			return fmt.Errorf("%.200q: is nested deeper than %d directories", dir, maxDepth)
		}
		seen := map[string]bool{}
		for _, e := range tree.Entries {
			name := path.Join(dir, e.Name)
			left--
			switch {
			case left < 0:
				return fmt.Errorf("the commit has more than %d files and directories", maxFiles)
			case !safeName(e.Name) || len(name) > maxPath:
				return fmt.Errorf("%.200q in %.200q: is a name that no file of a repository may have", e.Name, dir)
			case seen[e.Name]:
				return fmt.Errorf("%.200q: is there twice", name)
			}
			seen[e.Name] = true
			into, err := visit(name, e)
			if err == nil && into && e.Mode == filemode.Dir {
				var below *object.Tree
				if below, err = object.GetTree(r, e.Hash); err == nil {
					err = walk(name, below, depth+1)
				}
			}
			if err = errors.Join(err, context.Cause(ctx)); err != nil {
				return err
			}
		}
		return nil
	}
	return walk("", tree, 0)
}

// safeName refuses names that a file system takes for another one, such as ".git" in any
// case and with the characters that HFS+ and NTFS skip.
func safeName(name string) bool {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\\\x00") {
		return false
	}
	plain := strings.ToLower(strings.TrimRight(strings.Map(func(c rune) rune {
		switch { // what HFS+ does not see
		case c >= 0x200c && c <= 0x200f, c >= 0x202a && c <= 0x202e, c >= 0x206a && c <= 0x206f, c == 0xfeff:
			return -1
		}
		return c
	}, name), " ."))
	before, _, _ := strings.Cut(plain, ":")
	return before != ".git" && plain != "git~1"
}
