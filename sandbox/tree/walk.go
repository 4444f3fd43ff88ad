package tree

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// Walk calls each for every entry below root with its path and what Lstat says of
// it, folders before what is in them, and goes into a folder only if each says so.
// Nothing is followed. What vanishes meanwhile is passed over.
func Walk(ctx context.Context, root *os.Root, each func(name string, info fs.FileInfo) (into bool, err error)) error {
	queue := []string{"."}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		below, err := walkFolder(ctx, root, at, each)
		if err != nil {
			return err
		}
		queue = append(queue, below...)
	}
	return nil
}

func walkFolder(ctx context.Context, root *os.Root, at string, each func(string, fs.FileInfo) (bool, error)) (below []string, err error) {
	dir, err := root.Open(at)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for {
		entries, readErr := dir.ReadDir(256)
		slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		for _, entry := range entries {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			full := path.Join(at, entry.Name())
			info, err := root.Lstat(full)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return nil, err
			}
			into, err := each(full, info)
			if err != nil {
				return nil, err
			}
			if into && info.IsDir() {
				below = append(below, full)
			}
		}
		if errors.Is(readErr, io.EOF) {
			return below, nil
		}
		if readErr != nil {
			return nil, readErr
		}
	}
}

// Size is what a copy of root would hold, without what is excluded.
func Size(ctx context.Context, root *os.Root, exclude Paths, limits Limits) (entries int, bytes int64, err error) {
	err = Walk(ctx, root, func(name string, info fs.FileInfo) (bool, error) {
		if exclude.Has(name) {
			return false, nil
		}
		entries++
		if info.Mode().IsRegular() {
			bytes += info.Size()
		}
		return true, limits.check(entries, depthOf(name), bytes)
	})
	return entries, bytes, err
}
