package repo

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// treeWalk visits the entries of a tree of a revision, within bounds, each folder before
// what is in it.
type treeWalk struct {
	ctx   context.Context //nolint:containedctx // lives as long as the one walk
	store *store
	visit func(name string, e object.TreeEntry) error
	// most is how many entries there may be, left how many more.
	most, left int
}

// errNoFolder says that a revision has no such folder.
var errNoFolder = errors.New("the revision has no such folder")

// walkTree visits everything below a folder of a commit; empty is its root. Names are
// relative to that folder.
func (r *repository) walkTree(ctx context.Context, c *object.Commit, folder string, visit func(name string, e object.TreeEntry) error) error {
	h := c.TreeHash
	for part := range strings.SplitSeq(folder, "/") {
		if part == "" {
			continue
		}
		tree, err := object.GetTree(r.store, h)
		if err != nil {
			return fmt.Errorf("tree %s: %w", h, err)
		}
		entry, err := tree.FindEntry(part)
		if err != nil || entry.Mode != filemode.Dir {
			return fmt.Errorf("%s: %w", folder, errNoFolder)
		}
		h = entry.Hash
	}
	w := treeWalk{ctx: ctx, store: r.store, visit: visit, most: r.maxFiles, left: r.maxFiles}
	return w.folder(h, "", 0)
}

func (w *treeWalk) folder(h plumbing.Hash, dir string, depth int) error {
	if err := context.Cause(w.ctx); err != nil {
		return err
	}
	if depth > maxDepth {
		return fmt.Errorf("%.200q: is nested deeper than %d folders", dir, maxDepth)
	}
	tree, err := object.GetTree(w.store, h)
	if err != nil {
		return fmt.Errorf("tree %s: %w", h, err)
	}
	seen := make(map[string]bool, len(tree.Entries))
	for _, e := range tree.Entries {
		name := path.Join(dir, e.Name)
		switch {
		case !safeName(e.Name):
			return fmt.Errorf("%.200q in %.200q: is a name that no file of a repository may have", e.Name, dir)
		case seen[e.Name]:
			return fmt.Errorf("%.200q: is there twice", name)
		case len(name) > maxPath:
			return fmt.Errorf("%.200q: has a path of more than %d bytes", name, maxPath)
		}
		seen[e.Name] = true
		if w.left--; w.left < 0 {
			return fmt.Errorf("the revision has more than %d files and folders", w.most)
		}
		if err := w.visit(name, e); err != nil {
			return err
		}
		if e.Mode == filemode.Dir {
			if err := w.folder(e.Hash, name, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// safeName refuses names that mean something else to a file system or to git, there and
// on others: that of the repository itself, in any case and with what file systems pass
// over.
func safeName(name string) bool {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
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
	return plain != ".git" && plain != "git~1" && before != ".git" && !strings.HasPrefix(plain, `.git\`)
}
