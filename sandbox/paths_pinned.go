package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/owner"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// pinned is a file or folder of the host as it was when it was checked. The engine
// mounts by name, and later: whoever may rename things there could put a link, or
// something else, in its place meanwhile.
type pinned struct {
	field, path string
	info        fs.FileInfo
	// target is where a container shows it; empty where that is not looked at.
	target string
	// copied says that the program gets a copy: what matters is what was copied.
	copied bool
}

const ruleReplaced = "was replaced while the run was prepared"

// resolveAll resolves and checks all host paths of a request, and remembers what they
// stand for. It changes nothing on disk.
func resolveAll(ctx context.Context, req Request, stateDir string) (Request, []pinned, error) {
	req, err := resolvePaths(req, stateDir)
	if err == nil {
		req, err = resolveMounts(ctx, req, stateDir)
	}
	if err != nil {
		return req, nil, err
	}
	all, err := pin(req)
	return req, all, err
}

// pin remembers what the mounts of a request stand for, and what the masks hide in
// them. The paths of the request are resolved.
func pin(req Request) ([]pinned, error) {
	var all []pinned
	add := func(field, path, target string, copied bool) error {
		info, err := os.Lstat(path)
		if err != nil {
			return pathProblem(field, path, err)
		}
		all = append(all, pinned{field, path, info, target, copied})
		return nil
	}
	trees := make([]string, 0, len(req.Trees))
	for _, t := range req.Trees {
		trees = append(trees, t.Target)
	}
	v := viewOf(req)
	for _, p := range v {
		if p.source == "" {
			continue
		}
		field, target := "mount", p.target
		switch {
		case p.tree:
			field = "tree"
		case p.target == InputDir:
			field = "input"
		}
		if enclosing(target, trees) != "" {
			target = "" // the program may rename what encloses it
		}
		if err := add(field, p.source, target, p.tree); err != nil {
			return nil, err
		}
	}
	for _, mask := range req.Masks {
		p, rel, ok := v.at(strings.TrimSuffix(mask, "/"))
		if !ok || p.tree || p.source == "" || rel == "." {
			continue
		}
		if err := add("mask", filepath.Join(p.source, filepath.FromSlash(rel)), "", false); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// check makes sure that the name stands for the same thing still, without a link.
func (p pinned) check() error {
	now, err := os.Lstat(p.path)
	if err == nil && os.SameFile(now, p.info) && realPath(p.path) == p.path {
		return nil
	}
	return &PathError{Field: p.field, Path: p.path, Rule: ruleReplaced}
}

// checkPinned looks at all names again.
func (a *attempt) checkPinned() error {
	for _, p := range a.pinned {
		if p.copied {
			continue
		}
		if err := p.check(); err != nil {
			return err
		}
	}
	return nil
}

// checked makes sure that a folder that was opened, or a name in it, is what was
// pinned by that path. What is read through the open folder then is nothing else.
func (a *attempt) checked(source, name string, do func(*os.Root) error) func(*os.Root) error {
	return func(root *os.Root) error {
		for _, p := range a.pinned {
			if p.path != source || p.field == "mask" {
				continue
			}
			if now, err := root.Lstat(name); err != nil || !os.SameFile(now, p.info) {
				return &PathError{Field: p.field, Path: p.path, Rule: ruleReplaced}
			}
		}
		return do(root)
	}
}

// checkMounted compares what the container's init sees at its mounts with our files: the
// engine mounts by name, and may have a file system of its own. A runtime with a kernel of
// its own has its own numbers, but shows when a file was changed last.
func (a *attempt) checkMounted(ctx context.Context) error {
	if a.copies() {
		return nil
	}
	if err := a.checkPinned(); err != nil {
		return err
	}
	ready := a.container.Ready()
	sameKernel := ready.BootID == owner.BootID()
	if !sameKernel && !spec.OwnKernel(a.spec.Class.Runtime) {
		return a.notShared(ctx, false, errors.New("it is on another machine"))
	}
	same := 0
	var differs error
	for _, bind := range a.spec.Class.Binds {
		inside, known := ready.Stats[bind.Target]
		if !known || inside.Errno != 0 {
			continue
		}
		source := a.work.paths[bind.Role]
		if info, err := os.Lstat(source); err == nil && sameFile(info, inside, sameKernel) {
			same++
			continue
		}
		if p, ok := a.pinnedAt(source); ok && p.check() != nil {
			return &PathError{Field: p.field, Path: p.path, Rule: ruleReplaced}
		}
		differs = fmt.Errorf("%s is not %q of this machine", bind.Target, source)
	}
	if differs != nil {
		return a.notShared(ctx, same > 0, differs)
	}
	return nil
}

// pinnedAt is what was checked by that path.
func (a *attempt) pinnedAt(path string) (pinned, bool) {
	i := slices.IndexFunc(a.pinned, func(p pinned) bool { return p.path == path && p.field != "mask" && !p.copied })
	if i < 0 {
		return pinned{}, false
	}
	return a.pinned[i], true
}
