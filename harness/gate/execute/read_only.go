package execute

import (
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/spec"

	"github.com/evalbox/evalbox/sandbox"
)

// mountable reports whether a read-only path of a copy can be mounted. What is a link, or
// lies behind one, is no place to mount anything on: that it was changed is seen
// afterwards, as of a path that is not there yet.
func mountable(root *os.Root, name string) bool {
	info, err := fsx.LstatBelow(root, filepath.FromSlash(path.Clean(name)))
	return err == nil && (info.IsDir() || info.Mode().IsRegular())
}

// readOnly are the mounts that keep a gate from changing the read-only paths of its copy
// at any time, and not only at its end. What is hidden is not shown by them.
func (x *run) readOnly(source string) ([]sandbox.Mount, error) {
	var mounts []sandbox.Mount
	if len(x.m.ReadOnlyPaths) == 0 {
		return nil, nil
	}
	root, err := os.OpenRoot(source)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	names := slices.Clone(x.m.ReadOnlyPaths)
	slices.Sort(names)
	var mounted []string
	for _, name := range names {
		name = path.Clean(name)
		if within(name, mounted) || within(name, x.m.ProtectedPaths) || !mountable(root, name) {
			continue
		}
		mounted = append(mounted, name)
		mounts = append(mounts, sandbox.Mount{Source: filepath.Join(source, filepath.FromSlash(name)), Target: path.Join(spec.RepoDir, name)})
	}
	return mounts, nil
}
