package sandbox

import (
	"context"
	"errors"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/stage/archive"

	"github.com/evalbox/evalbox/sandbox/tree"

	"github.com/evalbox/evalbox/sandbox/collect"

	"github.com/evalbox/evalbox/result"
)

// treeDir is a tree's folder of the depot.
func treeDir(i int) string { return path.Join(archive.TreesDir, strconv.Itoa(i)) }

// hiddenIn says what of a mount is hidden: it is not sent to another machine at all.
func (a *attempt) hiddenIn(target string) func(name string) bool {
	var hidden tree.Paths
	for _, mask := range a.spec.Class.Masks {
		if spec.Below(mask.Target, target) {
			hidden = append(hidden, spec.Rel(mask.Target, target))
		}
	}
	return hidden.Has
}

// packMounts packs what hides files, and the further mounts.
func (a *attempt) packMounts(ctx context.Context, packer *archive.Packer) error {
	if len(a.spec.Class.Masks) > 0 {
		if err := packer.Empty(archive.EmptyFile); err != nil {
			return err
		}
	}
	if len(a.spec.Job.Mounts) == 0 {
		return nil
	}
	if err := packer.Folder(archive.MountsDir, 0, 0, 0o555); err != nil {
		return err
	}
	for i, m := range a.spec.Job.Mounts {
		name, dir, checked := path.Join(archive.MountsDir, strconv.Itoa(i)), m.Source, "."
		pack := func(root *os.Root) error { return packer.Tree(ctx, name, root, a.hiddenIn(m.Target)) }
		if !fsx.IsDir(m.Source) {
			dir, checked = filepath.Dir(m.Source), filepath.Base(m.Source)
			pack = func(root *os.Root) error { return packer.File(name, root, filepath.Base(m.Source)) }
		}
		before := len(packer.Omitted)
		if err := withFolder("mount", dir, a.verified.Guard(m.Source, checked, pack)); err != nil {
			return err
		}
		for _, omitted := range packer.Omitted[before:] {
			a.warnings = append(a.warnings, "left out of "+m.Target+": "+omitted)
		}
		packer.Omitted = packer.Omitted[:before]
	}
	return nil
}

// packPoints packs what something is mounted on.
func packPoints(packer *archive.Packer, dir string, points map[string]bool) error {
	made := map[string]bool{}
	var folder func(name string) error
	folder = func(name string) error {
		if name == "." || made[name] {
			return nil
		}
		made[name] = true
		return errors.Join(folder(path.Dir(name)), packer.Folder(path.Join(dir, name), 0, 0, 0o555))
	}
	for _, name := range tree.SortedKeys(points) {
		err := folder(path.Dir(name))
		if points[name] {
			err = errors.Join(err, folder(name))
		} else {
			err = errors.Join(err, packer.Empty(path.Join(dir, name)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// packTrees packs the copies that the program may change.
func (a *attempt) packTrees(ctx context.Context, packer *archive.Packer, uid, gid int) error {
	if len(a.work.trees) == 0 {
		return nil
	}
	if err := packer.Folder(archive.TreesDir, 0, 0, 0o755); err != nil {
		return err
	}
	left := treeLimits(a.spec.Job)
	for i, t := range a.work.trees {
		if err := packer.Folder(treeDir(i), uid, gid, 0o755); err != nil {
			return err
		}
		if err := a.copyTree(ctx, i, t, packer.Sink(treeDir(i), uid, gid), &left); err != nil {
			return err
		}
	}
	return nil
}

// fetchTree brings a tree back from the engine. What comes is an archive that a
// stranger wrote.
func (a *attempt) fetchTree(ctx context.Context, i int, t *runTree) (tree.Now, error) {
	limits := outputLimits(a.spec.Job)
	wide := limits
	wide.Files, wide.Depth = limits.Files+len(t.base), max(limits.Depth, t.base.Depth()+1)
	others := tree.Now{Entries: map[string]tree.Entry{}, Left: map[string]result.SkippedOutput{}}
	unpacker := archive.NewUnpacker(t.root, treeDir(i), wide, a.room)
	unpacker.Known = func(name string, size int64) bool {
		was := t.base[name]
		return was.Kind == tree.KindFile && was.Size == size
	}
	whole := true
	unpacker.Refused = func(name, kind string, size int64, reason, target string) {
		if kind == tree.KindSymlink && target != "" {
			others.Entries[name] = tree.Entry{Path: name, Kind: kind, Mode: 0o777, Target: target}
			return
		}
		others.Left[name] = result.SkippedOutput{Kind: kind, SizeBytes: size, Reason: reason}
	}
	var list *archive.Inventory
	err := errWatcherEnded
	if a.depot.watcher != nil {
		list, err = a.depot.watcher.list(ctx, treeDir(i), wide.Files+1, wide.Depth)
	}
	if err != nil {
		list, whole = nil, false
	}
	fetchErr := a.fetchAll(ctx, treeDir(i), unpacker, list)
	now, err := tree.List(ctx, t.root, t.base, limits)
	for name, e := range now.Entries {
		text, _ := collect.EncodePath(name)
		if mode, ok := unpacker.Mode(text); ok {
			e.Mode = os.FileMode(mode).Perm()
			now.Entries[name] = e
		}
	}
	for name, e := range others.Entries {
		now.Entries[name] = e
	}
	for name, left := range others.Left {
		now.Left[name] = left
	}
	if list != nil && list.Truncated || unpacker.Full() {
		whole = false
	}
	if !whole && fetchErr == nil {
		fetchErr = errIncomplete
	}
	return now, errors.Join(fetchErr, err)
}

// errIncomplete means that there may be more than what came.
var errIncomplete = errors.New("not everything that the tree holds could be listed")
