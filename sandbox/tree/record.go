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

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/result"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// Report says which changes of a working copy were applied.
type Report struct {
	Target string `json:"target"`
	// Source is the host directory.
	Source string `json:"source"`
	// Complete says that the result lists all changes.
	Complete bool     `json:"complete"`
	Changes  []Change `json:"changes"`
}

// Change is one change, and whether it was applied.
type Change struct {
	Path       string `json:"path"`
	PathBase64 string `json:"path_base64,omitempty"`
	// Change is one of created, changed and deleted.
	Change string `json:"change"`
	// State is [Applied]; [Conflict] if the host no longer has the file that was copied;
	// or [Skipped] if the change must not be applied. Reason says why.
	State  string `json:"state"`
	Reason string `json:"reason"`
}

// Count returns the number of changes in a state.
func (r Report) Count(state string) (n int) {
	for _, c := range r.Changes {
		if c.State == state {
			n++
		}
	}
	return n
}

// Apply applies the changes that the program of a finished run made in a tree to the host
// directory that was copied: regular files and directories only. Paths that were denied
// or excluded in the run are not written either.
//
// A file is created or replaced in one step, only if the directory still holds the file
// that was copied, and never through a link. Every other change is reported and stays in
// the record. A new file belongs to the owner of the file that it replaces, or of its
// directory. Applying twice is harmless, also after an application that was killed. The
// caller must prevent two applications to one directory at a time. The error means that
// no change was tried, or that ctx ended; the report then holds the changes up to then.
//
// Files that Git executes are not written: nothing at or below a name .git, and neither the
// configuration nor the hooks beside a file HEAD; see [ApplyOptions]. A file does not
// become writable for others than its owner, unless it was.
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
		return refuse("was no copy of a directory")
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

// ApplyOptions restrict and permit changes of a tree.
type ApplyOptions struct {
	// Deny are further paths below the directory, relative or absolute, that must not be
	// written.
	Deny []string
	// Git permits writing files that Git executes. Their author runs commands with the
	// rights of the next user of the repository.
	Git bool
}

// denyBelow returns the paths that must not be written, relative to the source.
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
	base, err := ReadBase(record.BaseFile(found.Dir, index))
	if err != nil {
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
	a := application{to: to, from: from, base: base, deny: deny, temp: ".evalbox-" + found.ID + "-"}
	for _, name := range deny {
		if err := a.denied.Add(ctx, to, name); err != nil {
			return &spec.PathError{Field: "tree", Path: filepath.Join(job.Source, name), Rule: "its other names cannot be looked for", Err: fsx.Cause(err)}
		}
	}
	created, err1 := EntriesOf(changes.Created)
	changed, err2 := EntriesOf(changes.Changed)
	deleted, err3 := EntriesOf(changes.Deleted)
	if err := errors.Join(err1, err2, err3); err != nil {
		return record.StateError(found.Dir, "cannot be read", err)
	}
	if !git {
		a.refuse = newGitGuard(job.Source, func(name string) bool {
			_, err := to.Lstat(name)
			return err == nil
		}, created, changed).refuse
	}
	report.Changes, err = a.apply(ctx, created, changed, deleted)
	return err
}

// EntriesOf converts entries of a result, and checks their paths.
func EntriesOf(list []result.TreeEntry) ([]Entry, error) {
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
