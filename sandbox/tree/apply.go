package tree

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/collect"
)

// States of a [Change].
const (
	Applied  = "applied"
	Conflict = "conflict"
	Skipped  = "skipped"
)

// application applies changes to the directory that was copied.
type application struct {
	// to is that directory. from holds the created and changed files.
	to, from *os.Root
	base     Base
	// deny is never written.
	deny Paths
	// denied are the files of several names that are denied by another name.
	denied Secrets
	// refuse, if not nil, returns why a change must not be applied; empty if it may be.
	refuse func(e Entry) string
	// temp begins the names of files that are not complete yet. Those of an earlier,
	// killed application of the same changes are replaced.
	temp string
}

// apply deletes, creates and replaces entries, in an order in which each step is possible.
// A file is replaced in one step, and only if it is still the one that was copied. Nothing
// is written through a link. Applying again is harmless. The error is the cause of ctx;
// the changes up to then are returned.
func (a *application) apply(ctx context.Context, created, changed, deleted []Entry) ([]Change, error) {
	type step struct {
		entry  Entry
		change string
		do     doer
	}
	var steps []step
	for _, e := range slices.Backward(slices.SortedFunc(slices.Values(deleted), byPath)) {
		steps = append(steps, step{e, "deleted", a.remove})
	}
	for _, e := range slices.SortedFunc(slices.Values(created), byPath) {
		steps = append(steps, step{e, "created", a.create})
	}
	for _, e := range slices.SortedFunc(slices.Values(changed), byPath) {
		steps = append(steps, step{e, "changed", a.replace})
	}
	var changes []Change
	for _, s := range steps {
		if ctx.Err() != nil {
			return changes, context.Cause(ctx)
		}
		name, raw := collect.EncodePath(s.entry.Path)
		c := Change{Path: name, PathBase64: raw, Change: s.change, State: Applied}
		var refused *refusal
		switch err := a.one(ctx, s.entry, s.do); {
		case errors.As(err, &refused):
			c.State, c.Reason = refused.state, refused.reason
		case err != nil:
			c.State, c.Reason = Conflict, fsx.Cause(err).Error()
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// doer applies one change to a name in a directory.
type doer func(ctx context.Context, dir *os.Root, name string, e Entry) error

func byPath(a, b Entry) int { return strings.Compare(a.Path, b.Path) }

// refusal is the reason why a change is not applied.
type refusal struct{ state, reason string }

func (r *refusal) Error() string { return r.reason }

func conflict(format string, args ...any) error {
	return &refusal{Conflict, fmt.Sprintf(format, args...)}
}

// one applies one change. It reaches the directory of the entry without following links.
func (a *application) one(ctx context.Context, e Entry, do doer) error {
	if !fs.ValidPath(e.Path) || e.Path == "." {
		return &refusal{Skipped, "is not a path in the directory"}
	}
	if a.deny.Has(e.Path) || a.deny.Below(e.Path) && e.Kind != KindDir {
		return &refusal{Skipped, "is denied"}
	}
	if e.Kind != KindFile && e.Kind != KindDir {
		return &refusal{Skipped, "is a " + e.Kind + ", and only files and directories are applied"}
	}
	if a.refuse != nil {
		if reason := a.refuse(e); reason != "" {
			return &refusal{Skipped, reason}
		}
	}
	dir, name, closeDir, err := fsx.OpenParent(a.to, e.Path)
	var other *fsx.NotDirectoryError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return conflict("its directory is not there any more")
	case errors.As(err, &other):
		return conflict("there is a %s where its directory was", collect.KindOf(other.Mode))
	case errors.Is(err, fsx.ErrReplaced):
		return conflict("its directory was replaced meanwhile")
	case err != nil:
		return err
	}
	defer closeDir()
	return do(ctx, dir, name, e)
}

// is compares a name of the directory with an entry.
func (a *application) is(ctx context.Context, dir *os.Root, name string, e Entry) (there, same bool, err error) {
	info, err := dir.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, false, nil
	}
	if err != nil {
		return false, false, err
	}
	if info.Mode().IsRegular() && a.denied.has(info) {
		return true, false, &refusal{Skipped, "is another name of a file that is denied"}
	}
	switch {
	case e.Kind == KindDir:
		return true, info.IsDir(), nil
	case !info.Mode().IsRegular() || info.Size() != e.Size:
		return true, false, nil
	}
	sum, err := collect.HashUntouched(ctx, dir, name, info)
	return true, sum == e.SHA256, err
}

func (a *application) remove(ctx context.Context, dir *os.Root, name string, e Entry) error {
	there, same, err := a.is(ctx, dir, name, e)
	switch {
	case err != nil:
		return err
	case !there:
		return nil
	case !same:
		return conflict("was changed meanwhile, and is not deleted")
	}
	err = dir.Remove(name)
	if e.Kind == KindDir && err != nil && !errors.Is(err, fs.ErrNotExist) {
		return conflict("holds what the copy did not, and is not deleted")
	}
	return err
}

func (a *application) create(ctx context.Context, dir *os.Root, name string, e Entry) error {
	there, same, err := a.is(ctx, dir, name, e)
	switch {
	case err != nil:
		return err
	case there && same:
		return nil
	case there:
		return conflict("is there already, with other content")
	}
	if e.Kind == KindDir {
		return errors.Join(dir.Mkdir(name, 0o755), dir.Chmod(name, 0o755), giveLike(dir, name, nil))
	}
	temp, err := a.write(dir, e, nil)
	if err != nil {
		return err
	}
	// Unlike a rename, a link does not replace a name that appears meanwhile.
	err = dir.Link(temp, name)
	if errors.Is(err, fs.ErrExist) {
		err = conflict("is there already, with other content")
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		// Some file systems have no hard links.
		if _, statErr := dir.Lstat(name); errors.Is(statErr, fs.ErrNotExist) {
			return errors.Join(dir.Rename(temp, name))
		}
	}
	return errors.Join(err, dir.Remove(temp))
}

func (a *application) replace(ctx context.Context, dir *os.Root, name string, e Entry) error {
	if _, same, err := a.is(ctx, dir, name, e); err != nil {
		return err
	} else if info, statErr := dir.Lstat(name); same && statErr == nil && info.Mode().Perm() == modeFor(e.Mode, info) {
		return nil
	}
	there, same, err := a.is(ctx, dir, name, a.base[e.Path])
	switch {
	case err != nil:
		return err
	case !there:
		return conflict("was deleted meanwhile")
	case !same:
		return conflict("was changed meanwhile, and is not replaced")
	}
	before, err := dir.Lstat(name)
	if err != nil {
		return err
	}
	temp, err := a.write(dir, e, before)
	if err != nil {
		return err
	}
	if now, err := dir.Lstat(name); err != nil || !os.SameFile(now, before) || !now.ModTime().Equal(before.ModTime()) {
		return errors.Join(conflict("was changed meanwhile, and is not replaced"), dir.Remove(temp))
	}
	if err := dir.Rename(temp, name); err != nil {
		return errors.Join(err, dir.Remove(temp))
	}
	return nil
}

// write makes a complete new file in the directory that it belongs in, and returns its
// temporary name. like is the file that it will replace, or nil.
func (a *application) write(dir *os.Root, e Entry, like fs.FileInfo) (temp string, err error) {
	from, err := a.from.OpenFile(e.Path, os.O_RDONLY|fsx.OpenFlags, 0)
	if errors.Is(err, fs.ErrPermission) && a.from.Chmod(e.Path, 0o600) == nil {
		from, err = a.from.OpenFile(e.Path, os.O_RDONLY|fsx.OpenFlags, 0)
	}
	if err != nil {
		return "", &refusal{Skipped, "cannot be read in the record: " + fsx.Cause(err).Error()}
	}
	defer from.Close()
	temp = a.temp + shortHash(e.Path)
	if err := dir.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	to, err := dir.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY|fsx.OpenFlags, 0o600)
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, dir.Remove(temp))
		}
	}()
	sum, err := copyHash(to, from, e.Size)
	if err == nil && sum != e.SHA256 {
		err = &refusal{Skipped, "is not in the record any more as the program left it"}
	}
	err = errors.Join(err, to.Close())
	if err == nil {
		err = giveLike(dir, temp, like)
	}
	if err == nil {
		err = dir.Chmod(temp, modeFor(e.Mode, like))
	}
	return temp, err
}

