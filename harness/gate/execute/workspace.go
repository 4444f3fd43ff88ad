package execute

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/repo"
	"github.com/evalbox/evalbox/internal/treehash"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// Limits of a workspace, beside the disk limit, which bounds its bytes. The sandbox has
// the same ones for what it copies.
const (
	maxEntries = 250_000
	maxDepth   = 200
)

// choice says what of a workspace the gates get: not what git administers, which changes
// without any file changing and is in no hash, and not what is excluded.
type choice struct{ left map[string]bool }

// choose looks at a workspace or baseline. In strict mode the gates get what git tracks of
// the workspace and nothing else, so that no file takes part that is in no commit; a
// folder of no repository is given whole.
func choose(ctx context.Context, m evidence.RunManifest, dir string) (choice, error) {
	c := choice{left: map[string]bool{}}
	names := m.Exclude
	if m.Mode.Strict && dir == m.Workspace {
		untracked, err := repo.Untracked(ctx, dir)
		if err != nil {
			return c, err
		}
		names = slices.Concat(names, untracked)
	}
	for _, name := range names {
		c.left[path.Clean(name)] = true
	}
	return c, nil
}

// leaves reports whether an entry is not given to gates.
func (c choice) leaves(name string, entry fs.DirEntry) bool {
	return entry.Name() == ".git" || c.left[name]
}

// HashWorkspace is the hash of what gates would get of the workspace of a manifest as it
// is now; see [treehash.Of]. It equals EnvSnapshot.Workspace if the gates got that.
func HashWorkspace(ctx context.Context, m evidence.RunManifest) (string, error) {
	c, err := choose(ctx, m, m.Workspace)
	if err != nil {
		return "", err
	}
	root, err := os.OpenRoot(m.Workspace)
	if err != nil {
		return "", err
	}
	defer root.Close()
	var left []string
	err = fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err = errors.Join(err, context.Cause(ctx)); err != nil || name == "." {
			return err
		}
		kind := entry.Type()
		if c.leaves(name, entry) || !kind.IsDir() && !kind.IsRegular() && kind != fs.ModeSymlink {
			left = append(left, name)
			if kind.IsDir() {
				return fs.SkipDir
			}
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("hash %s: %w", m.Workspace, err)
	}
	tree, err := treehash.Of(ctx, m.Workspace, treehash.Options{Exclude: left})
	return tree.Sum, err
}

// takeCopies copies the workspace and the baseline to a place of ours, once: all gates of
// all sets start from what was hashed, whatever is done to the originals meanwhile.
func (x *run) takeCopies(ctx context.Context) error {
	if err := x.apart(); err != nil {
		return err
	}
	temp, err := os.MkdirTemp(x.o.TempDir, "evalbox-gate-run-")
	if err != nil {
		return err
	}
	if x.temp, err = filepath.EvalSymlinks(temp); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	if x.workspace, err = x.takeCopy(ctx, "workspace", x.m.Workspace, evidence.ReasonNoWorkspace); err != nil || x.m.Baseline == "" {
		return err
	}
	x.baseline, err = x.takeCopy(ctx, "baseline", x.m.Baseline, evidence.ReasonIncomplete)
	return err
}

// apart refuses a workspace that holds what changes while gates run.
func (x *run) apart() error {
	temp := x.o.TempDir
	if temp == "" {
		temp = os.TempDir()
	}
	workspace, err := filepath.EvalSymlinks(x.m.Workspace)
	if err != nil {
		return nil //nolint:nilerr // told as a workspace that is not there
	}
	for _, place := range []struct{ what, dir, hint string }{
		{"the state folder", filepath.Dir(x.o.Store.RecordDir("run")), "with the records of runs; choose a state folder elsewhere (--state-dir), or exclude it in the wish"},
		{"the folder of temporary files", temp, "which the copy of the workspace goes to; set TMPDIR to a folder elsewhere"},
	} {
		abs, _ := filepath.Abs(place.dir) // fails only without a current directory
		rel, err := filepath.Rel(workspace, fsx.RealPath(abs))
		if err != nil || !filepath.IsLocal(rel) || within(filepath.ToSlash(rel), x.m.Exclude) {
			continue
		}
		return &sandbox.PathError{Field: "io_boundary", Path: x.m.Workspace, Rule: fmt.Sprintf("holds %s %s, %s", place.what, place.dir, place.hint)}
	}
	return nil
}

