package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// kernelTrees are no folders of files: what lies there acts when it is opened, or is
// a way to a service of the host.
var kernelTrees = []string{"/dev", "/proc", "/sys", "/run", "/var/run"}

// resolveMounts resolves the sources of mounts and trees, and the masks, and checks
// them with what is on disk. It changes nothing there.
func resolveMounts(ctx context.Context, req Request, stateDir string) (Request, error) {
	var errs []error
	req.Mounts, req.Trees = slices.Clone(req.Mounts), slices.Clone(req.Trees)
	for i := range req.Mounts {
		var err error
		req.Mounts[i].Source, err = resolveSource("mount", req.Mounts[i].Source, stateDir)
		errs = append(errs, err)
	}
	for i := range req.Trees {
		if req.Trees[i].Source == "" {
			continue
		}
		asked := req.Trees[i].Source
		real, err := resolveSource("tree", asked, stateDir)
		if err == nil && !isFolder(real) {
			err = &PathError{Field: "tree", Path: asked, Rule: "is not a folder"}
		}
		if err == nil {
			req.Trees[i].Exclude, err = resolveExclude(req.Trees[i].Exclude, asked, real)
		}
		req.Trees[i].Source = real
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return req, err
	}
	// What follows compares targets, which must be in order for that.
	if err := checkTargets(req, scriptName(req)); err != nil {
		return req, err
	}
	v := viewOf(req)
	if err := v.checkPoints(); err != nil {
		return req, err
	}
	req, err := v.resolveMasks(ctx, v.maskDecoys(req))
	if err == nil {
		req = v.resolveDecoys(req)
	}
	return req, errors.Join(err, v.checkWorkDir(orDefault(req.WorkDir, WorkDir)))
}

// resolveExclude makes absolute paths those of the resolved source.
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

// resolveSource refuses what no program may be shown, whoever asks: everything else is
// for the caller to decide.
func resolveSource(field, asked, stateDir string) (string, error) {
	if asked == "" {
		return "", &PathError{Field: field, Path: asked, Rule: spec.RuleMissing}
	}
	real, info, err := resolve(field, asked)
	if err != nil {
		return asked, err
	}
	refuse := func(rule string) (string, error) { return asked, &PathError{Field: field, Path: asked, Rule: rule} }
	switch {
	case !info.IsDir() && !info.Mode().IsRegular():
		return refuse("is neither a folder nor a regular file")
	case real == filepath.Dir(real):
		return refuse("is the root of a file system")
	case below(filepath.ToSlash(real), kernelTrees):
		return refuse("is a folder of the kernel or of running services")
	case slices.ContainsFunc(kernelTrees, func(tree string) bool { return isFolder(tree) && fsx.Within(realPath(tree), real) }):
		return refuse("holds a folder of the kernel or of running services")
	case fsx.Within(realPath(stateDir), real):
		return refuse("is or holds the state folder " + stateDir)
	case fsx.Within(real, realPath(stateDir)) && !isLeftover(real, realPath(stateDir)):
		return refuse("lies in the state folder " + stateDir + ", which holds the records of other runs")
	}
	if _, err := os.Stat(filepath.Join(real, "docker.sock")); err == nil {
		return refuse("holds docker.sock: whoever reaches that is root on this machine")
	}
	if err := checkAlone(field, asked, real); err != nil {
		return asked, err
	}
	if info.IsDir() {
		dir, err := os.Open(real)
		if err != nil {
			return asked, &PathError{Field: field, Path: asked, Rule: "cannot be read", Err: fsx.Cause(err)}
		}
		return real, dir.Close()
	}
	return real, nil
}

// isLeftover reports whether a path of the state folder is what a run left behind, and
// nothing else of its record.
func isLeftover(real, stateDir string) bool {
	rel, err := filepath.Rel(filepath.Join(stateDir, "runs"), real)
	parts := strings.Split(filepath.ToSlash(rel), "/")
	return err == nil && filepath.IsLocal(rel) && len(parts) >= 2 && (parts[1] == record.OwnFinal || parts[1] == record.KeptTrees && len(parts) >= 3)
}

// checkAlone refuses a folder with other file systems in it.
func checkAlone(field, asked, real string) error {
	below, err := mountsBelow(real)
	if err != nil {
		return &PathError{Field: field, Path: asked, Rule: "its mount points cannot be told", Err: fsx.Cause(err)}
	}
	if len(below) > 0 {
		return &PathError{Field: field, Path: asked,
			Rule: fmt.Sprintf("has the mount point %s in it, which would not be there inside; give a folder without", below[0])}
	}
	return nil
}

