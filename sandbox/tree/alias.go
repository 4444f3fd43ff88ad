package tree

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"

	"github.com/evalbox/evalbox/internal/fsx"
)

// SortedKeys are the keys of a map in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// aliasesIn are the files of several names that lie in secret.
func aliasesIn(ctx context.Context, root *os.Root, secret Paths) (map[fsx.ID]bool, error) {
	found := map[fsx.ID]bool{}
	for _, name := range secret {
		if err := gather(ctx, root, name, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// maxSecret bounds how many entries of what is denied are looked at.
const maxSecret = 1_000_000

// gather adds the files of several names at or below one path.
func gather(ctx context.Context, root *os.Root, name string, found map[fsx.ID]bool) error {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		note(info, found)
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
		note(info, found)
		return true, nil
	})
}

func note(info fs.FileInfo, found map[fsx.ID]bool) {
	if id, several := fsx.IDOf(info); several {
		found[id] = true
	}
}

// Secrets are the files of several names below folders of the host: whoever hides a
// file must hide it under its other names as well.
type Secrets struct{ ids map[fsx.ID]bool }

// Add adds what lies at or below a path of root.
func (s *Secrets) Add(ctx context.Context, root *os.Root, name string) error {
	if s.ids == nil {
		s.ids = map[fsx.ID]bool{}
	}
	return gather(ctx, root, name, s.ids)
}

// Any reports whether there is one at all.
func (s *Secrets) Any() bool { return len(s.ids) > 0 }

// Names are the paths below root that name one of the files.
func (s *Secrets) Names(ctx context.Context, root *os.Root, limit int) (names []string, err error) {
	seen := 0
	err = fsx.Walk(ctx, root, func(name string, info fs.FileInfo) (bool, error) {
		if seen++; seen > limit {
			return false, &fs.PathError{Op: "read", Path: name, Err: errors.New("the folder holds too many entries to look for other names of what is denied")}
		}
		if id, several := fsx.IDOf(info); several && s.ids[id] {
			names = append(names, name)
		}
		return true, nil
	})
	return names, err
}

// Is reports whether a path of root names one of the files.
func (s *Secrets) Is(root *os.Root, name string) bool {
	info, err := root.Lstat(name)
	if err != nil {
		return false
	}
	id, several := fsx.IDOf(info)
	return several && s.ids[id]
}
