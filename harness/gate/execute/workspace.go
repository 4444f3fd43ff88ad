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
	"strings"
	"unicode/utf8"

	"github.com/evalbox/evalbox/harness/gate/evidence"
	"github.com/evalbox/evalbox/harness/gate/git"
	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/internal/text"
	"github.com/evalbox/evalbox/internal/treehash"
	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox"
)

// Limits of a workspace, beside the disk limit, which bounds its bytes. The sandbox has the
// same ones for its copies.
const (
	maxEntries = 250_000
	maxDepth   = 200
)

// fromCommit reports whether the gates get the files of the commit instead of the workspace's:
// in strict mode no file takes part that is in no commit. A directory of no repository
// is given as it is.
func (x *run) fromCommit() bool { return x.m.Mode.Strict && x.m.Repo.Commit != "" }

// leaves reports whether gates do not get an entry: what git administers, and exclusions.
func (x *run) leaves(name string) bool {
	return path.Base(name) == ".git" || slices.ContainsFunc(x.m.Exclude, func(e string) bool { return path.Clean(e) == name })
}

// hashOf is the hash of what gates get of a directory. each, if not nil, gets its entries.
func (x *run) hashOf(ctx context.Context, dir string, each func(name, content string)) (string, error) {
	digest, err := treehash.Of(ctx, dir, treehash.Options{Each: each, Leave: func(name string, mode fs.FileMode) bool {
		return x.leaves(name) || !mode.IsDir() && !mode.IsRegular() && mode&fs.ModeSymlink == 0
	}})
	return digest.Sum, err
}

// writeEntries writes what the hash of the workspace covers, if that is not too much.
func (x *run) writeEntries(entries map[string]string) error {
	const most = 20_000
	if len(entries) > most {
		return nil
	}
	for name, content := range entries {
		if !utf8.ValidString(name) || !utf8.ValidString(content) {
			delete(entries, name) // no text of JSON
		}
	}
	return evidence.Write(x.root, evidence.WorkspaceFile, evidence.Workspace{Schema: evidence.WorkspaceV1, Entries: entries})
}

// differing names the first files that are not the recorded ones, for the end of a sentence; empty
// if the recorded ones are not known. A directory differs with its files.
func differing(recorded, entries map[string]string) string {
	if recorded == nil {
		return ""
	}
	const most = 3
	var all []string
	for name, content := range recorded {
		switch now, ok := entries[name]; {
		case !ok:
			all = append(all, text.Quote(name, 200)+" is missing")
		case now != content:
			all = append(all, text.Quote(name, 200)+" differs")
		}
	}
	for name := range entries {
		if _, ok := recorded[name]; !ok {
			all = append(all, text.Quote(name, 200)+" is new")
		}
	}
	slices.Sort(all)
	shown := strings.Join(all[:min(most, len(all))], ", ")
	if more := len(all) - most; more > 0 {
		shown += fmt.Sprintf(", and %d more", more)
	}
	if shown == "" {
		return ""
	}
	return ": " + shown
}

// takeCopies copies the workspace and the baseline once: all gates of all passes start from
// the files that were hashed, whatever happens to the originals meanwhile.
func (x *run) takeCopies(ctx context.Context) error {
	if err := x.apart(); err != nil {
		return x.refused(err, 0)
	}
	temp, remove, err := x.box.Store().Temp("gate")
	if err != nil {
		return err
	}
	x.removeTemp, x.workspace, x.baseline = remove, filepath.Join(temp, "workspace"), filepath.Join(temp, "baseline")
	if x.fromCommit() {
		_, err = git.Checkout(ctx, x.m.Workspace, x.m.Repo.Commit, x.workspace, x.m.Exclude, DiskBytes(x.m))
		if err == nil {
			err = fsx.InRoot(x.workspace, x.openUp)
		}
		err = x.copyError(ctx, "workspace", err)
	} else {
		err = x.takeCopy(ctx, "workspace", x.m.Workspace, x.workspace, evidence.ReasonNoWorkspace)
	}
	if err == nil && x.m.Baseline != "" {
		err = x.takeCopy(ctx, "baseline", x.m.Baseline, x.baseline, evidence.ReasonIncomplete)
	}
	return err
}

