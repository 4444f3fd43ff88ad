package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
)

// Checkout writes the files that a revision has in dir to the folder into, which must be
// new or empty, and returns the revision's commit. dir is a folder of a work tree, or a
// repository without one. rev is a branch, a tag, HEAD or a hash of at least four digits,
// with ~N or ^N behind it.
//
// Files and links are written; files keep whether they may be executed. Links are
// written as links and never followed. A submodule is an empty folder. Nothing is
// converted. After an error the folder is empty or gone, as it was.
func Checkout(ctx context.Context, dir, rev, into string) (commit string, err error) {
	r, c, err := revision(dir, rev)
	if err != nil {
		return "", fmt.Errorf("checkout: %w", err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := fill(ctx, r, c, into); err != nil {
		return "", fmt.Errorf("checkout %s: %w", c.Hash, err)
	}
	return c.Hash.String(), nil
}

// Resolve is the commit that a revision stands for, as [Checkout] takes it; nothing is
// written. A [*RevisionError] is a revision that the repository of dir does not have, or
// that there is no repository.
func Resolve(dir, rev string) (commit string, err error) {
	r, c, err := revision(dir, rev)
	if err != nil {
		return "", err
	}
	return c.Hash.String(), r.Close()
}

// revision opens the repository of a folder, and finds a commit in it.
func revision(dir, rev string) (*repository, *object.Commit, error) {
	p, ok, err := find(dir)
	if err == nil && !ok {
		if !isBare(dir) {
			return nil, nil, &RevisionError{rev, dir + " is in no git repository"}
		}
		p.git, err = realDir(dir)
	}
	if err != nil {
		return nil, nil, err
	}
	r, err := open(p)
	if err != nil {
		return nil, nil, err
	}
	c, err := r.resolve(rev)
	if err != nil {
		return nil, nil, errors.Join(err, r.Close())
	}
	return r, c, nil
}

// fill writes to a folder that is new or empty.
func fill(ctx context.Context, r *repository, c *object.Commit, into string) (err error) {
	err = os.Mkdir(into, 0o755)
	made := err == nil
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	root, err := os.OpenRoot(into)
	if err != nil {
		return err
	}
	defer root.Close()
	if entries, err := fs.ReadDir(root.FS(), "."); err != nil {
		return err
	} else if len(entries) > 0 {
		return fmt.Errorf("%s: is not empty", into)
	}
	w := writer{repository: r, root: root, left: maxTotal}
	if err = r.walkTree(ctx, c, r.prefix, w.entry); err == nil {
		return nil
	}
	err = errors.Join(err, fsx.Empty(root))
	if made {
		err = errors.Join(err, os.Remove(into))
	}
	return err
}

// writer writes the entries of a tree.
type writer struct {
	*repository
	root *os.Root
	left int64
}

// entry writes one entry. Everything is made anew, so that no entry is written through
// another one.
func (w *writer) entry(name string, e object.TreeEntry) error {
	switch e.Mode {
	case filemode.Dir, filemode.Submodule:
		return w.root.Mkdir(name, 0o755)
	case filemode.Symlink:
		var target bytes.Buffer
		if _, err := w.store.blob(e.Hash, &target, maxPath); err != nil {
			return fmt.Errorf("%.200q: %w", name, err)
		}
		if target.Len() == 0 || bytes.IndexByte(target.Bytes(), 0) >= 0 {
			return fmt.Errorf("%.200q: is a link to nowhere", name)
		}
		return w.root.Symlink(target.String(), name)
	case filemode.Regular, filemode.Deprecated, filemode.Executable:
		mode := fs.FileMode(0o644)
		if e.Mode == filemode.Executable {
			mode = 0o755
		}
		file, err := w.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		n, err := w.store.blob(e.Hash, file, min(w.left, maxBlob))
		w.left -= n
		if err = errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("%.200q: %w", name, err)
		}
		return nil
	case filemode.Empty:
	}
	return fmt.Errorf("%.200q: has the mode %s, which no file has", name, e.Mode)
}
