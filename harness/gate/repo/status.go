package repo

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/format/gitignore"
	"github.com/go-git/go-git/v5/plumbing/object"
	"golang.org/x/sync/errgroup"
)

// statusWalk compares commit, index and files of a work tree. Paths are relative to the
// prefix of the repository's place.
type statusWalk struct {
	*repository
	ignore map[string]bool
	nested int

	tracked map[string]tracked
	// folders are those with tracked files in them.
	folders map[string]bool
	// dir is the folder that is looked at: the prefix of the repository's place, or a copy
	// of it. files is that folder, opened.
	dir      string
	files    *os.Root
	group    *errgroup.Group
	left     int
	patterns int

	mu     sync.Mutex
	differ map[string]bool
}

type tracked struct {
	hash plumbing.Hash
	mode filemode.FileMode
}

func (s *statusWalk) differs(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.differ[name] = true
}

// list is the first paths that differ.
func (s *statusWalk) list() []string {
	var all []string
	for name := range s.differ {
		all = append(all, name)
	}
	slices.Sort(all)
	return all[:min(len(all), maxDiffers)]
}

func (s *statusWalk) run(ctx context.Context, head plumbing.Hash) error {
	if err := s.readIndex(); err != nil {
		return err
	}
	if err := s.compareHead(ctx, head); err != nil {
		return err
	}
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return err
	}
	defer root.Close()
	s.files, s.left = root, maxFiles
	patterns, err := s.outerPatterns()
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	s.group, ctx = errgroup.WithContext(ctx)
	s.group.SetLimit(runtime.GOMAXPROCS(0))
	err = s.folder(ctx, "", patterns, false, seen, 0)
	if err = cmp.Or(s.group.Wait(), err); err != nil {
		return err
	}
	for name := range s.tracked {
		if !seen[name] {
			s.differs(name) // deleted, or something else
		}
	}
	return nil
}

// readIndex lists the tracked files.
func (s *statusWalk) readIndex() error {
	idx, err := s.store.Index()
	if err != nil {
		return fmt.Errorf("its index cannot be read: %w", err)
	}
	if len(idx.Entries) > maxFiles {
		return fmt.Errorf("its index has more than %d entries", maxFiles)
	}
	s.tracked, s.folders = make(map[string]tracked, len(idx.Entries)), map[string]bool{}
	for _, e := range idx.Entries {
		name, ok := under(e.Name, s.prefix)
		if !ok || s.isIgnored(name) {
			continue
		}
		// A stage is a side of a conflict; the library calls 0 by no name.
		if e.Stage != 0 || e.IntentToAdd {
			s.differs(name)
		}
		s.tracked[name] = tracked{e.Hash, e.Mode}
		parents(name, func(dir string) { s.folders[dir] = true })
	}
	return nil
}

// isIgnored reports whether a path is, or lies below, one that does not count.
func (s *statusWalk) isIgnored(name string) bool {
	found := s.ignore[name]
	parents(name, func(dir string) { found = found || s.ignore[dir] })
	return found
}

// compareHead finds what the index has and the commit has not, and the other way round.
func (s *statusWalk) compareHead(ctx context.Context, head plumbing.Hash) error {
	committed := map[string]tracked{}
	if !head.IsZero() {
		c, err := object.GetCommit(s.store, head)
		if err != nil {
			return fmt.Errorf("commit %s: %w", head, err)
		}
		err = s.walkTree(ctx, c, s.prefix, func(name string, e object.TreeEntry) error {
			if e.Mode != filemode.Dir && !s.isIgnored(name) {
				committed[name] = tracked{e.Hash, e.Mode}
			}
			return nil
		})
		if err != nil && !errors.Is(err, errNoFolder) {
			return err
		}
	}
	for name, t := range s.tracked {
		if have, ok := committed[name]; !ok || !same(have, t) {
			s.differs(name)
		}
		delete(committed, name)
	}
	for name := range committed {
		s.differs(name)
	}
	return nil
}

// same takes the old mode of files that a group may write for what it means.
func same(a, b tracked) bool {
	plain := func(m filemode.FileMode) filemode.FileMode {
		if m == filemode.Deprecated {
			return filemode.Regular
		}
		return m
	}
	return a.hash == b.hash && plain(a.mode) == plain(b.mode)
}

// folder compares what is in a folder. within says that all of it is ignored, unless it
// is tracked.
func (s *statusWalk) folder(ctx context.Context, dir string, patterns []gitignore.Pattern, within bool, seen map[string]bool, depth int) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if depth > maxDepth {
		return fmt.Errorf("%.200q: is nested deeper than %d folders", dir, maxDepth)
	}
	own, err := s.readPatterns(s.files, dir, path.Join(s.prefix, dir))
	if err != nil {
		return err
	}
	patterns = append(slices.Clip(patterns), own...)
	matcher := gitignore.NewMatcher(patterns)
	entries, err := fs.ReadDir(s.files.FS(), cmp.Or(dir, "."))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if s.left--; s.left < 0 {
			return fmt.Errorf("has more than %d files and folders", maxFiles)
		}
		name := path.Join(dir, entry.Name())
		full := path.Join(s.prefix, name)
		t, isTracked := s.tracked[name]
		switch {
		case s.ignore[name], full == ".git":
			continue
		case isTracked && t.mode == filemode.Submodule:
			seen[name] = true
			if err := s.submodule(ctx, name, t, entry); err != nil {
				return err
			}
			continue
		}
		ignored := within || matcher.Match(strings.Split(full, "/"), entry.IsDir())
		switch {
		case entry.IsDir() && entry.Name() != ".git":
			if !ignored || s.folders[name] {
				if err := s.folder(ctx, name, patterns, ignored, seen, depth+1); err != nil {
					return err
				}
			}
		case isTracked:
			seen[name] = true
			s.group.Go(func() error { return s.file(ctx, name, t) })
		case !ignored && (entry.IsDir() || entry.Type().IsRegular() || entry.Type()&fs.ModeSymlink != 0):
			s.differs(name) // new, or a repository of its own
		}
	}
	return nil
}