// copyHash copies at most size+1 bytes, and returns the hash of the copy. The additional
// byte makes the hash of a file that has grown a different one.
func copyHash(to io.Writer, from io.Reader, size int64) (string, error) {
	sum := sha256.New()
	_, err := io.Copy(io.MultiWriter(to, sum), io.LimitReader(from, size+1))
	return hex.EncodeToString(sum.Sum(nil)), err
}

// shortHash returns a hash that represents a path in a file name.
func shortHash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:8])
}

// giveLike gives a new entry the owner of the file that it will replace, or of its directory
// if like is nil. Only root can change owners, and only root's new files have another owner.
func giveLike(dir *os.Root, name string, like fs.FileInfo) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if like == nil {
		var err error
		if like, err = dir.Stat("."); err != nil {
			return err
		}
	}
	if uid, gid, ok := fsx.OwnerOf(like); ok {
		return dir.Lchown(name, uid, gid)
	}
	return nil
}

// modeFor returns the mode of a new file, or of one that replaces the file like. A program
// must not make files that others may write, or that their owner cannot read.
func modeFor(asked fs.FileMode, like fs.FileInfo) fs.FileMode {
	most, least := fs.FileMode(0o755), fs.FileMode(0o400)
	if like != nil {
		most |= like.Mode().Perm()
		least = like.Mode().Perm() & 0o600
	}
	return asked.Perm()&most | least
}
