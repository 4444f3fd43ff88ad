package tree

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"

	"github.com/evalbox/evalbox/internal/fsx"
)

// Secrets are the files of several names below directories of the host. To hide such a
// file, all its names must be hidden. The zero value is empty.
type Secrets struct{ ids map[fsx.ID]bool }

// maxSecret bounds the entries of one denied directory that are searched.
const maxSecret = 1_000_000

// Add adds the files at or below a path of root. A path that does not exist adds none.
func (s *Secrets) Add(ctx context.Context, root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if s.ids == nil {
		s.ids = map[fsx.ID]bool{}
	}
	add := func(info fs.FileInfo) {
		if id, several := fsx.IDOf(info); several {
			s.ids[id] = true
		}
	}
	if !info.IsDir() {
		add(info)
		return nil
	}
	below, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer below.Close()
	seen := 0
	return fsx.Walk(ctx, below, func(inner string, info fs.FileInfo) (bool, error) {
		if seen++; seen > maxSecret {
			return false, &fs.PathError{Op: "read", Path: path.Join(name, inner),
				Err: errors.New("what is denied holds too many entries to look for their other names")}
		}
		add(info)
		return true, nil
	})
}

// Any reports whether there is at least one file.
func (s *Secrets) Any() bool { return len(s.ids) > 0 }

// Names returns the paths below root that name one of the files. More than limit entries
// are an error.
func (s *Secrets) Names(ctx context.Context, root *os.Root, limit int) (names []string, err error) {
	seen := 0
	err = fsx.Walk(ctx, root, func(name string, info fs.FileInfo) (bool, error) {
		if seen++; seen > limit {
			return false, &fs.PathError{Op: "read", Path: name, Err: errors.New("the directory holds too many entries to look for other names of what is denied")}
		}
		if s.has(info) {
			names = append(names, name)
		}
		return true, nil
	})
	return names, err
}

// Is reports whether a path of root names one of the files.
func (s *Secrets) Is(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	return err == nil && s.has(info)
}

func (s *Secrets) has(info fs.FileInfo) bool {
	id, several := fsx.IDOf(info)
	return several && s.ids[id]
}
