package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/internal/fsx"
)

const (
	maxIgnoreFile = 1 << 20
	maxPatterns   = 20_000 // of all ignore files together: each is compared with every name
	maxDiffers    = 20     // paths that differ and are listed
)

// Status says which commit a directory is of, whether its files differ from that commit, and
// which ones do (RT-10). ignore lists paths relative to dir that do not count. Root is the
// root of the repository relative to dir. A directory of no repository has no commit and is
// not dirty; one without a commit yet is dirty if it has any file.
//
// The files are compared with the commit by their contents; the index does not count.
// A file that is not in the commit counts unless a .gitignore names it; info/exclude and the
// ignore files of the user do not count, because they are in no commit. Empty directories,
// pipes and sockets do not count. A submodule is compared with its recorded commit; one that
// was never fetched does not count.
func Status(ctx context.Context, dir string, ignore []string) (evidence.Repo, []string, error) {
	r, err := open(dir)
	if err != nil || r == nil {
		return evidence.Repo{}, nil, err
	}
	defer r.close()
	facts := evidence.Repo{Root: "."}
	if r.prefix != "" {
		facts.Root = strings.TrimSuffix(strings.Repeat("../", strings.Count(r.prefix, "/")+1), "/")
	}
	head, err := r.head()
	if err != nil {
		return evidence.Repo{}, nil, fmt.Errorf("git: %s: %w", r.root, err)
	}
	if !head.IsZero() {
		facts.Commit = head.String()
	}
	differ, err := r.differ(ctx, head, ignore, 0)
	if err != nil {
		return evidence.Repo{}, nil, fmt.Errorf("git: %s: %w", r.root, err)
	}
	facts.Dirty = len(differ) > 0
	return facts, differ[:min(len(differ), maxDiffers)], nil
}

// walk compares files with a commit. Paths are relative to the root of the repository.
type walk struct {
	*repository
	ctx    context.Context //nolint:containedctx // lives as long as the one walk
	files  *os.Root
	ignore map[string]bool
	// committed are the entries of the commit that were not seen yet, and folders the
	// directories among them.
	committed      map[string]object.TreeEntry
	folders        map[string]bool
	differ         []string
	patterns, left int
	nested         int
}

// differ returns the paths below the prefix that are not as in a commit, sorted and relative
// to the prefix.
func (r *repository) differ(ctx context.Context, commit plumbing.Hash, ignore []string, nested int) ([]string, error) {
	w := &walk{repository: r, ctx: ctx, ignore: map[string]bool{}, committed: map[string]object.TreeEntry{}, folders: map[string]bool{}, left: maxFiles, nested: nested}
	for _, name := range ignore {
		w.ignore[path.Join(r.prefix, filepath.ToSlash(name))] = true
	}
	var err error
	if w.files, err = os.OpenRoot(r.root); err != nil {
		return nil, err
	}
	defer w.files.Close()
	if !commit.IsZero() {
		err := r.walkTree(ctx, commit, func(name string, e object.TreeEntry) (bool, error) {
			name = path.Join(r.prefix, name)
			switch {
			case w.ignore[name]:
				return false, nil
			case e.Mode == filemode.Dir:
				w.folders[name] = true
			default:
				w.committed[name] = e
			}
			return true, nil
		})
		if err != nil && !errors.Is(err, object.ErrDirectoryNotFound) {
			return nil, err
		}
	}
	var patterns []gitignore.Pattern
	above := ""
	for part := range strings.SplitSeq(r.prefix, "/") { // the ignore files above the prefix
		if part != "" {
			if patterns, err = w.ignoreFile(above, patterns); err != nil {
				return nil, err
			}
			above = path.Join(above, part)
		}
	}
	if err := w.folder(r.prefix, patterns, false, 0); err != nil {
		return nil, err
	}
	for name := range w.committed {
		w.differ = append(w.differ, name) // deleted, or something else
	}
	for i, name := range w.differ {
		w.differ[i] = strings.TrimPrefix(strings.TrimPrefix(name, r.prefix), "/")
	}
	slices.Sort(w.differ)
	return w.differ, nil
}

