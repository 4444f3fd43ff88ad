package hostpath

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// kernelTrees do not hold ordinary files: opening an entry there may have an effect, or
// leads to a service of the host.
var kernelTrees = []string{"/dev", "/proc", "/sys", "/run", "/var/run"}

// table is a mount table whose sources are resolved.
type table struct{ spec.Layout }

// resolveMounts resolves the sources of mounts and trees, makes the mount table, resolves
// the masks, and checks the table against the files on disk.
func (p Protected) resolveMounts(ctx context.Context, req spec.Request) (spec.Layout, error) {
	var errs []error
	req.Mounts, req.Trees = slices.Clone(req.Mounts), slices.Clone(req.Trees)
	for i := range req.Mounts {
		var err error
		req.Mounts[i].Source, err = p.resolveSource("mount", req.Mounts[i].Source)
		errs = append(errs, err)
	}
	for i := range req.Trees {
		if req.Trees[i].Source == "" {
			continue
		}
		asked := req.Trees[i].Source
		real, err := p.resolveSource("tree", asked)
		if err == nil && !fsx.IsDir(real) {
			err = &spec.PathError{Field: "tree", Path: asked, Rule: "is not a directory"}
		}
		if err == nil {
			req.Trees[i].Exclude, err = resolveExclude(req.Trees[i].Exclude, asked, real)
		}
		req.Trees[i].Source = real
		errs = append(errs, err)
	}
	if err := policy.Join(errs...); err != nil {
		return spec.Layout{}, err
	}
	layout, err := spec.NewLayout(req)
	if err != nil {
		return spec.Layout{}, err
	}
	t := table{layout}
	for i, e := range t.Entries {
		t.Entries[i].Dir = e.Dir || fsx.IsDir(e.Source)
	}
	if err := t.checkPoints(); err != nil {
		return spec.Layout{}, err
	}
	if err = t.resolveMasks(ctx); err == nil {
		t.resolveCanaries()
	}
	return t.Layout, policy.Join(err, t.checkWorkDir(cmp.Or(req.WorkDir, spec.WorkDir)))
}

// resolveExclude makes absolute paths relative to the source, as it was named or resolved.
func resolveExclude(exclude []string, asked, real string) ([]string, error) {
	resolved := slices.Clone(exclude)
	abs, err := filepath.Abs(asked)
	if err != nil {
		return nil, err
	}
	for i, name := range resolved {
		if rel, err := filepath.Rel(abs, name); filepath.IsAbs(name) && err == nil && filepath.IsLocal(rel) {
			resolved[i] = rel
		} else if rel, err := filepath.Rel(real, name); filepath.IsAbs(name) && err == nil {
			resolved[i] = rel
		}
	}
	return resolved, nil
}

// resolveSource refuses the files that no program may see. All others are the caller's
// decision.
func (p Protected) resolveSource(field, asked string) (string, error) {
	if asked == "" {
		return "", &spec.PathError{Field: field, Path: asked, Rule: spec.RuleMissing}
	}
	real, info, err := p.resolve(field, asked)
	if err != nil {
		return asked, err
	}
	refuse := func(rule string) (string, error) {
		return asked, &spec.PathError{Field: field, Path: asked, Rule: rule}
	}
	switch {
	case !info.IsDir() && !info.Mode().IsRegular():
		return refuse("is neither a directory nor a regular file")
	case real == filepath.Dir(real):
		return refuse("is the root of a file system")
	case below(filepath.ToSlash(real), kernelTrees):
		return refuse("is a directory of the kernel or of running services")
	case slices.ContainsFunc(kernelTrees, func(tree string) bool { return fsx.IsDir(tree) && fsx.Within(fsx.RealPath(tree), real) }):
		return refuse("holds a directory of the kernel or of running services")
	case fsx.Within(fsx.RealPath(p.StateDir), real):
		return refuse("is or holds the state directory " + p.StateDir)
	case fsx.Within(real, fsx.RealPath(p.StateDir)) && !p.isOutput(real) && !p.isOwnTemp(real):
		return refuse("lies in the state directory " + p.StateDir + ", which holds the records of other runs")
	}
	err = checkContent(field, asked, real)
	if err == nil && info.IsDir() {
		err = checkReadable(field, asked, real)
	}
	if err != nil {
		return asked, err
	}
	return real, nil
}

