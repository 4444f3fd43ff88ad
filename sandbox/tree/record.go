package tree

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"

	"github.com/evalbox/evalbox/internal/fsx"

	"github.com/evalbox/evalbox/sandbox/collect"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
)

// Report says what became of each change of a working copy.
type Report struct {
	Target string `json:"target"`
	// Source is the host directory.
	Source string `json:"source"`
	// Complete is that of the result: whether the changes are all that there were.
	Complete bool     `json:"complete"`
	Changes  []Change `json:"changes"`
}

// Change is what became of one change.
type Change struct {
	Path       string `json:"path"`
	PathBase64 string `json:"path_base64,omitempty"`
	// Change is one of created, changed and deleted.
	Change string `json:"change"`
	// State is applied; conflict, when the host's folder does not hold what was
	// copied any more; or skipped, when it must not be applied. Reason says why.
	State  string `json:"state"`
	Reason string `json:"reason"`
}

// Count is the number of changes of a state.
func (r Report) Count(state string) (n int) {
	for _, c := range r.Changes {
		if c.State == state {
			n++
		}
	}
	return n
}

// Apply carries what the program of a finished run changed in a tree over to the
// host directory that it was copied from: regular files and directories only. What was
// denied or excluded in the run is not written either.
//
// A file is replaced or made in one step; only where the folder still holds what was
// copied, and never through a link. Everything else is reported and stays in the record.
// New files belong to the owner of what they replace, or of their folder. Applying twice
// does no harm, also after an application that was killed. Two applications at a time to
// one folder are for the caller to prevent. The error means that nothing could be tried,
// or that ctx ended; the report then holds what had been done.
//
// Nothing that Git executes is written: nothing at or below a name .git, and neither the
// configuration nor the hooks beside a file HEAD; see [ApplyOptions]. Files do not become
// writable for others than their owner, unless they were.
func Apply(ctx context.Context, s *record.Store, id, target string, opts ApplyOptions) (Report, error) {
	found, err := s.Get(id)
	if err != nil {
		return Report{}, err
	}
	index, job := -1, spec.JobTree{}
	for i, t := range found.Spec.Job.Trees {
		if t.Target == target {
			index, job = i, t
		}
	}
	refuse := func(rule string) (Report, error) {
		return Report{}, &policy.FieldError{Field: "tree", Value: fmt.Sprintf("%.200q", target), Rule: rule}
	}
	if index < 0 {
		return refuse("run " + found.ID + " has no such tree")
	}
	if job.Source == "" {
		return refuse("was no copy of a folder")
	}
	if found.Result == nil {
		return Report{}, fmt.Errorf("run %s: %w: it is %s", found.ID, record.ErrRunning, found.State)
	}
	var changes *result.Tree
	for i := range found.Result.Trees {
		if found.Result.Trees[i].Target == target {
			changes = &found.Result.Trees[i]
		}
	}
	if changes == nil {
		return refuse("its changes were not collected")
	}
	report := Report{Target: target, Source: job.Source, Complete: changes.Complete}
	denied, err := denyBelow(job, opts.Deny)
	if err != nil {
		return Report{}, err
	}
	err = applyTo(ctx, found, index, job, *changes, denied, opts.Git, &report)
	return report, err
}

// ApplyOptions say what of a tree is applied.
type ApplyOptions struct {
	// Deny are further paths below the folder, relative or absolute, that must not be
	// written.
	Deny []string
	// Git permits to write what Git executes: who may write it, runs commands with the
	// rights of whoever uses the repository next.
	Git bool
}

// denyBelow is everything that must not be written, relative to the source.
func denyBelow(job spec.JobTree, deny []string) (Paths, error) {
	all := append(append(Paths{}, job.Exclude...), job.Deny...)
	for _, name := range deny {
		rel := filepath.Clean(name)
		if filepath.IsAbs(name) {
			var err error
			if rel, err = filepath.Rel(job.Source, fsx.RealPath(name)); err != nil || !filepath.IsLocal(rel) {
				continue // elsewhere
			}
		}
		if name == "" || !filepath.IsLocal(rel) {
			return nil, &policy.FieldError{Field: "deny", Value: fmt.Sprintf("%.200q", name), Rule: "must be a path below " + job.Source}
		}
		all = append(all, filepath.ToSlash(rel))
	}
	return all, nil
}

func applyTo(ctx context.Context, found record.Record, index int, job spec.JobTree, changes result.Tree, deny Paths, git bool,
	report *Report,
) (err error) {
	file, err := os.Open(record.BaseFile(found.Dir, index))
	if err != nil {
		return record.StateError(found.Dir, "cannot be read", err)
	}
	base, err := readBase(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return record.StateError(found.Dir, "cannot be read", err)
	}
	// Links were followed when the run was planned; one that is there now is new.
	if real := fsx.RealPath(job.Source); real != job.Source {
		return &spec.PathError{Field: "tree", Path: job.Source, Rule: "was replaced by a link"}
	}
	to, err := os.OpenRoot(job.Source)
	if err != nil {
		return &spec.PathError{Field: "tree", Path: job.Source, Rule: "cannot be opened", Err: fsx.Cause(err)}
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	from, err := os.OpenRoot(record.KeptTree(found.Dir, index))
	if err != nil {
		return record.StateError(found.Dir, "cannot be read", err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	var denied Secrets
	for _, name := range deny {
		if err := denied.Add(ctx, to, name); err != nil {
			return &spec.PathError{Field: "tree", Path: filepath.Join(job.Source, name), Rule: "its other names cannot be looked for", Err: fsx.Cause(err)}
		}
	}
	a := application{to: to, from: from, base: base, deny: deny, denied: &denied, temp: ".evalbox-" + found.ID + "-"}
	created, err1 := entriesOf(changes.Created)
	changed, err2 := entriesOf(changes.Changed)
	deleted, err3 := entriesOf(changes.Deleted)
	if err := errors.Join(err1, err2, err3); err != nil {
		return record.StateError(found.Dir, "cannot be read", err)
	}
	if !git {
		a.refuse = newGitGuard(job.Source, func(name string) bool {
			_, err := to.Lstat(name)
			return err == nil
		}, created, changed).refuse
	}
	verdicts, err := a.apply(ctx, created, changed, deleted)
	for i, v := range verdicts {
		change := "deleted"
		switch {
		case i >= len(deleted)+len(created):
			change = "changed"
		case i >= len(deleted):
			change = "created"
		}
		name, raw := collect.EncodePath(v.entry.Path)
		report.Changes = append(report.Changes, Change{Path: name, PathBase64: raw, Change: change, State: v.state, Reason: v.reason})
	}
	return err
}

// entriesOf reads entries of a result.
func entriesOf(list []result.TreeEntry) ([]Entry, error) {
	var entries []Entry
	for _, e := range list {
		name := e.Path
		if e.PathBase64 != "" {
			raw, err := base64.StdEncoding.DecodeString(e.PathBase64)
			if err != nil {
				return nil, err
			}
			name = string(raw)
		}
		mode, err := strconv.ParseUint(e.Mode, 8, 12)
		if err != nil || name != path.Clean(name) || strings.HasPrefix(name, "/") {
			return nil, errors.Join(fmt.Errorf("%.200q is not a change", e.Path), err)
		}
		entries = append(entries, Entry{Path: name, Kind: e.Kind, Size: e.SizeBytes, SHA256: e.SHA256, Mode: os.FileMode(mode).Perm()})
	}
	return entries, nil
}