// within reports whether a path is one of these, or lies below one.
func within(name string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool {
		return fsx.Within(name, path.Clean(folder))
	})
}

// takeCopy copies one folder.
func (x *run) takeCopy(ctx context.Context, what, dir string, reason evidence.StopReason) (string, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", refuse(reason, 0, what, "is not there or no folder", err)
	}
	c, err := choose(ctx, x.m, dir)
	if err != nil {
		return "", err
	}
	into := filepath.Join(x.temp, what)
	if err := os.Mkdir(into, 0o755); err != nil {
		return "", err
	}
	from, err := os.OpenRoot(dir)
	if err != nil {
		return "", refuse(evidence.ReasonIncomplete, 0, what, "cannot be read: "+fsx.Cause(err).Error(), err)
	}
	defer from.Close()
	to, err := os.OpenRoot(into)
	if err != nil {
		return "", err
	}
	defer to.Close()
	err = fsx.Copy(ctx, from, to, fsx.CopyOptions{Leave: c.leaves, Entries: maxEntries, Depth: maxDepth, Bytes: diskBytes(x.m.TimeoutCaps)})
	if err == nil {
		err = openUp(to, x.m.ReadOnlyPaths)
	}
	return into, x.copyError(ctx, what, err)
}

// diskBytes is how much a workspace may hold.
func diskBytes(c evidence.Caps) int64 {
	if c.DiskBytes > 0 {
		return c.DiskBytes
	}
	return int64(policy.Default().Disk)
}

// copyError tells what is wrong with a workspace from what fails here.
func (x *run) copyError(ctx context.Context, what string, err error) error {
	var limit *fsx.LimitError
	var file *fs.PathError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, fsx.ErrChanged):
		return refuse(evidence.ReasonEnvironment, 0, what, "its files changed while they were copied: "+err.Error(), err)
	case errors.As(err, &limit):
		return refuse(evidence.ReasonIncomplete, 0, what, err.Error()+"; raise limits.disk in the wish, or exclude folders", err)
	case errors.As(err, &file) && errors.Is(err, fs.ErrPermission):
		return refuse(evidence.ReasonIncomplete, 0, what, "cannot be copied: "+err.Error(), err)
	}
	return fmt.Errorf("copying the %s: %w", what, err)
}

// openUp lets everybody read the read-only paths of a copy: they are mounted as they are,
// and the programs of a gate may run as another user than we do.
func openUp(root *os.Root, names []string) error {
	for _, name := range names {
		if !mountable(root, name) {
			continue
		}
		err := fs.WalkDir(root.FS(), path.Clean(name), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Type() != fs.ModeDir && !entry.Type().IsRegular() {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			mode := info.Mode().Perm() | 0o444
			if mode&0o111 != 0 || info.IsDir() {
				mode |= 0o111
			}
			return root.Chmod(name, mode)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// committed makes sure, in strict mode, that the copy is what the commit of the manifest
// says: the workspace may have changed since it was looked at. A replay has the hash of
// the recorded files instead.
func (x *run) committed(ctx context.Context) error {
	if !x.m.Mode.Strict || x.m.Mode.Replay {
		return nil
	}
	facts, differ, err := repo.StatusOf(ctx, x.m.Workspace, x.workspace, slices.Concat(x.m.Exclude, x.m.Uncounted))
	switch {
	case err != nil:
		return fmt.Errorf("the repository of the workspace: %w", err)
	case facts.Commit != x.m.Repo.Commit:
		return refuse(evidence.ReasonDirty, 0, x.m.Repo.Commit, fmt.Sprintf("The workspace is at the commit %q now, and the run is strict.", facts.Commit), nil)
	case facts.Dirty:
		return refuse(evidence.ReasonDirty, 0, differ[0], "The files that the gates would get are not those of the commit, and the run is strict: the workspace changed since it was looked at.", nil)
	}
	return nil
}
