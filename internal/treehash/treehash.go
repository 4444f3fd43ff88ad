// Package treehash computes digests of directory trees. There is one format: a SHA-256 over
// the path, kind and content of each entry, in the order of the paths.
package treehash

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/zeebo/blake3"
	"golang.org/x/sync/errgroup"

	"github.com/evalbox/evalbox/internal/fsx"
)

// maxEntries bounds a tree: memory grows with the number of entries.
const maxEntries = 2_000_000

// Options of [Of]. The zero value is useful.
type Options struct {
	// Exclude lists paths below the directory, with forward slashes. They and everything
	// in them do not count.
	Exclude []string
	// Leave, if set, reports whether a path below the directory does not count, with
	// everything in it.
	Leave func(name string, mode fs.FileMode) bool
	// Memory, if set, knows the files that did not change, and learns the others.
	Memory *Memory
}

// Digest is what [Of] found.
type Digest struct {
	// Sum is the digest of the tree, in hexadecimal.
	Sum string
	// State is a digest of the sizes, inodes and times of the entries. It changes with every
	// change of the tree, even if a later change restores the content.
	State string
}

// Of returns the digest of a directory. Names, kinds, contents, execute permissions of files
// and targets of links count; owners, times and other permissions do not. dir may be a link;
// nothing is followed below it. A file that changes while it is read is an
// error. Files are read in parallel.
func Of(ctx context.Context, dir string, opts Options) (Digest, error) {
	digest, err := of(ctx, dir, opts)
	if err != nil {
		return Digest{}, fmt.Errorf("hash %s: %w", dir, err)
	}
	return digest, nil
}

func of(ctx context.Context, dir string, opts Options) (Digest, error) {
	root, err := fsx.OpenRoot(dir)
	if err != nil {
		return Digest{}, err
	}
	defer root.Close()
	w := &walk{root: root, memory: opts.Memory, exclude: map[string]bool{}}
	for _, name := range opts.Exclude {
		w.exclude[path.Clean(name)] = true
	}
	top, err := root.Lstat(".")
	if err != nil {
		return Digest{}, err
	}
	entries := []Entry{{Path: ".", Mode: fs.ModeDir, state: stateOf(top)}}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0) + 1) // one of them walks
	group.Go(func() error {
		return fsx.Walk(ctx, root, func(name string, info fs.FileInfo) (into bool, err error) {
			if w.exclude[name] || opts.Leave != nil && opts.Leave(name, info.Mode()) {
				return false, nil
			}
			return info.IsDir(), w.entry(ctx, group, name, info)
		})
	})
	if err := group.Wait(); err != nil {
		return Digest{}, err
	}
	entries = append(entries, w.entries...)
	return Digest{Sum: Sum(entries), State: state(entries)}, nil
}

type walk struct {
	root    *os.Root
	memory  *Memory
	exclude map[string]bool
	mu      sync.Mutex
	entries []Entry
}

func (w *walk) add(e Entry) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.entries) == maxEntries {
		return fmt.Errorf("has more than %d entries", maxEntries)
	}
	w.entries = append(w.entries, e)
	return nil
}

// entry adds an entry. The group hashes files.
func (w *walk) entry(ctx context.Context, group *errgroup.Group, name string, info fs.FileInfo) error {
	e := Entry{Path: name, Mode: info.Mode(), state: stateOf(info)}
	switch {
	case info.Mode().IsRegular():
		group.Go(func() (err error) {
			if e.Content, err = w.file(ctx, name, info); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return w.add(e)
		})
		return nil
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := w.root.Readlink(name)
		if err != nil {
			return err
		}
		e.Content = target
	}
	return w.add(e)
}

// file returns the hash of a file that Walk found.
func (w *walk) file(ctx context.Context, name string, info fs.FileInfo) (string, error) {
	return w.memory.sum(name, info, func() (string, error) {
		file, opened, err := fsx.OpenListed(w.root, name, info)
		if err != nil {
			return "", err
		}
		return sumOpen(ctx, file, opened)
	})
}

// File returns the digest of a regular file; its name does not count.
func File(ctx context.Context, name string, memory *Memory) (Digest, error) {
	file, err := fsx.Open(name)
	if err != nil {
		return Digest{}, err
	}
	info, err := file.Stat()
	if err != nil {
		return Digest{}, errors.Join(err, file.Close())
	}
	sum, err := memory.sum("", info, func() (string, error) { return sumOpen(ctx, file, info) })
	if err != nil {
		return Digest{}, fmt.Errorf("hash %s: %w", name, err)
	}
	return Digest{Sum: sum, State: stateOf(info)}, nil
}

// sumOpen returns the BLAKE3 of an open file and closes it. SHA-256 is slower than disks on
// processors without instructions for it.
func sumOpen(ctx context.Context, file *os.File, info fs.FileInfo) (string, error) {
	defer file.Close()
	sum, err := fsx.Sum(ctx, blake3.New(), file, info)
	if err != nil {
		return "", err
	}
	after, err := file.Stat()
	if err == nil && stateOf(after) != stateOf(info) {
		err = fsx.ErrChanged
	}
	return sum, err
}

// Entry is one entry of a tree.
type Entry struct {
	// Path is relative to the directory, with forward slashes; "." is the directory itself.
	Path string
	Mode fs.FileMode
	// Content is the BLAKE3 of a file, in hexadecimal, or the target of a link.
	Content string
	state   string
}

// Sum is the digest of a tree with these entries, for callers that read them anyway. It does
// not depend on their order, and sorts them.
func Sum(entries []Entry) string {
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Path, b.Path) })
	sum := sha256.New()
	for _, e := range entries {
		kind := "file"
		switch {
		case e.Mode.IsDir():
			kind = "dir"
		case e.Mode&fs.ModeSymlink != 0:
			kind = "link"
		case !e.Mode.IsRegular():
			kind, e.Content = "special", fsx.Kind(e.Mode)
		case e.Mode&0o111 != 0:
			kind = "program"
		}
		// Names and links do not contain NUL bytes.
		fmt.Fprintf(sum, "%s\x00%s\x00%s\x00", filepath.ToSlash(e.Path), kind, e.Content)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// state is the digest of [Digest.State]. The entries are sorted.
func state(entries []Entry) string {
	sum := sha256.New()
	for _, e := range entries {
		fmt.Fprintf(sum, "%s\x00%s\x00", e.Path, e.state)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// stateOf changes with a file. Where the kernel does not say when an inode changed, a change
// of the same size within the resolution of the clock is not seen.
func stateOf(info fs.FileInfo) string {
	stamp, ok := stampOf(info)
	if !ok {
		stamp[2] = info.ModTime().UnixNano()
	}
	return fmt.Sprint(info.Size(), stamp)
}
