package evaluate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/evalbox/evalbox/sandbox"
)

// TreeOptions steer [HashTree]. The zero value is useful.
type TreeOptions struct {
	// Workers is how many files are read at once; 0 is the number of processors.
	Workers int
	// Memory is a file that remembers the hashes of files, so that those are not
	// read again as long as their size, times and inode are the same; empty is no
	// memory. It is made if it is missing, and one that cannot be used is not.
	Memory string
}

// HashTree returns a SHA-256 over all that a program could read in a folder: names,
// kinds, contents of files, and where links lead to. Nothing is followed. Permissions
// and times do not count. Files are read in parallel and streamed; memory grows with
// the number of entries only.
func HashTree(ctx context.Context, dir string, opts TreeOptions) (string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", &sandbox.PathError{Field: "input", Path: dir, Rule: "cannot be read", Err: cause(err)}
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return "", &sandbox.PathError{Field: "input", Path: dir, Rule: "cannot be read", Err: cause(err)}
	}
	defer root.Close()
	h := &treeHash{root: root, memory: loadTreeMemory(opts.Memory)}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(cmp.Or(opts.Workers, runtime.GOMAXPROCS(0)) + 1) // one of them walks
	group.Go(func() error { return h.walk(ctx, group, real) })
	if err := group.Wait(); err != nil {
		return "", &sandbox.PathError{Field: "input", Path: dir, Rule: "cannot be hashed", Err: err}
	}
	h.memory.save(opts.Memory)
	return h.sum(), nil
}

// treeHash collects the entries of a tree.
type treeHash struct {
	root    *os.Root
	memory  *treeMemory
	mu      sync.Mutex
	entries []treeEntry
}

type treeEntry struct {
	path, kind, content string
}

func (h *treeHash) add(e treeEntry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.entries = append(h.entries, e)
}

// walk visits every entry, and has the files read by the group.
func (h *treeHash) walk(ctx context.Context, group *errgroup.Group, dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err = errors.Join(err, context.Cause(ctx)); err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch kind := entry.Type(); {
		case entry.IsDir():
			h.add(treeEntry{path: rel, kind: "dir"})
		case kind.IsRegular():
			group.Go(func() error { return h.file(ctx, rel) })
		case kind&fs.ModeSymlink != 0:
			target, err := h.root.Readlink(rel)
			if err != nil {
				return err
			}
			h.add(treeEntry{path: rel, kind: "link", content: target})
		default:
			h.add(treeEntry{path: rel, kind: "special", content: kind.String()})
		}
		return nil
	})
}

// file hashes one file, or remembers its hash.
func (h *treeHash) file(ctx context.Context, rel string) error {
	file, info, err := openIn(h.root, rel)
	if err != nil {
		return err
	}
	defer file.Close()
	sum, ok := h.memory.recall(rel, info)
	if !ok {
		hash := sha256.New()
		n, err := io.CopyBuffer(hash, &contextReader{ctx, file}, make([]byte, 256<<10))
		if err != nil {
			return err
		}
		if n != info.Size() {
			return fmt.Errorf("%s changed while it was read", rel)
		}
		sum = hex.EncodeToString(hash.Sum(nil))
	}
	h.memory.remember(rel, info, sum)
	h.add(treeEntry{path: rel, kind: "file", content: sum})
	return nil
}

// sum is independent of the order in which the entries were found.
func (h *treeHash) sum() string {
	slices.SortFunc(h.entries, func(a, b treeEntry) int { return cmp.Compare(a.path, b.path) })
	hash := sha256.New()
	for _, e := range h.entries {
		// No name and no link holds a NUL byte.
		fmt.Fprintf(hash, "%s\x00%s\x00%s\x00", filepath.ToSlash(e.path), e.kind, e.content)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// contextReader ends with its context.
type contextReader struct {
	ctx context.Context //nolint:containedctx // lives as long as the one read that it interrupts
	r   io.Reader
}

func (r *contextReader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// treeCache holds the hashes of folders that do not change while an evaluator lives.
type treeCache struct {
	mu   sync.Mutex
	sums map[string]string
}

// of hashes a folder once. Who asks meanwhile waits.
func (c *treeCache) of(ctx context.Context, dir string, opts TreeOptions) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sum, ok := c.sums[dir]; ok {
		return sum, nil
	}
	sum, err := HashTree(ctx, dir, opts)
	if err != nil {
		return "", err
	}
	if c.sums == nil {
		c.sums = map[string]string{}
	}
	c.sums[dir] = sum
	return sum, nil
}

// ofFile is of for one file, with its name left out.
func (c *treeCache) ofFile(ctx context.Context, path string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sum, ok := c.sums[path]; ok {
		return sum, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, &contextReader{ctx, file}); err != nil {
		return "", err
	}
	if c.sums == nil {
		c.sums = map[string]string{}
	}
	c.sums[path] = hex.EncodeToString(hash.Sum(nil))
	return c.sums[path], nil
}
