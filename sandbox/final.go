package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/sandbox/spec"
)

// openFinal finds or makes ./final, locks it against other runs and opens it.
func (w *workspace) openFinal(store *Store, s spec.Spec) error {
	final := s.Job.Final
	if final == "" {
		final = filepath.Join(w.record, ownFinal)
		if err := os.Mkdir(final, 0o755); err != nil {
			return stateError(final, "cannot be made", err)
		}
	} else {
		var err error
		if w.lock, err = lockFinal(store, final); err != nil {
			return err
		}
		switch err := os.Mkdir(final, 0o755); {
		case err == nil:
			w.made = true
		case !errors.Is(err, fs.ErrExist):
			return &PathError{Field: "final", Path: final, Rule: "cannot be made", Err: cause(err)}
		}
	}
	w.paths[spec.RoleFinal] = final
	root, err := os.OpenRoot(final)
	if err != nil {
		return &PathError{Field: "final", Path: final, Rule: "cannot be opened", Err: cause(err)}
	}
	w.final = root
	if w.folder, err = lockFolder(final); err != nil {
		// A run with another state folder has it.
		return fmt.Errorf("final %q: %w", final, err)
	}
	return w.planLending(s)
}

// planLending notes whom ./final belongs to when the program runs as somebody
// else.
func (w *workspace) planLending(s spec.Spec) error {
	info, err := w.final.Stat(".")
	if err != nil {
		return &PathError{Field: "final", Path: w.paths[spec.RoleFinal], Rule: "cannot be read", Err: cause(err)}
	}
	w.mode = info.Mode().Perm()
	if s.Class.Transfer == spec.TransferCopy {
		// The program writes elsewhere; what it leaves is written here by us.
		if err := mayWriteIn(w.paths[spec.RoleFinal]); err != nil {
			return &PathError{Field: "final", Path: w.paths[spec.RoleFinal], Rule: "is not writable", Err: cause(err)}
		}
		return nil
	}
	uid, gid, ok := ownerOf(info)
	toUID, toGID, err := numericUser(s.Class.User)
	if !ok || err != nil {
		return err
	}
	if uid != toUID && os.Geteuid() == 0 {
		w.lent = finalJournal{Path: w.paths[spec.RoleFinal], Lent: true, UID: uid, GID: gid, ToUID: toUID, ToGID: toGID}
		uid, gid = toUID, toGID
	}
	if !permits(info.Mode(), uid == toUID, gid == toGID, mayWrite) {
		return &PathError{Field: "final", Path: w.paths[spec.RoleFinal],
			Rule: fmt.Sprintf("is not writable for user %s of the program (mode %04o); leave --user out, or run as root",
				s.Class.User, info.Mode().Perm())}
	}
	return nil
}

// Permission bits of a folder, for its owner.
const (
	mayRead  fs.FileMode = 0o500
	mayWrite fs.FileMode = 0o300
	// mayReadFile is that of a file.
	mayReadFile fs.FileMode = 0o400
)

// permits reports whether a mode gives a user all of need. As in the kernel, only
// the first class that fits counts.
func permits(mode fs.FileMode, owner, group bool, need fs.FileMode) bool {
	switch {
	case owner:
	case group:
		need >>= 3
	default:
		need >>= 6
	}
	return mode&need == need
}

// handOver empties ./final and gives it to the program's user. It is the first
// thing that changes anything of the caller's, and the last before the start. The
// program's user may then write it, so nothing may be moved in or out any more.
func (w *workspace) handOver(ctx context.Context) error {
	final := w.paths[spec.RoleFinal]
	w.emptied = true
	if err := w.clear(ctx); err != nil {
		return err
	}
	if err := w.noteFinal(); err != nil {
		return err
	}
	if w.lent.Lent {
		if err := w.final.Lchown(".", w.lent.ToUID, w.lent.ToGID); err != nil {
			return &PathError{Field: "final", Path: final, Rule: "cannot be given to the program's user", Err: cause(err)}
		}
	}
	return nil
}

// reopenFinal gives ./final the mode back that it had: a program may have shut us
// out of its own folder.
func (w *workspace) reopenFinal() error {
	if err := w.final.Chmod(".", w.mode); err != nil {
		return &PathError{Field: "final", Path: w.paths[spec.RoleFinal], Rule: "cannot be opened again", Err: cause(err)}
	}
	return nil
}

// handBack gives ./final and what is in it to whom it belonged.
func (w *workspace) handBack() error {
	if !w.lent.Lent || !w.emptied || w.final == nil {
		return nil
	}
	if err := chownTree(w.final, w.lent.ToUID, w.lent.UID, w.lent.GID); err != nil {
		return &PathError{Field: "final", Path: w.paths[spec.RoleFinal], Rule: "cannot be handed back entirely", Err: err}
	}
	return nil
}
