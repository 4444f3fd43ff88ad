package git

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/storage"

	"github.com/evalbox/evalbox/internal/fsx"
)

// A RevisionError is a revision that a repository does not have.
type RevisionError struct {
	Revision, Rule string
}

func (e *RevisionError) Error() string { return fmt.Sprintf("revision %.200q: %s", e.Revision, e.Rule) }

// Hint says which revisions can be named.
func (e *RevisionError) Hint() string {
	return "name a commit, a tag or a branch of the repository that holds the workspace, such as HEAD"
}

// revisionForm is a name with ~N and ^N behind it.
var revisionForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[^\x00-\x20~^:?*@{\[\\\x7f.-][^\x00-\x20~^:?*{\[\\\x7f]{0,254}(?:~[0-9]{0,4}|\^[0-2]?)*$`)
})

// byHash is a repository without references. go-git takes the branch of that name for a hash
// of no commit, and git does not.
type byHash struct{ *repository }

// Reference implements the reading of references for go-git.
func (byHash) Reference(plumbing.ReferenceName) (*plumbing.Reference, error) {
	return nil, plumbing.ErrReferenceNotFound
}

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
	r, err := open(dir)
	if err != nil {
		return nil, plumbing.ZeroHash, err
	}
	if r == nil {
		return nil, plumbing.ZeroHash, &RevisionError{revision, dir + " is in no git repository"}
	}
	rule := ""
	if !revisionForm().MatchString(revision) || strings.Contains(revision, "..") {
		rule = "must be a branch, a tag or the hash of a commit, with ~N or ^N behind it"
	} else {
		var h *plumbing.Hash
		var from storage.Storer = r
		if name := revision[:strings.IndexAny(revision+"~", "~^")]; plumbing.IsHash(name) {
			from = byHash{r}
		}
		h, err = (&gogit.Repository{Storer: from}).ResolveRevision(plumbing.Revision(revision))
		switch {
		case err == nil:
			return r, *h, nil
		case errors.Is(err, plumbing.ErrReferenceNotFound):
			rule = "is not a branch, tag or commit of this repository"
		case errors.Is(err, io.EOF) || errors.Is(err, plumbing.ErrObjectNotFound):
			rule = "has no such parent here"
			if info, err := r.common.Lstat("shallow"); err == nil && info.Size() > 0 {
				rule = "is not here, because the clone is shallow: fetch more of its history"
			}
		}
	}
	r.close()
	if rule != "" {
		err = &RevisionError{revision, rule}
	}
	return nil, plumbing.ZeroHash, err
}

// Checkout writes the files that a revision has in dir to the directory into, which must not
// exist, and returns the revision's commit. exclude lists paths relative to dir that are left
// out, and limit bounds the bytes of all files. Files keep whether they may be executed. Links
// are written as links and never followed. Nothing is converted. A submodule is an empty
// directory; a [*RevisionError] refuses one that was fetched in dir.
func Checkout(ctx context.Context, dir, revision, into string, exclude []string, limit int64) (commit string, err error) {
	r, h, err := resolve(dir, revision)
	if err != nil {
		return "", err
	}
	defer r.close()
	if err := os.Mkdir(into, 0o755); err != nil {
		return "", err
	}
	left := limit
	err = fsx.InRoot(into, func(root *os.Root) error {
		return r.walkTree(ctx, h, func(name string, e object.TreeEntry) (bool, error) {
			if slices.ContainsFunc(exclude, func(leave string) bool { return path.Clean(leave) == name }) {
				return false, nil
			}
			switch e.Mode { //nolint:exhaustive // the others are files
			case filemode.Submodule:
				if _, err := os.Lstat(filepath.Join(r.root, r.prefix, name, ".git")); err == nil {
					return false, &RevisionError{revision, fmt.Sprintf("has the submodule %q, whose files are in another repository and are not checked out: "+
						"leave it out with exclude in the wish", name)}
				}
				return false, root.Mkdir(name, 0o755)
			case filemode.Dir:
				return true, root.Mkdir(name, 0o755)
			}
			blob, err := object.GetBlob(r, e.Hash)
			if err == nil {
				if left -= blob.Size; left < 0 {
					return false, &fsx.LimitError{What: "bytes", Most: limit}
				}
				err = write(root, name, e.Mode, blob)
			}
			if err != nil {
				return false, fmt.Errorf("%.200q: %w", name, err)
			}
			return false, nil
		})
	})
	if err != nil {
		return "", fmt.Errorf("checkout %s: %w", h, err)
	}
	return h.String(), nil
}

// write writes a file or a link. It must be new, so that nothing is written through another.
func write(root *os.Root, name string, mode filemode.FileMode, blob *object.Blob) error {
	from, err := blob.Reader()
	if err != nil {
		return err
	}
	defer from.Close()
	switch mode {
	case filemode.Symlink:
		target, err := io.ReadAll(io.LimitReader(from, maxPath+1))
		if err != nil || len(target) == 0 || len(target) > maxPath || strings.Contains(string(target), "\x00") {
			return errors.Join(err, errors.New("is a link to nowhere"))
		}
		return root.Symlink(string(target), name)
	case filemode.Regular, filemode.Deprecated:
		_, err = fsx.Create(root, name, from, 0o644)
	case filemode.Executable:
		_, err = fsx.Create(root, name, from, 0o755)
	default:
		err = fmt.Errorf("has the mode %s, which no file has", mode)
	}
	return err
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
		// All entries count before one is visited: the trees above stay in memory.
		if left -= len(tree.Entries); left < 0 {
			return fmt.Errorf("the commit has more than %d files and directories", maxFiles)
		}
		seen := map[string]bool{}
		for _, e := range tree.Entries {
			name := path.Join(dir, e.Name)
			switch {
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
