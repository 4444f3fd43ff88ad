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

// pinned is a file or directory of the host as it was when it was checked. The engine
// mounts by name, and later. Somebody who may rename files there could meanwhile replace
// it with a link or another file.
type pinned struct {
	field, path string
	info        fs.FileInfo
	// target is its path in the container; empty if it is not compared.
	target string
	// copied says that the program gets a copy; only the file that was copied matters.
	copied bool
}

const ruleReplaced = "was replaced while the run was prepared"

// resolveAll resolves and checks all host paths of a request, and records the files that
// they refer to. It changes nothing on disk.
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

// pin records the files that the mounts of a request refer to, and those that its masks
// hide. The paths of the request must be resolved.
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
			target = "" // the program may rename the enclosing directory
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

// check verifies that the path still refers to the same file, without a link.
func (p pinned) check() error {
	now, err := os.Lstat(p.path)
	if err == nil && os.SameFile(now, p.info) && realPath(p.path) == p.path {
		return nil
	}
	return &PathError{Field: p.field, Path: p.path, Rule: ruleReplaced}
}

// checkPinned checks all paths again.
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

// checked verifies that an open directory, or a name in it, is still the file pinned for
// that path. Reading through the open directory then cannot reach another file.
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

// checkMounted compares what the container's init sees at its mounts with the host's
// files: the engine mounts by name, and may have another file system. A runtime with its
// own kernel has its own inode numbers, but shows the time of a file's last change.
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

// pinnedAt returns the pinned file at a path.
func (a *attempt) pinnedAt(path string) (pinned, bool) {
	i := slices.IndexFunc(a.pinned, func(p pinned) bool { return p.path == path && p.field != "mask" && !p.copied })
	if i < 0 {
		return pinned{}, false
	}
	return a.pinned[i], true
}
