package stage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/collect"
	"github.com/evalbox/evalbox/sandbox/outcome"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
	"github.com/evalbox/evalbox/sandbox/tree"
)

// Limits of the working copies of a run together. The bytes are those of the disk limit.
const (
	maxTreeEntries = 250_000
	maxTreeDepth   = 200
)

// workingCopy is one tree of a run, from the copy to the list of changes.
type workingCopy struct {
	job spec.JobTree
	// live is the copy in the record that a program changes, or the part of it that came
	// back from the engine.
	live string
	root *os.Root
	// inside is the directory that the program changes, insideDir its path: those of live,
	// unless the run has a file system of its own.
	inside    *os.Root
	insideDir string
	base      tree.Base
	left      []result.SkippedOutput
	// points are the mount points in the copy; true for directories.
	points map[string]bool
}

type treeState = tree.Now

// openTrees makes the directories of the working copies, and refuses trees that are larger
// than the run may have, before anything is copied.
func (s *Stage) openTrees(ctx context.Context) error {
	if len(s.Plan.Job.Trees) == 0 {
		return nil
	}
	for _, dir := range []string{record.LiveTrees, record.KeptTrees} {
		if err := os.Mkdir(filepath.Join(s.Dir, dir), 0o700); err != nil {
			return record.StateError(s.Dir, "cannot be written", err)
		}
	}
	if err := s.measureTrees(ctx); err != nil {
		return err
	}
	for i, job := range s.Plan.Job.Trees {
		live := record.LiveTree(s.Dir, i)
		if err := os.Mkdir(live, 0o755); err != nil {
			return record.StateError(live, "cannot be made", err)
		}
		root, err := os.OpenRoot(live)
		if err != nil {
			return record.StateError(live, "cannot be opened", err)
		}
		t := &workingCopy{job: job, live: live, root: root, points: pointsOf(s.Plan, job.Target)}
		s.trees = append(s.trees, t)
		if err := s.boundTree(i, t); err != nil {
			return err
		}
		s.Sources[spec.NumberedRole(spec.RoleTree, i)] = t.insideDir
	}
	return nil
}

func (s *Stage) measureTrees(ctx context.Context) error {
	left := treeLimits(s.Plan.Job)
	var total int64
	for _, job := range s.Plan.Job.Trees {
		if job.Source == "" {
			continue
		}
		err := fsx.InRoot(job.Source, s.Verified.Guard(job.Source, ".", func(root *os.Root) error {
			entries, bytes, err := tree.Size(ctx, root, append(tree.Paths(job.Exclude), job.Deny...), left)
			left.Entries -= entries
			left.Bytes -= bytes
			total += bytes
			return err
		}))
		if err != nil {
			return s.treeError(ctx, job, err)
		}
	}
	if free, known := fsx.FreeBytes(s.Dir); known && !s.Copied() && free < total+minFree {
		return fmt.Errorf("state directory %q: %w: %v free, the trees and the run need %v", s.Store.Dir(), record.ErrNoSpace,
			policy.Size(free), policy.Size(total+minFree))
	}
	return nil
}

func treeLimits(job spec.Job) tree.Limits {
	return tree.Limits{Entries: maxTreeEntries, Depth: maxTreeDepth, Bytes: job.DiskBytes}
}

// treeError names the tree, and gives a limit its numbers and a way out.
func (s *Stage) treeError(ctx context.Context, job spec.JobTree, err error) error {
	var limit *tree.LimitError
	var file *fs.PathError
	var path *spec.PathError
	switch {
	case ctx.Err() != nil:
		return outcome.Canceled(ctx)
	case errors.As(err, &path):
		return path
	case errors.As(err, &limit):
		return &spec.PathError{Field: "tree", Path: job.Source, Rule: fmt.Sprintf("%v (all trees together: disk limit %v); raise the limit, or exclude directories",
			limit, policy.Size(s.Plan.Job.DiskBytes))}
	case fsx.IsNoSpace(err):
		return record.StateError(s.Dir, "cannot be written", err)
	case errors.As(err, &file):
		return &spec.PathError{Field: "tree", Path: filepath.Join(job.Source, file.Path), Rule: "cannot be copied", Err: file.Err}
	}
	return &spec.PathError{Field: "tree", Path: job.Source, Rule: "cannot be copied", Err: err}
}

