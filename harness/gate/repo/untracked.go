package repo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/go-git/go-git/v5/plumbing/filemode"
)

// Untracked lists what is in a folder and is not tracked by git, whether it is ignored or
// new: paths relative to dir, sorted, of files and of whole folders. A folder of no
// repository has nothing that is untracked. What is named .git is not listed.
func Untracked(ctx context.Context, dir string) ([]string, error) {
	p, ok, err := placeOf(dir)
	if err != nil || !ok {
		return nil, err
	}
	u := untracked{}
	if err := u.repository(ctx, p, "", 0); err != nil {
		return nil, fmt.Errorf("git: %s: %w", p.root, err)
	}
	slices.Sort(u.found)
	return u.found, nil
}

type untracked struct {
	found []string
	seen  int
}

// repository looks at the work tree of a repository, which is at in the folder that was
// asked for.
func (u *untracked) repository(ctx context.Context, p place, at string, depth int) (err error) {
	if depth > maxNested {
		return fmt.Errorf("submodules are nested more than %d times", maxNested)
	}
	r, err := open(p)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	s := &statusWalk{repository: r, differ: map[string]bool{}}
	if err := s.readIndex(); err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Join(p.root, filepath.FromSlash(p.prefix)))
	if err != nil {
		return err
	}
	defer root.Close()
	return fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err = errors.Join(err, context.Cause(ctx)); err != nil || name == "." {
			return err
		}
		if u.seen++; u.seen > maxFiles {
			return fmt.Errorf("has more than %d files and folders", maxFiles)
		}
		return u.entry(ctx, s, at, name, entry, depth)
	})
}

func (u *untracked) entry(ctx context.Context, s *statusWalk, at, name string, entry fs.DirEntry, depth int) error {
	skip := func() error {
		if entry.IsDir() {
			return fs.SkipDir
		}
		return nil
	}
	t, isTracked := s.tracked[name]
	switch {
	case entry.Name() == ".git":
		return skip()
	case isTracked && t.mode == filemode.Submodule && entry.IsDir():
		inner, fetched, err := s.inner(name)
		if err == nil && fetched {
			err = u.repository(ctx, inner, path.Join(at, name), depth+1)
		}
		if err != nil {
			return fmt.Errorf("submodule %.200q: %w", name, err)
		}
		return skip()
	case isTracked && !entry.IsDir(), entry.IsDir() && s.folders[name]:
		return nil
	}
	u.found = append(u.found, path.Join(at, name))
	return skip()
}
