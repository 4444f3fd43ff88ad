package wish

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

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/zeebo/blake3"
	"golang.org/x/sync/errgroup"
)

// maxTreeEntries bounds a tree: the memory of its hash grows with the number of entries.
const maxTreeEntries = 2_000_000

// HashTree is a SHA-256 over what a program can find in a folder: names, kinds, contents
// (by their BLAKE3), whether files may be executed, and where links lead to. Nothing is
// followed below dir; owners and times do not count. A file that changes while it is
// read is an error, so that no hash stands for something that never was there. exclude
// are paths below dir, with forward slashes, that do not count, nor what is in them.
func HashTree(ctx context.Context, dir string, exclude ...string) (string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("hash %s: %w", dir, err)
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return "", fmt.Errorf("hash %s: %w", dir, err)
	}
	defer root.Close()
	t := &treeHash{root: root, exclude: map[string]bool{}}
	for _, name := range exclude {
		if clean := path.Clean(name); clean != "." { // nothing is not a tree
			t.exclude[clean] = true
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(runtime.GOMAXPROCS(0) + 1) // one of them walks
	group.Go(func() error { return t.walk(ctx, group) })
	if err := group.Wait(); err != nil {
		return "", fmt.Errorf("hash %s: %w", dir, err)
	}
	return t.sum(), nil
}

type treeHash struct {
	root    *os.Root
	exclude map[string]bool
	mu      sync.Mutex
	entries []treeEntry
}

type treeEntry struct{ path, kind, content string }

func (t *treeHash) add(e treeEntry) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.entries) == maxTreeEntries {
		return fmt.Errorf("has more than %d entries", maxTreeEntries)
	}
	t.entries = append(t.entries, e)
	return nil
}

func (t *treeHash) walk(ctx context.Context, group *errgroup.Group) error {
	return fs.WalkDir(t.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err = errors.Join(err, context.Cause(ctx)); err != nil {
			return err
		}
		switch kind := entry.Type(); {
		case t.exclude[name] && kind.IsDir():
			return fs.SkipDir
		case t.exclude[name]:
			return nil
		case kind.IsDir():
			return t.add(treeEntry{name, "dir", ""})
		case kind.IsRegular():
			group.Go(func() error { return t.file(ctx, name) })
			return nil
		case kind&fs.ModeSymlink != 0:
			target, err := t.root.Readlink(name)
			return cmp.Or(err, t.add(treeEntry{name, "link", target}))
		default:
			return t.add(treeEntry{name, "special", fsx.Kind(kind)})
		}
	})
}

func (t *treeHash) file(ctx context.Context, name string) error {
	file, info, err := fsx.OpenIn(t.root, name)
	if err != nil {
		return err
	}
	defer file.Close()
	sum, err := fsx.Sum(ctx, blake3.New(), file, info)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	kind := "file"
	if info.Mode()&0o111 != 0 {
		kind = "program"
	}
	return t.add(treeEntry{name, kind, sum})
}

// sum does not depend on the order in which the entries were found.
func (t *treeHash) sum() string {
	slices.SortFunc(t.entries, func(a, b treeEntry) int { return cmp.Compare(a.path, b.path) })
	sum := sha256.New()
	for _, e := range t.entries {
		// No name and no link holds a NUL byte.
		fmt.Fprintf(sum, "%s\x00%s\x00%s\x00", e.path, e.kind, e.content)
	}
	return hex.EncodeToString(sum.Sum(nil))
}