// file compares a file with what is tracked.
func (s *statusWalk) file(ctx context.Context, name string, t tracked) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	info, err := s.files.Lstat(filepath.FromSlash(name))
	if err != nil {
		return err
	}
	have := tracked{mode: filemode.Regular}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := s.files.Readlink(filepath.FromSlash(name))
		if err != nil {
			return err
		}
		have = tracked{plumbing.ComputeHash(plumbing.BlobObject, []byte(filepath.ToSlash(target))), filemode.Symlink}
	case !info.Mode().IsRegular():
		s.differs(name)
		return nil
	default:
		if info.Mode()&0o100 != 0 {
			have.mode = filemode.Executable
		}
		if have.hash, err = s.hash(name); err != nil {
			return err
		}
	}
	if !same(have, t) {
		s.differs(name)
	}
	return nil
}

func (s *statusWalk) hash(name string) (plumbing.Hash, error) {
	file, info, err := fsx.OpenIn(s.files, filepath.FromSlash(name))
	if err != nil {
		return plumbing.ZeroHash, err
	}
	defer file.Close()
	sum := plumbing.NewHasher(plumbing.BlobObject, info.Size())
	if err := fsx.CopyContent(context.Background(), sum, file, info); err != nil {
		return plumbing.ZeroHash, fmt.Errorf("%.200q: %w", name, err)
	}
	return sum.Sum(), nil
}

// submodule compares a repository in the repository with the commit that is recorded.
func (s *statusWalk) submodule(ctx context.Context, name string, t tracked, entry fs.DirEntry) error {
	if !entry.IsDir() {
		s.differs(name)
		return nil
	}
	inner, fetched, err := s.inner(name)
	if err != nil {
		return err
	}
	if !fetched {
		entries, err := fs.ReadDir(s.files.FS(), name)
		if len(entries) > 0 {
			s.differs(name)
		}
		return err
	}
	ignore := map[string]bool{}
	for other := range s.ignore {
		if rel, ok := strings.CutPrefix(other, name+"/"); ok {
			ignore[rel] = true
		}
	}
	commit, differ, err := status(ctx, inner, filepath.Join(s.dir, filepath.FromSlash(name)), ignore, s.nested+1)
	if err != nil {
		return fmt.Errorf("submodule %.200q: %w", name, err)
	}
	if commit != t.hash.String() {
		s.differs(name)
	}
	for _, below := range differ {
		s.differs(path.Join(name, below))
	}
	return nil
}

// inner is the place of a submodule; fetched is false if there is none.
func (r *repository) inner(name string) (p place, fetched bool, err error) {
	dir := filepath.Join(r.root, filepath.FromSlash(path.Join(r.prefix, name)))
	if _, err := os.Lstat(filepath.Join(dir, ".git")); errors.Is(err, fs.ErrNotExist) {
		return place{}, false, nil
	}
	p, ok, err := find(dir)
	if err != nil || !ok || p.prefix != "" {
		return place{}, false, errors.Join(err, fmt.Errorf("submodule %.200q: cannot be read", name))
	}
	return p, true, nil
}

// outerPatterns are those of the folders above the prefix. What the repository itself
// ignores without telling (info/exclude) is not honoured: it is in no commit, so that a
// file could be hidden by it from everybody.
func (s *statusWalk) outerPatterns() ([]gitignore.Pattern, error) {
	if s.prefix == "" {
		return nil, nil
	}
	root, err := os.OpenRoot(s.root)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	var all []gitignore.Pattern
	above := ""
	for part := range strings.SplitSeq(s.prefix, "/") {
		more, err := s.readPatterns(root, above, above)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
		above = path.Join(above, part)
	}
	return all, nil
}

// readPatterns reads the ignore file of a folder, which is full in the repository. One
// that is a link or no file is none, as for git.
func (s *statusWalk) readPatterns(files *os.Root, folder, full string) ([]gitignore.Pattern, error) {
	text, err := fsx.ReadIn(files, filepath.FromSlash(path.Join(folder, ".gitignore")), maxIgnoreFile)
	var special *fsx.NotRegularError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &special) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%.200q: %w", path.Join(full, ".gitignore"), fsx.Cause(err))
	}
	var domain []string
	if full != "" {
		domain = strings.Split(full, "/")
	}
	return s.parsePatterns(text, domain)
}

func (s *statusWalk) parsePatterns(text []byte, domain []string) ([]gitignore.Pattern, error) {
	var all []gitignore.Pattern
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		line = bytes.TrimSuffix(line, []byte("\r"))
		if len(bytes.TrimSpace(line)) == 0 || line[0] == '#' {
			continue
		}
		if s.patterns++; s.patterns > maxPatterns {
			return nil, fmt.Errorf("its ignore files have more than %d patterns", maxPatterns)
		}
		all = append(all, gitignore.ParsePattern(string(line), domain))
	}
	return all, nil
}
