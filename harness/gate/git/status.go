package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
// pipes and sockets do not count. The files of a submodule are not compared: one that was
// fetched counts as different.
func Status(ctx context.Context, dir string, ignore []string) (evidence.Repo, []string, error) {
	r, err := open(dir)
	if err != nil || r == nil {
		return evidence.Repo{}, nil, err
	}
	defer r.close()
	var differ []string
	head, err := r.head()
	if err == nil {
		differ, err = r.differ(ctx, head, ignore)
	}
	if err != nil {
		return evidence.Repo{}, nil, fmt.Errorf("git: %s: %w", r.root, err)
	}
	facts := evidence.Repo{Dirty: len(differ) > 0, Root: "."}
	if r.prefix != "" {
		facts.Root = ".." + strings.Repeat("/..", strings.Count(r.prefix, "/"))
	}
	if !head.IsZero() {
		facts.Commit = head.String()
	}
	return facts, differ[:min(len(differ), maxDiffers)], nil
}

// differ returns the paths below the prefix that are not as in a commit, sorted and relative
// to the prefix.
func (r *repository) differ(ctx context.Context, commit plumbing.Hash, ignore []string) (differ []string, err error) {
	skip := skipped(ignore)
	committed, err := r.entries(ctx, commit, skip) // those that were not seen yet
	if err != nil {
		return nil, err
	}
	dirs, err := newIgnores(r.root, r.prefix)
	if err != nil {
		return nil, err
	}
	defer dirs.root.Close()
	left := maxFiles
	err = fsx.InRoot(filepath.Join(r.root, filepath.FromSlash(r.prefix)), func(files *os.Root) error {
		return fsx.Walk(ctx, files, func(name string, info fs.FileInfo) (into bool, err error) {
			if skip[name] {
				return false, nil
			}
			if left--; left < 0 {
				return false, fmt.Errorf("has more than %d files and directories", maxFiles)
			}
			entry, known := committed[name]
			hidden := dirs.hide(name, info.IsDir())
			isFile, equal := info.Mode().IsRegular() || info.Mode()&fs.ModeSymlink != 0, true
			switch {
			case known && entry.Mode == filemode.Submodule && info.IsDir():
				err = fsx.ReadDir(ctx, files, name, func(string) error { equal = false; return nil })
			case known && isFile:
				equal, err = same(ctx, files, name, entry)
			case info.IsDir() && path.Base(name) != ".git":
				if known = known && entry.Mode == filemode.Dir; known || !hidden {
					into, err = true, dirs.enter(name, hidden)
				}
			default: // new, or a repository of its own
				equal = hidden || !isFile && !info.IsDir()
			}
			if known && (isFile || info.IsDir()) {
				delete(committed, name)
			}
			if !equal {
				differ = append(differ, name)
			}
			return into, err
		})
	})
	maps.DeleteFunc(committed, func(_ string, e object.TreeEntry) bool { return e.Mode == filemode.Dir })
	differ = slices.AppendSeq(differ, maps.Keys(committed)) // deleted, or something else
	slices.Sort(differ)
	return differ, err
}

// skipped is the set of paths that are not compared.
func skipped(ignore []string) map[string]bool {
	skip := map[string]bool{".git": true}
	for _, name := range ignore {
		skip[path.Clean(filepath.ToSlash(name))] = true
	}
	return skip
}

// entries returns the entries of a commit below the prefix, without those of skip.
func (r *repository) entries(ctx context.Context, commit plumbing.Hash, skip map[string]bool) (map[string]object.TreeEntry, error) {
	entries := map[string]object.TreeEntry{}
	if commit.IsZero() {
		return entries, nil
	}
	err := r.walkTree(ctx, commit, func(name string, e object.TreeEntry) (bool, error) {
		if !skip[name] {
			entries[name] = e
		}
		return !skip[name], nil
	})
	if err != nil && !errors.Is(err, object.ErrDirectoryNotFound) {
		return nil, err
	}
	return entries, nil
}

// same compares a file or a link with an entry of a commit.
func same(ctx context.Context, files *os.Root, name string, e object.TreeEntry) (bool, error) {
	if target, err := files.Readlink(name); err == nil {
		return e.Mode == filemode.Symlink && e.Hash == plumbing.ComputeHash(plumbing.BlobObject, []byte(target)), nil
	}
	file, info, err := fsx.OpenIn(files, name)
	if err != nil {
		return false, err
	}
	defer file.Close()
	hash := plumbing.NewHasher(plumbing.BlobObject, info.Size())
	if err := fsx.CopyContent(ctx, hash, file, info); err != nil {
		return false, fmt.Errorf("%.200q: %w", name, err)
	}
	executable := info.Mode()&0o100 != 0
	return e.Mode != filemode.Symlink && (e.Mode == filemode.Executable) == executable && e.Hash == hash.Sum(), nil
}

// ignores says what the ignore files of a work tree name.
type ignores struct {
	root   *os.Root
	prefix string
	// patterns are those that count in a directory below the prefix, and hidden the
	// directories of which everything is ignored unless it is in the commit.
	patterns map[string][]gitignore.Pattern
	hidden   map[string]bool
	left     int
}

// newIgnores reads the ignore files from the root of a work tree down to the prefix.
func newIgnores(root, prefix string) (*ignores, error) {
	top, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	i := &ignores{root: top, prefix: prefix, patterns: map[string][]gitignore.Pattern{}, hidden: map[string]bool{}, left: maxPatterns}
	var above []string
	if prefix != "" {
		above = strings.Split(prefix, "/")
	}
	var all []gitignore.Pattern
	for n := range len(above) + 1 {
		if all, err = i.read(above[:n], all); err != nil {
			return nil, errors.Join(err, top.Close())
		}
	}
	i.patterns["."] = all
	return i, nil
}

func (i *ignores) hide(name string, isDir bool) bool {
	dir := path.Dir(name)
	return i.hidden[dir] || gitignore.NewMatcher(i.patterns[dir]).Match(strings.Split(path.Join(i.prefix, name), "/"), isDir)
}

// enter reads the ignore file of a directory.
func (i *ignores) enter(name string, hidden bool) (err error) {
	if strings.Count(name, "/") >= maxDepth {
		return fmt.Errorf("%.200q: is nested deeper than %d directories", name, maxDepth)
	}
	i.hidden[name] = hidden
	i.patterns[name], err = i.read(strings.Split(path.Join(i.prefix, name), "/"), i.patterns[path.Dir(name)])
	return err
}

// read adds the patterns of a directory to those of its parent. An ignore file that is not a
// regular file has none, as for git.
func (i *ignores) read(dir []string, patterns []gitignore.Pattern) ([]gitignore.Pattern, error) {
	name := path.Join(path.Join(dir...), ".gitignore")
	text, err := fsx.ReadIn(i.root, name, maxIgnoreFile)
	var special *fsx.NotRegularError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &special) {
		return patterns, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%.200q: %w", name, fsx.Cause(err))
	}
	patterns = slices.Clip(patterns)
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(bytes.TrimSpace(line)) == 0 || line[0] == '#' {
			continue
		}
		if i.left--; i.left < 0 {
			return nil, fmt.Errorf("its ignore files have more than %d patterns", maxPatterns)
		}
		patterns = append(patterns, gitignore.ParsePattern(string(line), dir))
	}
	return patterns, nil
}