// folder compares what is in a directory. ignored says that all of it is ignored unless it
// is in the commit.
func (w *walk) folder(dir string, patterns []gitignore.Pattern, ignored bool, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%.200q: is nested deeper than %d directories", dir, maxDepth)
	}
	patterns, err := w.ignoreFile(dir, patterns)
	if err != nil {
		return err
	}
	matcher := gitignore.NewMatcher(patterns)
	entries, err := fs.ReadDir(w.files.FS(), path.Join(".", dir))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := path.Join(dir, entry.Name())
		if w.ignore[name] || name == ".git" {
			continue
		}
		if w.left--; w.left < 0 {
			return fmt.Errorf("has more than %d files and directories", maxFiles)
		}
		committed, known := w.committed[name]
		hidden := ignored || matcher.Match(strings.Split(name, "/"), entry.IsDir())
		kind := entry.Type()
		switch {
		case known && committed.Mode == filemode.Submodule && kind.IsDir():
			delete(w.committed, name)
			err = w.submodule(name, committed.Hash)
		case known && (kind.IsRegular() || kind&fs.ModeSymlink != 0):
			delete(w.committed, name)
			err = w.file(name, committed, kind)
		case kind.IsDir() && entry.Name() != ".git":
			if !hidden || w.folders[name] {
				err = w.folder(name, patterns, hidden, depth+1)
			}
		case !hidden && (kind.IsDir() || kind.IsRegular() || kind&fs.ModeSymlink != 0):
			w.differ = append(w.differ, name) // new, or a repository of its own
		}
		if err = errors.Join(err, context.Cause(w.ctx)); err != nil {
			return err
		}
	}
	return nil
}

// file compares a file or a link with the one of the commit.
func (w *walk) file(name string, committed object.TreeEntry, kind fs.FileMode) error {
	mode, sum := filemode.Symlink, plumbing.ZeroHash
	if kind.IsRegular() {
		file, info, err := fsx.OpenIn(w.files, name)
		if err != nil {
			return err
		}
		defer file.Close()
		if mode = filemode.Regular; info.Mode()&0o100 != 0 {
			mode = filemode.Executable
		}
		hash := plumbing.NewHasher(plumbing.BlobObject, info.Size())
		if err := fsx.CopyContent(w.ctx, hash, file, info); err != nil {
			return fmt.Errorf("%.200q: %w", name, err)
		}
		sum = hash.Sum()
	} else {
		target, err := w.files.Readlink(name)
		if err != nil {
			return err
		}
		sum = plumbing.ComputeHash(plumbing.BlobObject, []byte(target))
	}
	if committed.Mode == filemode.Deprecated { // a file that a group may write
		committed.Mode = filemode.Regular
	}
	if mode != committed.Mode || sum != committed.Hash {
		w.differ = append(w.differ, name)
	}
	return nil
}

// submodule compares a repository in the repository with the commit that is recorded.
func (w *walk) submodule(name string, commit plumbing.Hash) error {
	inner, err := w.inner(name, w.nested)
	if err != nil {
		return err
	}
	if inner == nil {
		entries, err := fs.ReadDir(w.files.FS(), name)
		if len(entries) > 0 {
			w.differ = append(w.differ, name)
		}
		return err
	}
	defer inner.close()
	var ignore []string
	for other := range w.ignore {
		if rel, ok := strings.CutPrefix(other, name+"/"); ok {
			ignore = append(ignore, rel)
		}
	}
	differ, err := inner.differ(w.ctx, commit, ignore, w.nested+1)
	if errors.Is(err, plumbing.ErrObjectNotFound) {
		differ, err = []string{""}, nil
	}
	for _, below := range differ {
		w.differ = append(w.differ, path.Join(name, below))
	}
	return err
}

// inner opens a submodule by its path below the root; nil if it was never fetched.
func (r *repository) inner(name string, nested int) (*repository, error) {
	if nested == maxNested {
		return nil, fmt.Errorf("submodules are nested more than %d times", maxNested)
	}
	inner, err := open(filepath.Join(r.root, filepath.FromSlash(name)))
	if err == nil && inner != nil && inner.prefix != "" { // a directory of the outer one
		inner.close()
		return nil, nil
	}
	return inner, err
}

// ignoreFile adds the patterns of a directory. An ignore file that is not a regular file has
// none, as for git.
func (w *walk) ignoreFile(dir string, patterns []gitignore.Pattern) ([]gitignore.Pattern, error) {
	name := path.Join(dir, ".gitignore")
	text, err := fsx.ReadIn(w.files, name, maxIgnoreFile)
	var special *fsx.NotRegularError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &special) {
		return patterns, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%.200q: %w", name, fsx.Cause(err))
	}
	var domain []string
	if dir != "" {
		domain = strings.Split(dir, "/")
	}
	patterns = slices.Clip(patterns)
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(bytes.TrimSpace(line)) == 0 || line[0] == '#' {
			continue
		}
		if w.patterns++; w.patterns > maxPatterns {
			return nil, fmt.Errorf("its ignore files have more than %d patterns", maxPatterns)
		}
		patterns = append(patterns, gitignore.ParsePattern(string(line), domain))
	}
	return patterns, nil
}