// apart refuses a workspace that holds files which change while gates run.
func (x *run) apart() error {
	workspace, err := filepath.EvalSymlinks(x.m.Workspace)
	if err != nil {
		return nil //nolint:nilerr // reported as a workspace that does not exist
	}
	state := x.box.Store().Dir()
	rel, err := filepath.Rel(workspace, fsx.RealPath(state))
	if err != nil || !filepath.IsLocal(rel) || within(filepath.ToSlash(rel), x.m.Exclude) {
		return nil //nolint:nilerr // it is elsewhere
	}
	return &sandbox.PathError{Field: "io_boundary", Path: x.m.Workspace, Rule: fmt.Sprintf("holds the state directory %s, with the records of runs "+
		"and the copy of the workspace; choose a state directory elsewhere (--state-dir), or exclude it in the wish", state)}
}

// within reports whether a path is one of these, or lies below one.
func within(name string, folders []string) bool {
	return slices.ContainsFunc(folders, func(folder string) bool { return fsx.Within(name, path.Clean(folder)) })
}

// takeCopy copies one directory.
func (x *run) takeCopy(ctx context.Context, what, dir, into string, missing evidence.StopReason) error {
	if !fsx.IsDir(dir) {
		return x.refuse(missing, 0, what, "does not exist or is not a directory")
	}
	if err := os.Mkdir(into, 0o755); err != nil {
		return err
	}
	err := fsx.InRoot(dir, func(from *os.Root) error {
		return fsx.InRoot(into, func(to *os.Root) error {
			leave := func(name string, _ fs.DirEntry) bool { return x.leaves(name) }
			if err := fsx.Copy(ctx, from, to, fsx.CopyOptions{Leave: leave, Entries: maxEntries, Depth: maxDepth, Bytes: DiskBytes(x.m)}); err != nil {
				return err
			}
			return x.openUp(to)
		})
	})
	return x.copyError(ctx, what, err)
}

// DiskBytes is how much a workspace may hold.
func DiskBytes(m evidence.RunManifest) int64 {
	if m.TimeoutCaps.DiskBytes > 0 {
		return m.TimeoutCaps.DiskBytes
	}
	return int64(policy.Default().Disk)
}

// copyError turns a problem of the files into a finding. A failure of the copy stays an error.
func (x *run) copyError(ctx context.Context, what string, err error) error {
	var large *fsx.LimitError
	var file *fs.PathError
	var revision *git.RevisionError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &revision):
		return x.refuse(evidence.ReasonDirty, 0, x.m.Repo.Commit, err.Error())
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, fsx.ErrChanged):
		return x.refuse(evidence.ReasonEnvironment, 0, what, "its files changed while they were copied: "+err.Error())
	case errors.As(err, &large):
		return x.refuse(evidence.ReasonIncomplete, 0, what, err.Error()+"; raise limits.disk in the wish, or exclude directories")
	case errors.As(err, &file) && errors.Is(err, fs.ErrPermission):
		return x.refuse(evidence.ReasonIncomplete, 0, what, "cannot be copied: "+err.Error())
	}
	return fmt.Errorf("copying the %s: %w", what, err)
}

// openUp lets everybody read the read-only paths of a copy: they are mounted as they are, and
// the programs of a gate may run as another user.
func (x *run) openUp(root *os.Root) error {
	for _, name := range x.m.ReadOnlyPaths {
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

// mountable reports whether a read-only path of a copy can be a mount point. A link cannot,
// nor can a path behind a link: a change there is seen at the end of the gate.
func mountable(root *os.Root, name string) bool {
	info, err := fsx.LstatBelow(root, filepath.FromSlash(path.Clean(name)))
	return err == nil && (info.IsDir() || info.Mode().IsRegular())
}
