package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/tree"

	"github.com/evalbox/evalbox/sandbox/collect"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// Limits of the copies of all trees of a run together. The bytes are those of the disk
// limit.
const (
	maxTreeEntries = 250_000
	maxTreeDepth   = 200
)

// runTree is one tree of a run on its way from the copy to the list of changes.
type runTree struct {
	job JobTree
	// live is the copy in the record that a program changes, or what came back of it.
	live string
	root *os.Root
	base tree.Base
	left []result.SkippedOutput
	// points are what something is mounted on, folder or not.
	points map[string]bool
}

// openTrees makes the folders of the trees. The journal is written by then.
func (a *attempt) openTrees(ctx context.Context) error {
	if len(a.spec.Job.Trees) == 0 {
		return nil
	}
	for _, dir := range []string{record.LiveTrees, record.KeptTrees} {
		if err := os.Mkdir(filepath.Join(a.work.record, dir), 0o700); err != nil {
			return record.StateError(a.work.record, "cannot be written", err)
		}
	}
	if err := a.measureTrees(ctx); err != nil {
		return err
	}
	for i, job := range a.spec.Job.Trees {
		live := record.LiveTree(a.work.record, i)
		if err := os.Mkdir(live, 0o755); err != nil {
			return record.StateError(live, "cannot be made", err)
		}
		root, err := os.OpenRoot(live)
		if err != nil {
			return record.StateError(live, "cannot be opened", err)
		}
		a.work.trees = append(a.work.trees, &runTree{job: job, live: live, root: root, points: pointsOf(a.spec, job.Target)})
		a.work.paths[treeRole(i)] = live
	}
	if a.copies() {
		return nil
	}
	return a.copyTrees(ctx)
}

// measureTrees refuses trees that are larger than the run may have, before anything is
// copied.
func (a *attempt) measureTrees(ctx context.Context) error {
	left := treeLimits(a.spec.Job)
	var total int64
	for _, job := range a.spec.Job.Trees {
		if job.Source == "" {
			continue
		}
		err := inFolder(job.Source, a.checked(job.Source, ".", func(root *os.Root) error {
			entries, bytes, err := tree.Size(ctx, root, append(tree.Paths(job.Exclude), job.Deny...), left)
			left.Entries -= entries
			left.Bytes -= bytes
			total += bytes
			return err
		}))
		if err != nil {
			return a.treeError(ctx, job, err)
		}
	}
	if free, known := freeBytes(a.work.record); known && !a.copies() && free < total+minFree {
		return fmt.Errorf("state folder %q: %w: %v free, the trees and the run need %v", a.runner.store.Dir(), record.ErrNoSpace,
			policy.Size(free), policy.Size(total+minFree))
	}
	return nil
}

func treeLimits(job Job) tree.Limits {
	return tree.Limits{Entries: maxTreeEntries, Depth: maxTreeDepth, Bytes: job.DiskBytes}
}

// treeError names the tree, and gives a limit its numbers and its way out.
func (a *attempt) treeError(ctx context.Context, job JobTree, err error) error {
	var limit *tree.LimitError
	var file *fs.PathError
	var told *PathError
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", errCanceledBefore, context.Cause(ctx))
	case errors.As(err, &told):
		return told
	case errors.As(err, &limit):
		return &PathError{Field: "tree", Path: job.Source, Rule: fmt.Sprintf("%v (all trees together: disk limit %v); raise the limit, or exclude folders",
			limit, policy.Size(a.spec.Job.DiskBytes))}
	case fsx.IsNoSpace(err):
		return record.StateError(a.work.record, "cannot be written", err)
	case errors.As(err, &file):
		return &PathError{Field: "tree", Path: filepath.Join(job.Source, file.Path), Rule: "cannot be copied", Err: file.Err}
	}
	return &PathError{Field: "tree", Path: job.Source, Rule: "cannot be copied", Err: err}
}

// pointsOf are the paths in a tree, or in the input, that other mounts lie on, folder or
// not.
func pointsOf(spec Spec, target string) map[string]bool {
	all := []string{target}
	folders := map[string]bool{}
	for _, m := range spec.Job.Mounts {
		all = append(all, m.Target)
		folders[m.Target] = isFolder(m.Source)
	}
	for _, t := range spec.Job.Trees {
		all = append(all, t.Target)
		folders[t.Target] = true
	}
	for _, m := range spec.Class.Masks {
		folders[m.Target] = m.Folder
	}
	points := map[string]bool{}
	for inner, folder := range folders {
		if insideOf(inner, target) && enclosingOther(inner, all) == target {
			points[relInside(inner, target)] = folder
		}
	}
	return points
}

// enclosingOther is the nearest of the targets that a path lies strictly below.
func enclosingOther(inner string, targets []string) (nearest string) {
	for _, target := range targets {
		if insideOf(inner, target) && len(target) > len(nearest) {
			nearest = target
		}
	}
	return nearest
}

// copyTrees copies the trees into the record, for the program's user.
func (a *attempt) copyTrees(ctx context.Context) error {
	uid, gid, err := numericUser(a.spec.Class.User)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		if uid != os.Geteuid() {
			return &policy.FieldError{Field: "user", Value: a.spec.Class.User, Rule: "cannot be given a tree; leave --user out, or run as root"}
		}
		uid, gid = -1, -1
	}
	left := treeLimits(a.spec.Job)
	for i, t := range a.work.trees {
		if err := a.copyTree(ctx, i, t, tree.NewFolderSink(t.root, uid, gid), &left); err != nil {
			return err
		}
	}
	return nil
}