// checkEngineSource keeps the engine's data and its socket from programs.
func checkEngineSource(req Request, root, address string) error {
	socket, local := strings.CutPrefix(address, "unix://")
	var sources []string
	for _, m := range req.Mounts {
		sources = append(sources, m.Source)
	}
	for _, t := range req.Trees {
		if t.Source != "" {
			sources = append(sources, t.Source)
		}
	}
	for _, source := range sources {
		if root != "" && (fsx.Within(source, realPath(root)) || fsx.Within(realPath(root), source)) {
			return &PathError{Field: "mount", Path: source, Rule: "is, holds or lies in the engine's data folder " + root}
		}
		if local && fsx.Within(realPath(socket), source) {
			return &PathError{Field: "mount", Path: source, Rule: "holds the engine's socket: whoever reaches that is root on this machine"}
		}
	}
	return nil
}

// view is what a program sees of the host, by path inside the container.
type view []place

// place is one folder or file of the host inside the container.
type place struct {
	target, source string
	folder, tree   bool
}

func viewOf(req Request) view {
	var v view
	if req.Input != "" {
		v = append(v, place{target: InputDir, source: req.Input, folder: true})
	}
	for _, m := range req.Mounts {
		v = append(v, place{target: m.Target, source: m.Source, folder: isFolder(m.Source)})
	}
	for _, t := range req.Trees {
		v = append(v, place{target: t.Target, source: t.Source, folder: true, tree: true})
	}
	slices.SortFunc(v, func(a, b place) int { return byDepth(a.target, b.target) })
	return v
}

// at is the place that shows a path, and the path relative to it.
func (v view) at(inside string) (p place, rel string, ok bool) {
	for _, one := range v {
		if atOrInside(inside, one.target) && len(one.target) > len(p.target) {
			p, ok = one, true
		}
	}
	return p, relInside(inside, p.target), ok
}

// relInside is a path below a target, "." for the target itself.
func relInside(inside, target string) string {
	if inside == target {
		return "."
	}
	return strings.TrimPrefix(inside, target+"/")
}

// checkPoints makes sure that what lies in another place has something of its kind to
// be mounted on there. The engine would make it, as root, in a folder of the host.
func (v view) checkPoints() error {
	var errs []error
	for _, p := range v {
		outer, rel, ok := v.at(path.Dir(p.target))
		if !ok {
			continue
		}
		rel = path.Join(rel, path.Base(p.target))
		if !outer.folder {
			errs = append(errs, &policy.FieldError{Field: "mount", Value: fmt.Sprintf("%.200q", p.target), Rule: "lies in " + outer.target + ", which is a file"})
			continue
		}
		if outer.tree {
			continue // the copy is ours, and gets what is missing
		}
		info, err := lstatPlain(outer.source, rel)
		switch {
		case err != nil:
			errs = append(errs, &PathError{Field: "mount", Path: filepath.Join(outer.source, rel), Rule: "must be there for " + p.target + " to be mounted on it", Err: fsx.Cause(err)})
		case info.IsDir() != p.folder || !info.IsDir() && !info.Mode().IsRegular():
			errs = append(errs, &PathError{Field: "mount", Path: filepath.Join(outer.source, rel),
				Rule: "a folder can be mounted on a folder only, and a file on a file, without links: " + p.target})
		}
	}
	return errors.Join(errs...)
}

// errLink means that a path leads over a link.
var errLink = errors.New("leads over a link")

// lstatPlain looks at a path below a folder that leads over no link.
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

// checkWorkDir makes sure that the folder that the program starts in is there.
func (v view) checkWorkDir(dir string) error {
	p, rel, ok := v.at(dir)
	if !ok || p.source == "" && rel == "." {
		return nil
	}
	refuse := func(rule string) error {
		return &policy.FieldError{Field: "workdir", Value: fmt.Sprintf("%.200q", dir), Rule: rule}
	}
	if !p.folder || p.source == "" {
		return refuse("is not a folder of " + p.target)
	}
	root, err := os.OpenRoot(p.source)
	if err != nil {
		return &PathError{Field: "workdir", Path: p.source, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	defer root.Close()
	if info, err := root.Stat(rel); err != nil || !info.IsDir() {
		return refuse("is not a folder of " + p.source)
	}
	return nil
}
