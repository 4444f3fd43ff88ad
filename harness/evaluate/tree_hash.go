package evaluate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/zeebo/blake3"
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
// kinds, contents of files (their BLAKE3 hashes), and where links lead to. Nothing is followed. Permissions
// and times do not count. Files are read in parallel and streamed; memory grows with
// the number of entries only.
func HashTree(ctx context.Context, dir string, opts TreeOptions) (string, error) {
	memory := loadTreeMemory(opts.Memory)
	seen, err := hashTree(ctx, dir, opts.Workers, memory)
	if err != nil {
		return "", err
	}
	memory.save(opts.Memory)
	return seen.sum, nil
}

// snapshot is what was seen of a folder or a file.
type snapshot struct {
	// sum is its hash, and state one over what changes when anything in it does, even if
	// it is changed back.
	sum, state string
}

// hashTree is HashTree with a memory.
func hashTree(ctx context.Context, dir string, workers int, memory *treeMemory) (snapshot, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return snapshot{}, &sandbox.PathError{Field: "input", Path: dir, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return snapshot{}, &sandbox.PathError{Field: "input", Path: dir, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	defer root.Close()
	h := &treeHash{root: root, memory: memory}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(cmp.Or(workers, runtime.GOMAXPROCS(0)) + 1) // one of them walks
	group.Go(func() error { return h.walk(ctx, group, real) })
	if err := group.Wait(); err != nil {
		return snapshot{}, &sandbox.PathError{Field: "input", Path: dir, Rule: "cannot be hashed", Err: err}
	}
	return h.snapshot(), nil
}

// treeHash collects the entries of a tree.
type treeHash struct {
	root    *os.Root
	memory  *treeMemory
	mu      sync.Mutex
	entries []treeEntry
}

type treeEntry struct {
	path, kind, content, state string
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
		info, err := entry.Info()
		if err != nil {
			return err
		}
		state := stateOf(info)
		switch kind := entry.Type(); {
		case entry.IsDir():
			h.add(treeEntry{path: rel, kind: "dir", state: state})
		case kind.IsRegular():
			group.Go(func() error { return h.file(ctx, rel) })
		case kind&fs.ModeSymlink != 0:
			target, err := h.root.Readlink(rel)
			if err != nil {
				return err
			}
			h.add(treeEntry{path: rel, kind: "link", content: target, state: state})
		default:
			h.add(treeEntry{path: rel, kind: "special", content: kind.String(), state: state})
		}
		return nil
	})
}

// file hashes one file, or remembers its hash.
func (h *treeHash) file(ctx context.Context, rel string) error {
	info, err := h.root.Lstat(rel)
	if err != nil {
		return err
	}
	sum, ok := h.memory.recall(rel, info)
	if !ok {
		file, opened, err := fsx.OpenIn(h.root, rel)
		if err != nil {
			return err
		}
		defer file.Close()
		info = opened
		if sum, err = hashOpen(ctx, file, info, newTreeHash()); err != nil {
			return fmt.Errorf("%s: %w", rel, err)
		}
	}
	h.memory.remember(rel, info, sum, !ok)
	h.add(treeEntry{path: rel, kind: "file", content: sum, state: stateOf(info)})
	return nil
}

// newTreeHash is what the contents of a tree are hashed with: SHA-256 is slower than
// disks on processors that have no instructions for it.
func newTreeHash() hash.Hash { return blake3.New() }

// hashOpen hashes an open file that looked like info, and refuses one that changes
// meanwhile.
func hashOpen(ctx context.Context, file *os.File, info fs.FileInfo, sum hash.Hash) (string, error) {
	text, err := fsx.Sum(ctx, sum, file, info)
	if err != nil {
		return "", err
	}
	after, err := file.Stat()
	if err == nil && stateOf(after) != stateOf(info) {
		err = fsx.ErrChanged
	}
	return text, err
}

// hashFile is the SHA-256 of a regular file.
func hashFile(path string) (string, error) {
	file, err := fsx.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	return hashOpen(context.Background(), file, info, sha256.New())
}

// stateOf is what changes with an entry. Where the kernel's own times are not known, a
// change of the same size within the resolution of the clock, or with its time put back,
// is not seen.
func stateOf(info fs.FileInfo) string {
	if stamp, _, ok := stampOf(info); ok {
		return fmt.Sprint(info.Size(), stamp)
	}
	return fmt.Sprint(info.Size(), info.ModTime().UnixNano())
}

// snapshot is independent of the order in which the entries were found.
func (h *treeHash) snapshot() snapshot {
	slices.SortFunc(h.entries, func(a, b treeEntry) int { return cmp.Compare(a.path, b.path) })
	sum, state := sha256.New(), sha256.New()
	for _, e := range h.entries {
		// No name and no link holds a NUL byte.
		fmt.Fprintf(sum, "%s\x00%s\x00%s\x00", filepath.ToSlash(e.path), e.kind, e.content)
		fmt.Fprintf(state, "%s\x00%s\x00", filepath.ToSlash(e.path), e.state)
	}
	return snapshot{sum: hex.EncodeToString(sum.Sum(nil)), state: hex.EncodeToString(state.Sum(nil))}
}

// treeCache remembers what it has hashed. It looks at every entry each time that it is
// asked, and reads again what may have changed.
type treeCache struct {
	mu    sync.Mutex
	known map[string]*knownTree
}

// knownTree is what is remembered of one folder or file.
type knownTree struct {
	mu     sync.Mutex // who asks for the same one meanwhile waits
	memory *treeMemory
}

func (c *treeCache) at(path string) *knownTree {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]*knownTree{}
	}
	if c.known[path] == nil {
		c.known[path] = &knownTree{}
	}
	return c.known[path]
}

// of takes stock of a folder.
func (c *treeCache) of(ctx context.Context, dir string, opts TreeOptions) (snapshot, error) {
	known := c.at(dir)
	known.mu.Lock()
	defer known.mu.Unlock()
	memory := known.next(opts.Memory)
	seen, err := hashTree(ctx, dir, opts.Workers, memory)
	if err != nil {
		return snapshot{}, err
	}
	known.memory = memory
	memory.save(opts.Memory)
	return seen, nil
}

// ofFile takes stock of one file, with its name left out.
func (c *treeCache) ofFile(ctx context.Context, path string) (snapshot, error) {
	known := c.at(path)
	known.mu.Lock()
	defer known.mu.Unlock()
	memory := known.next("")
	file, err := fsx.Open(path)
	if err != nil {
		return snapshot{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return snapshot{}, err
	}
	sum, ok := memory.recall("", info)
	if !ok {
		if sum, err = hashOpen(ctx, file, info, newTreeHash()); err != nil {
			return snapshot{}, fmt.Errorf("%s: %w", path, err)
		}
	}
	memory.remember("", info, sum, !ok)
	known.memory = memory
	return snapshot{sum: sum, state: stateOf(info)}, nil
}

// next is a memory for the next look, which knows what the last one saw, or else what the
// file does.
func (k *knownTree) next(file string) *treeMemory {
	if k.memory == nil {
		return loadTreeMemory(file)
	}
	memory := loadTreeMemory("")
	memory.known = k.memory.seen
	return memory
}
