// Package treehash computes digests of directory trees. There is one format: a SHA-256 over
// the path, kind and content of each entry, in the order of the paths.
package treehash

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
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
	// Each, if set, gets every entry but the directory itself, in the order of the paths: its
	// path, and a text that differs if its kind or its content does.
	Each func(name, content string)
}

// A Digest is the fingerprint of a tree or file.
type Digest struct {
	// Sum is the digest of the content, in hexadecimal.
	Sum string
	// State is a digest of sizes, inodes and times. It changes with every change, even if a
	// later change restores the content.
	State string
}

// entry is one entry of a tree.
type entry struct {
	path  string // relative to the directory, with forward slashes; "." is the directory
	kind  string
	value string // the BLAKE3 of a file in hexadecimal, the target of a link, or the kind of a special file
	state string
}

type walk struct {
	root    *os.Root
	memory  *Memory
	mu      sync.Mutex
	entries []entry
}

// Of returns the digest of a directory. Names, kinds, contents, execute permissions of files
// and targets of links count; owners, times and other permissions do not. dir may be a link;
// nothing is followed below it. A file that changes while it is read is an error. Files are
// read in parallel.
func Of(ctx context.Context, dir string, opts Options) (digest Digest, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("hash %s: %w", dir, err)
		}
	}()
	root, err := fsx.OpenRoot(dir)
	if err != nil {
		return Digest{}, err
	}
	defer root.Close()
	top, err := root.Lstat(".")
	if err != nil {
		return Digest{}, err
	}
	w := &walk{root: root, memory: opts.Memory, entries: []entry{{path: ".", kind: "dir", state: stateOf(top)}}}
	exclude := map[string]bool{}
	for _, name := range opts.Exclude {
		exclude[path.Clean(name)] = true
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0) + 1) // one of them walks
	group.Go(func() error {
		return fsx.Walk(ctx, root, func(name string, info fs.FileInfo) (into bool, err error) {
			if exclude[name] || opts.Leave != nil && opts.Leave(name, info.Mode()) {
				return false, nil
			}
			return info.IsDir(), w.entry(ctx, group, name, info)
		})
	})
	if err := group.Wait(); err != nil {
		return Digest{}, err
	}
	slices.SortFunc(w.entries, func(a, b entry) int { return cmp.Compare(a.path, b.path) })
	w.memory.keep(w.entries)
	sum, state := sha256.New(), sha256.New()
	for _, e := range w.entries { // names and targets of links do not contain NUL bytes
		fmt.Fprintf(sum, "%s\x00%s\x00%s\x00", e.path, e.kind, e.value)
		fmt.Fprintf(state, "%s\x00%s\x00", e.path, e.state)
		if opts.Each != nil && e.path != "." {
			opts.Each(e.path, strings.TrimSuffix(e.kind+" "+e.value, " "))
		}
	}
	return Digest{Sum: fmt.Sprintf("%x", sum.Sum(nil)), State: fmt.Sprintf("%x", state.Sum(nil))}, nil
}

// entry adds an entry. The group hashes files.
func (w *walk) entry(ctx context.Context, group *errgroup.Group, name string, info fs.FileInfo) (err error) {
	e := entry{path: name, state: stateOf(info)}
	switch mode := info.Mode(); {
	case mode.IsRegular():
		e.kind = "file"
		if mode&0o111 != 0 {
			e.kind = "program"
		}
		group.Go(func() (err error) {
			e.value, err = w.memory.sum(name, info, func() (string, error) {
				file, opened, err := fsx.OpenListed(w.root, name, info)
				if err != nil {
					return "", err
				}
				return sumOpen(ctx, file, opened)
			})
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return w.add(e)
		})
		return nil
	case mode.IsDir():
		e.kind = "dir"
	case mode&fs.ModeSymlink != 0:
		e.kind = "link"
		e.value, err = w.root.Readlink(name)
	default:
		e.kind, e.value = "special", fsx.Kind(mode)
	}
	return errors.Join(err, w.add(e))
}

func (w *walk) add(e entry) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.entries) == maxEntries {
		return fmt.Errorf("has more than %d entries", maxEntries)
	}
	w.entries = append(w.entries, e)
	return nil
}

// File returns the digest of a regular file; its name does not count.
func File(ctx context.Context, name string) (Digest, error) {
	file, err := fsx.Open(name)
	if err != nil {
		return Digest{}, err
	}
	info, err := file.Stat()
	if err != nil {
		return Digest{}, errors.Join(err, file.Close())
	}
	sum, err := sumOpen(ctx, file, info)
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

// stateOf changes with a file. Where the kernel does not say when an inode changed, a change
// of the same size within the resolution of the clock is not seen.
func stateOf(info fs.FileInfo) string {
	stamp, _ := stampOf(info)
	return fmt.Sprint(info.Size(), stamp)
}