// copyTree copies one tree into a sink, and notes what it began with.
func (a *attempt) copyTree(ctx context.Context, i int, t *runTree, to tree.Sink, left *tree.Limits) error {
	opts := tree.Options{Exclude: t.job.Exclude, Secret: t.job.Deny, Points: t.points, Limits: *left}
	do := func(root *os.Root) (err error) {
		t.base, t.left, err = tree.Copy(ctx, root, to, opts)
		return err
	}
	source := t.job.Source
	if source == "" {
		source = t.live // empty
	}
	if err := inFolder(source, a.checked(source, ".", do)); err != nil {
		return a.treeError(ctx, t.job, err)
	}
	entries, bytes := t.base.Sum()
	left.Entries -= entries
	left.Bytes -= bytes
	file, err := os.OpenFile(record.BaseFile(a.work.record, i), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		err = errors.Join(t.base.Write(file), file.Close())
	}
	if err != nil {
		return record.StateError(a.work.record, "cannot be written", err)
	}
	return nil
}

// treeBytes is what the copies began with.
func (w *workspace) treeBytes() (total int64) {
	for _, t := range w.trees {
		_, bytes := t.base.Sum()
		total += bytes
	}
	return total
}

// watchedRoots are the folders of this disk that the program may fill.
func (w *workspace) watchedRoots() []*os.Root {
	roots := []*os.Root{w.final}
	for _, t := range w.trees {
		roots = append(roots, t.root)
	}
	return roots
}

// diskUse adds up what the program holds on this disk.
func (a *attempt) diskUse(ctx context.Context) (bytes int64, entries int) {
	for _, root := range a.work.watchedRoots() {
		b, n := collect.Usage(ctx, root, a.spec.Job.DiskBytes, maxEntries)
		bytes, entries = bytes+b, entries+n
	}
	return bytes, entries
}

// collectTrees tells what the program changed, keeps that, and lets the rest go.
// bring, if not nil, brings a tree back first.
func (a *attempt) collectTrees(ctx context.Context, bring func(context.Context, int, *runTree) (tree.Now, error)) []result.Tree {
	if len(a.work.trees) == 0 || a.facts.Lost != nil {
		return nil // its program may still run
	}
	ctx, cancel := a.collecting(ctx)
	defer cancel()
	var trees []result.Tree
	for i, t := range a.work.trees {
		if t.base == nil || a.facts.StartError != nil {
			a.dropLive(t)
			continue
		}
		changed := a.collectTree(ctx, i, t, bring)
		trees = append(trees, changed)
		// Nothing is lost: what is not told as a change stays where it is.
		if isFile := func(s result.SkippedOutput) bool { return s.Kind == tree.KindFile || s.Kind == "other" }; !changed.Complete ||
			slices.ContainsFunc(changed.Skipped, isFile) {
			a.warnings = append(a.warnings, fmt.Sprintf("tree %s holds more than is told; it is kept in %s", changed.Target, t.live))
			continue
		}
		a.dropLive(t)
	}
	return trees
}

// dropLive deletes a copy; what is kept of it lies elsewhere by then.
func (a *attempt) dropLive(t *runTree) {
	if err := fsx.Remove(t.live); err != nil {
		a.warnings = append(a.warnings, fmt.Sprintf("the copy of tree %s is left behind in %s: %v", t.job.Target, t.live, fsx.Cause(err)))
	}
}

func (a *attempt) collectTree(ctx context.Context, i int, t *runTree, bring func(context.Context, int, *runTree) (tree.Now, error)) result.Tree {
	if bring == nil {
		bring = func(ctx context.Context, _ int, t *runTree) (tree.Now, error) {
			// A program may have shut us out of its own folder.
			_ = t.root.Chmod(".", 0o755) // told when it is read
			return tree.List(ctx, t.root, t.base, outputLimits(a.spec.Job))
		}
	}
	now, err := bring(ctx, i, t)
	if err != nil {
		// What was not seen is not gone.
		now.Read = nil
	}
	changes := tree.Compare(t.base, now, a.spec.Job.OutputFiles)
	keepErr := inFolder(a.work.record, func(root *os.Root) error {
		return errors.Join(root.MkdirAll(filepath.Join(record.KeptTrees, strconv.Itoa(i)), 0o700),
			tree.Keep(root, filepath.Join(record.LiveTrees, strconv.Itoa(i)), filepath.Join(record.KeptTrees, strconv.Itoa(i)), changes))
	})
	if err = errors.Join(err, keepErr); err != nil {
		a.warnings = append(a.warnings, fmt.Sprintf("changes of tree %s are incomplete: %v", t.job.Target, fsx.Cause(err)))
	}
	entries, bytes := t.base.Sum()
	return result.Tree{
		Target: t.job.Target, Complete: changes.Complete && err == nil, Entries: entries, SizeBytes: bytes,
		NotCopied: t.left, Created: treeEntries(changes.Created), Changed: treeEntries(changes.Changed),
		Deleted: treeEntries(changes.Deleted), Skipped: changes.Skipped,
	}
}

func treeEntries(entries []tree.Entry) []result.TreeEntry {
	list := make([]result.TreeEntry, 0, len(entries))
	for _, e := range entries {
		name, raw := collect.EncodePath(e.Path)
		list = append(list, result.TreeEntry{Path: name, PathBase64: raw, Kind: e.Kind, SizeBytes: e.Size, SHA256: e.SHA256,
			Mode: fmt.Sprintf("%04o", e.Mode)})
	}
	return list
}

// closeTrees releases the folders.
func (w *workspace) closeTrees() error {
	var errs []error
	for _, t := range w.trees {
		errs = append(errs, t.root.Close())
	}
	return errors.Join(errs...)
}