// pointsOf returns the mount points that lie in a tree or in the input, relative to its
// target, and whether each is a directory.
func pointsOf(plan spec.Spec, target string) map[string]bool {
	all := []string{target}
	dirs := map[string]bool{}
	for _, m := range plan.Job.Mounts {
		all = append(all, m.Target)
		dirs[m.Target] = fsx.IsDir(m.Source)
	}
	for _, t := range plan.Job.Trees {
		all = append(all, t.Target)
		dirs[t.Target] = true
	}
	for _, m := range plan.Class.Masks {
		dirs[m.Target] = m.Dir
	}
	points := map[string]bool{}
	for inner, dir := range dirs {
		if spec.Below(inner, target) && enclosing(inner, all) == target {
			points[spec.Rel(inner, target)] = dir
		}
	}
	return points
}

// enclosing returns the nearest of the targets that a path lies strictly below.
func enclosing(inner string, targets []string) (nearest string) {
	for _, target := range targets {
		if spec.Below(inner, target) && len(target) > len(nearest) {
			nearest = target
		}
	}
	return nearest
}

// copyTrees copies the trees, each to its sink.
func (s *Stage) copyTrees(ctx context.Context, sink func(i int, t *workingCopy) (tree.Sink, error)) error {
	left := treeLimits(s.Plan.Job)
	for i, t := range s.trees {
		to, err := sink(i, t)
		if err != nil {
			return err
		}
		if err := s.copyTree(ctx, i, t, to, &left); err != nil {
			return err
		}
	}
	return nil
}

