package repo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/go-git/go-billy/v5"
	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/filesystem/dotgit"
)

const (
	// cacheSize bounds the objects that are kept in memory; larger ones than largeObject
	// are read in parts.
	cacheSize   = 64 << 20
	largeObject = 1 << 20
	// maxBorrowed bounds how many folders of objects a repository shares with others, and
	// how often those share theirs.
	maxBorrowed = 5
)

// repository is an open repository.
type repository struct {
	place
	store *store
	// maxFiles bounds the files of a revision.
	maxFiles int
	close    []func() error
}

// open opens a repository for reading.
func open(p place) (_ *repository, err error) {
	r := &repository{place: p, maxFiles: maxFiles}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%s: %w", p.git, err), r.Close())
		}
	}()
	guarded := func(dir string) (*guardFS, error) {
		g, err := newGuardFS(dir)
		if err == nil {
			r.close = append(r.close, g.Close)
		}
		return g, err
	}
	own, err := guarded(p.git)
	if err != nil {
		return nil, err
	}
	files, objects := billy.Filesystem(own), own
	if p.common != "" {
		if objects, err = guarded(p.common); err != nil {
			return nil, err
		}
		files = dotgit.NewRepositoryFilesystem(own, objects)
	}
	r.store = r.newStore(files, objects)
	if err := r.checkFormat(); err != nil {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	return r, r.borrow(r.store, guarded, 0)
}

func (r *repository) newStore(files billy.Filesystem, objects *guardFS) *store {
	storage := filesystem.NewStorageWithOptions(files, cache.NewObjectLRU(cacheSize),
		filesystem.Options{ExclusiveAccess: true, KeepDescriptors: true, LargeObjectThreshold: largeObject})
	s := &store{Storage: storage, loose: objects}
	r.close = append(r.close, storage.Close, s.packs.close)
	return s
}

// checkFormat leaves to the library which extensions of the format it can read; it takes
// every version.
func (r *repository) checkFormat() error {
	if _, err := git.Open(r.store, nil); err != nil {
		return err
	}
	cfg, err := r.store.Config()
	if err != nil {
		return err
	}
	if version := cfg.Raw.Section("core").Option("repositoryformatversion"); !slices.Contains([]string{"", "0", "1"}, version) {
		return fmt.Errorf("its format has the version %.20q; known are 0 and 1", version)
	}
	return nil
}

// borrow opens the folders of objects that a clone shares with others. The library
// follows such paths without bounds, and finds no relative ones.
func (r *repository) borrow(s *store, guarded func(dir string) (*guardFS, error), depth int) error {
	file := filepath.Join(s.loose.Root(), "objects", "info", "alternates")
	text, err := fsx.Read(file, maxPointer*maxBorrowed)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" || line[0] == '#' {
			continue
		}
		if !filepath.IsAbs(line) {
			line = filepath.Join(s.loose.Root(), "objects", line)
		}
		dir := filepath.Clean(line)
		if filepath.Base(dir) != "objects" || depth == maxBorrowed || len(s.borrowed) == maxBorrowed {
			return fmt.Errorf("%s: names %.200q: it must be a folder objects, and there may be %d", file, line, maxBorrowed)
		}
		objects, err := guarded(filepath.Dir(dir))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		other := r.newStore(objects, objects)
		s.borrowed = append(s.borrowed, other)
		if err := r.borrow(other, guarded, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// Close closes all files.
func (r *repository) Close() error {
	var errs []error
	for i := len(r.close) - 1; i >= 0; i-- {
		errs = append(errs, r.close[i]())
	}
	r.close = nil
	return errors.Join(errs...)
}

// shallow reports whether the repository was cloned without its whole history.
func (r *repository) shallow() bool {
	dir := r.common
	if dir == "" {
		dir = r.git
	}
	info, err := os.Lstat(filepath.Join(dir, "shallow"))
	return err == nil && info.Size() > 0
}
