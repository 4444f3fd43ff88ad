package repo

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/storer"

	"github.com/evalbox/evalbox/harness/gate/evidence"
)

// Inspect says which commit a folder is of, and whether what is in it differs from that
// commit (RT-10). ignore are paths, absolute or relative to dir, that do not count. Root
// is the repository's root relative to dir. A folder of no repository has no commit, and
// is not dirty; one without a commit yet is dirty if it has any file.
func Inspect(ctx context.Context, dir string, ignore []string) (evidence.Repo, error) {
	r, _, err := Status(ctx, dir, ignore)
	return r, err
}

// Status is [Inspect], and tells the first paths that differ, relative to dir.
//
// Files that an ignore file of the repository (.gitignore) names do not count, nor do
// empty folders, pipes and sockets. What counts is looked at by its content, whatever the
// index says; a file that the index tells git not to look at counts as well. A submodule
// counts if it is not at the commit that is recorded or is dirty itself; one that was
// never fetched does not.
func Status(ctx context.Context, dir string, ignore []string) (evidence.Repo, []string, error) {
	return StatusOf(ctx, dir, dir, ignore)
}

// StatusOf is [Status] with the files of another folder, a copy of dir: how that differs
// from the commit of dir.
func StatusOf(ctx context.Context, dir, files string, ignore []string) (evidence.Repo, []string, error) {
	p, ok, err := placeOf(dir)
	if err != nil || !ok {
		return evidence.Repo{}, nil, err
	}
	inner, err := ignored(p, dir, ignore)
	if err != nil {
		return evidence.Repo{}, nil, fmt.Errorf("git: %w", err)
	}
	commit, differ, err := status(ctx, p, files, inner, 0)
	if err != nil {
		return evidence.Repo{}, nil, fmt.Errorf("git: %s: %w", p.root, err)
	}
	up := "."
	if p.prefix != "" {
		up = strings.TrimSuffix(strings.Repeat("../", strings.Count(p.prefix, "/")+1), "/")
	}
	return evidence.Repo{Commit: commit, Dirty: len(differ) > 0, Root: up}, differ, nil
}

// placeOf is where the repository of a folder is; there may be none.
func placeOf(dir string) (place, bool, error) {
	p, ok, err := find(dir)
	if err == nil && !ok && isBare(dir) {
		err = fmt.Errorf("%s: is a repository without files of its own (bare)", dir)
	}
	if err != nil {
		return place{}, false, fmt.Errorf("git: %w", err)
	}
	return p, ok, nil
}

// ignored are paths relative to the folder that was asked for.
func ignored(p place, dir string, paths []string) (map[string]bool, error) {
	all := map[string]bool{}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	real := filepath.Join(p.root, filepath.FromSlash(p.prefix))
	for _, name := range paths {
		rel := filepath.Clean(name)
		if filepath.IsAbs(name) {
			for _, base := range []string{abs, real} {
				if rel, err = filepath.Rel(base, name); err == nil && filepath.IsLocal(rel) {
					break
				}
			}
		}
		if filepath.IsLocal(rel) && rel != "." { // others are elsewhere
			all[filepath.ToSlash(rel)] = true
		}
	}
	return all, nil
}

// status is the commit of a repository, and what differs from it below its prefix.
// dir is the folder at the prefix, or a copy of it.
func status(ctx context.Context, p place, dir string, ignore map[string]bool, depth int) (commit string, differ []string, err error) {
	if depth > maxNested {
		return "", nil, fmt.Errorf("submodules are nested more than %d times", maxNested)
	}
	r, err := open(p)
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	var head plumbing.Hash
	ref, err := storer.ResolveReference(r.store, plumbing.HEAD)
	switch {
	case err == nil:
		head = ref.Hash()
	case !errors.Is(err, plumbing.ErrReferenceNotFound):
		return "", nil, fmt.Errorf("HEAD: %w", err)
	}
	s := &statusWalk{repository: r, dir: dir, ignore: ignore, nested: depth, differ: map[string]bool{}}
	if err := s.run(ctx, head); err != nil {
		return "", nil, err
	}
	if head.IsZero() {
		return "", s.list(), nil
	}
	return head.String(), s.list(), nil
}

// under reports whether a clean path is a folder or lies below it, and what remains.
func under(name, folder string) (string, bool) {
	if folder == "" {
		return name, true
	}
	return strings.CutPrefix(name, folder+"/")
}

// parents calls visit with every folder that a path lies in.
func parents(name string, visit func(dir string)) {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		visit(dir)
	}
}