// copyTree copies one tree to a sink, and records the initial state.
func (s *Stage) copyTree(ctx context.Context, i int, t *workingCopy, to tree.Sink, left *tree.Limits) error {
	opts := tree.Options{Exclude: t.job.Exclude, Secret: t.job.Deny, Points: t.points, Limits: *left}
	source := t.job.Source
	if source == "" {
		source = t.live // empty
	}
	err := fsx.InRoot(source, s.Verified.Guard(source, ".", func(root *os.Root) (err error) {
		t.base, t.left, err = tree.Copy(ctx, root, to, opts)
		return err
	}))
	if err != nil {
		return s.treeError(ctx, t.job, err)
	}
	entries, bytes := t.base.Sum()
	left.Entries -= entries
	left.Bytes -= bytes
	file, err := os.OpenFile(record.BaseFile(s.Dir, i), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err == nil {
		err = errors.Join(t.base.Write(file), file.Close(), record.WriteJSON(record.LeftFile(s.Dir, i), t.left))
	}
	if err != nil {
		return record.StateError(s.Dir, "cannot be written", err)
	}
	return nil
}

// Left is everything that a program left.
type Left struct {
	Outputs []result.Output
	Skipped []result.SkippedOutput
	// LeftOut is the number of files in ./final that are not in Outputs. With LeftOutCut, there may be
	// more.
	LeftOut    int
	LeftOutCut bool
	// Lost is the first of them that might have been collected; nil for none.
	Lost  *result.SkippedOutput
	Trees []result.Tree
	// DiskFull says that the kernel kept the program from holding more than its disk limit.
	DiskFull bool
}

// mayStillRun says why the outputs of a lost run are not collected.
const mayStillRun = "the program may still run: its outputs were not collected. They stay in %s until: sandbox adopt %s"

// ErrLeft is the cause of a context of [Stage.Collect] when another process is to collect instead. The
// results of this call are not used.
var ErrLeft = errors.New("is left to the next process that adopts it")

// Collect lists the outputs in ./final and the changes in the working copies. Started says
// that there was a program, ended that its end is known, so that nothing changes any
// more, and limited that it was stopped at its disk limit.
func (s *Stage) Collect(ctx context.Context, started, ended, limited bool) Left {
	var left Left
	defer func() {
		if err := s.closeImage(); err != nil {
			s.Warn("%v", err)
		}
	}()
	switch {
	case !started:
	case !ended:
		s.Warn(mayStillRun, s.final.out, s.Plan.Job.RunID)
		if s.bound.image != nil {
			// The program may still write there, also to the working copies.
			s.bound.kept = true
			s.Warn("they are in the file system %s, until a garbage collection brings them back", s.bound.image.File)
		}
		return left
	default:
		s.sampleBound()
		left.DiskFull = s.bound.reached.Load()
		var skipped collect.SkipList
		left.Outputs, skipped = s.files.outputs(ctx, limited)
		left.Skipped, left.LeftOut, left.LeftOutCut = skipped.Sorted(), skipped.Count(), skipped.Cut()
		if first := skipped.Lost(); first != nil && first.Reason != podGone { // another warning says that all are gone
			left.Lost = first
		}
	}
	for i, t := range s.trees {
		if errors.Is(context.Cause(ctx), ErrLeft) {
			return left
		}
		if t.base == nil || !started {
			s.dropLive(t)
			continue
		}
		changed, whole := s.collectTree(ctx, i, t)
		if !whole {
			return left
		}
		left.Trees = append(left.Trees, changed)
		// Nothing is lost: files that are not reported as a change stay where they are.
		if isFile := func(s result.SkippedOutput) bool { return s.Kind == tree.KindFile || s.Kind == "other" }; !changed.Complete ||
			slices.ContainsFunc(changed.Skipped, isFile) {
			s.Warn("tree %s holds more than is listed; it is kept in %s", changed.Target, t.live)
			s.own(t.live)
			continue
		}
		s.dropLive(t)
	}
	s.warnOfCutFiles(left)
	return left
}

// maxCutFiles bounds the warnings of warnOfCutFiles.
const maxCutFiles = 10

// warnOfCutFiles names files that are exactly as large as a file may be: a write beyond that
// failed, if there was one, and only the program knows what became of it.
func (s *Stage) warnOfCutFiles(left Left) {
	if s.Plan.Job.FileSize == nil {
		return
	}
	most, warned := s.Plan.Job.FileSize.Soft, 0
	warn := func(name string, size int64) {
		if size != most || most == 0 || warned == maxCutFiles {
			return
		}
		warned++
		s.Warn("%s is exactly as large as a file may be, %v (%d bytes): the rest of it may not have been written", name, policy.Size(most), most)
	}
	for _, o := range left.Outputs {
		warn("final/"+o.Path, o.SizeBytes)
	}
	for _, o := range left.Skipped {
		warn("final/"+o.Path, o.SizeBytes)
	}
	for _, t := range left.Trees {
		for _, entries := range [][]result.TreeEntry{t.Created, t.Changed} {
			for _, e := range entries {
				warn(t.Target+"/"+e.Path, e.SizeBytes)
			}
		}
	}
}

// dropLive deletes a working copy; its changes are kept elsewhere by then.
func (s *Stage) dropLive(t *workingCopy) {
	if err := fsx.Remove(t.live); err != nil {
		s.Warn("the copy of tree %s is left behind in %s: %v", t.job.Target, t.live, fsx.Cause(err))
	}
}

// keepTree moves what the program created and changed to the kept files of the record.
func (s *Stage) keepTree(i int, changes tree.Changes) error {
	number := strconv.Itoa(i)
	err := fsx.InRoot(s.Dir, func(root *os.Root) error {
		return errors.Join(root.MkdirAll(filepath.Join(record.KeptTrees, number), 0o700),
			tree.Keep(root, filepath.Join(record.LiveTrees, number), filepath.Join(record.KeptTrees, number), changes))
	})
	s.own(record.KeptTree(s.Dir, i))
	return err
}

// collectedBefore returns the changes of a working copy whose controller died while it moved
// them, and moves the rest: the copy is not whole any more.
func (s *Stage) collectedBefore(i int) (changed result.Tree, ok bool) {
	if record.ReadJSON(record.ChangesFile(s.Dir, i), &changed) != nil {
		return result.Tree{}, false
	}
	created, err := tree.EntriesOf(changed.Created)
	replaced, replacedErr := tree.EntriesOf(changed.Changed)
	if err = errors.Join(err, replacedErr); err == nil {
		err = s.keepTree(i, tree.Changes{Created: created, Changed: replaced})
	}
	if err != nil {
		s.Warn("changes of tree %s are incomplete: %v", changed.Target, fsx.Cause(err))
		changed.Complete = false
	}
	return changed, true
}

// own gives what a program has written in the record to this process's user: another run may get the program's user later.
func (s *Stage) own(dir string) {
	uid, _, err := numericUser(s.Plan.Class.UserOnHost())
	if s.Copied() || err != nil {
		return // this process made the files
	}
	back := fsx.Handback{From: uid, UID: -1, GID: -1}
	if me := os.Geteuid(); me == 0 && uid != me {
		back.UID, back.GID = me, os.Getegid()
	}
	err = fsx.InRoot(dir, func(root *os.Root) error {
		_, err := fsx.HandBack(root, back)
		return err
	})
	if err != nil {
		s.Warn("%s keeps files of the program's user: %v", dir, fsx.Cause(err))
	}
}

// collectTree collects the changes of a working copy. It is false if they are left to another process.
func (s *Stage) collectTree(ctx context.Context, i int, t *workingCopy) (result.Tree, bool) {
	if changed, ok := s.collectedBefore(i); ok {
		return changed, true
	}
	now, err := s.files.tree(ctx, i, t)
	if errors.Is(context.Cause(ctx), ErrLeft) {
		return result.Tree{}, false // before anything is noted
	}
	if err != nil {
		// An entry that was not seen is not a deleted one.
		now.Read = nil
	}
	changes := tree.Compare(t.base, now, s.Plan.Job.OutputFiles)
	entries, bytes := t.base.Sum()
	changed := result.Tree{
		Target: t.job.Target, Complete: changes.Complete && err == nil, Entries: entries, SizeBytes: bytes,
		NotCopied: t.left, Created: treeEntries(changes.Created), Changed: treeEntries(changes.Changed),
		Deleted: treeEntries(changes.Deleted), Skipped: changes.Skipped,
	}
	// Before the first file moves: if this process dies, the copy alone says too little.
	keepErr := record.WriteJSON(record.ChangesFile(s.Dir, i), changed)
	if keepErr == nil {
		keepErr = s.keepTree(i, changes)
	}
	if err = errors.Join(err, keepErr); err != nil {
		s.Warn("changes of tree %s are incomplete: %v", t.job.Target, fsx.Cause(err))
		changed.Complete = false
	}
	return changed, true
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

func outputLimits(job spec.Job) collect.Limits {
	return collect.Limits{
		Files: job.OutputFiles, Depth: job.OutputDepth, FileBytes: job.OutputFileBytes, TotalBytes: job.OutputTotalBytes,
	}
}

// nextPeriod is the time until the disk is measured again: measuring must not cost more
// than a tenth of the time, and a program must not be able to prevent it for long.
func nextPeriod(began time.Time) time.Duration {
	return min(max(diskPeriod, 10*time.Since(began)), 5*time.Second)
}

// overLimit is the warning of outputs that exceed the disk limit.
func (s *Stage) overLimit() {
	who := "final holds"
	if len(s.Plan.Job.Trees) > 0 {
		who = "final and the trees hold"
	}
	s.Warn("%s more than its disk limit of %v: the program ended before that was noticed", who, policy.Size(s.Plan.Job.DiskBytes))
}