// isOutput reports whether a path of the state directory is an output of an earlier run.
func (p Protected) isOutput(real string) bool {
	rel, err := filepath.Rel(fsx.RealPath(p.StateDir), real)
	return err == nil && p.Output != nil && p.Output(filepath.ToSlash(rel))
}

// CheckEngine refuses a mount table that shows the engine's data or its socket. root is the
// engine's data directory, empty if it is not on this machine or not known; address is that
// of its socket. The error is a [*spec.PathError].
func CheckEngine(layout spec.Layout, root, address string) error {
	real := fsx.RealPath(root)
	inRoot := func(path string) bool {
		return root != "" && path != "" && (fsx.Within(path, real) || fsx.Within(real, path))
	}
	socket, local := strings.CutPrefix(address, "unix://")
	if inRoot(layout.Final) {
		return &spec.PathError{Field: "final", Path: layout.Final, Rule: "is, holds or lies in the engine's data directory " + root}
	}
	for _, e := range layout.Entries {
		field := "mount"
		if e.Role == spec.RoleInput {
			field = "input"
		}
		if inRoot(e.Source) {
			return &spec.PathError{Field: field, Path: e.Source, Rule: "is, holds or lies in the engine's data directory " + root}
		}
		if local && e.Role != spec.RoleInput && e.Source != "" && fsx.Within(fsx.RealPath(socket), e.Source) {
			return &spec.PathError{Field: field, Path: e.Source, Rule: "holds the engine's socket: access to it is root on this machine"}
		}
	}
	return nil
}

// checkPoints makes sure that an entry that lies in another one has something of its kind
// to be mounted on. The engine would create it, as root, in a directory of the host.
func (t table) checkPoints() error {
	var errs []error
	for _, e := range t.Entries {
		outer, rel, ok := t.Lookup(path.Dir(e.Target))
		if !ok {
			continue
		}
		rel = path.Join(rel, path.Base(e.Target))
		if !outer.Dir {
			errs = append(errs, &policy.FieldError{Field: "mount", Value: fmt.Sprintf("%.200q", e.Target), Rule: "lies in " + outer.Target + ", which is a file"})
			continue
		}
		if outer.Role == spec.RoleTree {
			continue // the copy gets what is missing
		}
		info, err := lstatPlain(outer.Source, rel)
		switch {
		case err != nil:
			errs = append(errs, &spec.PathError{Field: "mount", Path: filepath.Join(outer.Source, rel), Rule: "must be there for " + e.Target + " to be mounted on it", Err: fsx.Cause(err)})
		case info.IsDir() != e.Dir || !info.IsDir() && !info.Mode().IsRegular():
			errs = append(errs, &spec.PathError{Field: "mount", Path: filepath.Join(outer.Source, rel),
				Rule: "a directory can be mounted on a directory only, and a file on a file, without links: " + e.Target})
		}
	}
	return policy.Join(errs...)
}

// errLink means that a path leads over a link.
var errLink = errors.New("leads over a link")

// lstatPlain is Lstat of a path below a directory. It refuses links on the way.
func lstatPlain(dir, rel string) (info fs.FileInfo, err error) {
	at := dir
	for _, name := range strings.Split(rel, "/") {
		at = filepath.Join(at, name)
		if info, err = os.Lstat(at); err != nil {
			return nil, err
		}
		if info.Mode()&fs.ModeSymlink != 0 {
			return nil, errLink
		}
	}
	return info, nil
}

// checkWorkDir makes sure that the directory that the program starts in exists.
func (t table) checkWorkDir(dir string) error {
	e, rel, ok := t.Lookup(dir)
	if !ok || e.Source == "" && rel == "." {
		return nil
	}
	refuse := func(rule string) error {
		return &policy.FieldError{Field: "workdir", Value: fmt.Sprintf("%.200q", dir), Rule: rule}
	}
	if !e.Dir || e.Source == "" {
		return refuse("is not a directory of " + e.Target)
	}
	root, err := os.OpenRoot(e.Source)
	if err != nil {
		return &spec.PathError{Field: "workdir", Path: e.Source, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	defer root.Close()
	if info, err := root.Stat(rel); err != nil || !info.IsDir() {
		return refuse("is not a directory of " + e.Source)
	}
	return nil
}
