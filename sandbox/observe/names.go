package observe

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Bounds of the names that are shown in hidden directories: their number in a run, and
// their depth. Each name is a file, and each directory a watch of the kernel.
const (
	maxShownNames = 1000
	maxShownDepth = 8
)

// innerDir is a directory inside a watched one, and is watched as well.
type innerDir struct {
	source string
	watch  spec.WatchedPath
}

// namer shows the names of hidden files.
type namer struct {
	left  int
	inner []innerDir
	// cut says that there are more names than are shown.
	cut bool
}

// errEnoughNames ends a walk.
var errEnoughNames = errors.New("no more names are shown")

// showNames shows the names of hidden entries in working copies.
func (o *Observer) showNames(ctx context.Context, table spec.Layout) error {
	n := namer{left: maxShownNames}
	for i, w := range o.plan.Watched {
		if err := n.show(ctx, o.sources[spec.NumberedRole(spec.RoleWatch, i)], w, table); err != nil {
			return err
		}
	}
	o.inner = n.inner
	if n.cut {
		o.warn("hidden directories may have more names than the %d, in directories at most %d deep, that are shown: whether somebody opens one of the rest is not seen",
			maxShownNames, maxShownDepth)
	}
	return nil
}

// show creates canary files with the names of the entries that a watched path hides:
// otherwise there would be nothing to open, and an attempt would not be seen.
func (n *namer) show(ctx context.Context, source string, w spec.WatchedPath, table spec.Layout) error {
	entry, rel, ok := table.Lookup(w.Target)
	if !w.Names || !ok {
		return nil
	}
	err := fsx.InRoot(entry.Source, func(shown *os.Root) error {
		root, err := shown.OpenRoot(filepath.FromSlash(rel))
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed meanwhile
		}
		if err != nil {
			return err
		}
		err = fsx.Walk(ctx, root, func(name string, info fs.FileInfo) (bool, error) { return n.one(source, w, name, info) })
		return errors.Join(err, root.Close())
	})
	if err != nil && !errors.Is(err, errEnoughNames) {
		return &spec.PathError{Field: "mask", Path: filepath.Join(entry.Source, rel), Rule: "its names cannot be read", Err: fsx.Cause(err)}
	}
	return nil
}

// one creates the canary of one name, and reports whether those below it follow.
func (n *namer) one(source string, w spec.WatchedPath, name string, info fs.FileInfo) (into bool, err error) {
	if n.left == 0 {
		n.cut = true
		return false, errEnoughNames
	}
	n.left--
	canary := filepath.Join(source, filepath.FromSlash(name))
	if !info.IsDir() {
		return false, fsx.WriteReadable(canary, canaryText)
	}
	n.inner = append(n.inner, innerDir{canary, spec.WatchedPath{Target: path.Join(w.Target, name), Dir: true, Inner: true}})
	deepest := strings.Count(name, "/")+1 >= maxShownDepth
	n.cut = n.cut || deepest
	return !deepest, fsx.MkdirReadable(canary)
}
