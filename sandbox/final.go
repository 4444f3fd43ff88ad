package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/internal/fsx"
)

// openFinal finds or makes ./final, locks it against other runs and opens it.
func (w *workspace) openFinal(store *record.Store, spec Spec) error {
	final := spec.Job.Final
	if final == "" {
		final = filepath.Join(w.record, record.OwnFinal)
		if err := os.Mkdir(final, 0o755); err != nil {
			return record.StateError(final, "cannot be made", err)
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
			return &PathError{Field: "final", Path: final, Rule: "cannot be made", Err: fsx.Cause(err)}
		}
	}
	w.paths[RoleFinal] = final
	root, err := os.OpenRoot(final)
	if err != nil {
		return &PathError{Field: "final", Path: final, Rule: "cannot be opened", Err: fsx.Cause(err)}
	}
	w.final = root
	if w.folder, err = lockFolder(final); err != nil {
		// A run with another state folder has it.
		return fmt.Errorf("final %q: %w", final, err)
	}
	return w.planLending(spec)
}

// planLending notes whom ./final belongs to when the program runs as somebody
// else.
func (w *workspace) planLending(spec Spec) error {
	info, err := w.final.Stat(".")
	if err != nil {
		return &PathError{Field: "final", Path: w.paths[RoleFinal], Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	w.mode = info.Mode().Perm()
	if spec.Class.Transfer == TransferCopy {
		// The program writes elsewhere; what it leaves is written here by us.
		if err := mayWriteIn(w.paths[RoleFinal]); err != nil {
			return &PathError{Field: "final", Path: w.paths[RoleFinal], Rule: "is not writable", Err: fsx.Cause(err)}
		}
		return nil
	}
	uid, gid, ok := fsx.OwnerOf(info)
	toUID, toGID, err := numericUser(spec.Class.User)
	if !ok || err != nil {
		return err
	}
	if uid != toUID && os.Geteuid() == 0 {
		w.lent = record.Ownership{Path: w.paths[RoleFinal], Granted: true, UID: uid, GID: gid, ToUID: toUID, ToGID: toGID}
		uid, gid = toUID, toGID
	}
	if !permits(info.Mode(), uid == toUID, gid == toGID, mayWrite) {
		return &PathError{Field: "final", Path: w.paths[RoleFinal],
			Rule: fmt.Sprintf("is not writable for user %s of the program (mode %04o); leave --user out, or run as root",
				spec.Class.User, info.Mode().Perm())}
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
	final := w.paths[RoleFinal]
	w.emptied = true
	if err := w.clear(ctx); err != nil {
		return err
	}
	if err := w.noteFinal(); err != nil {
		return err
	}
	if w.lent.Granted {
		if err := w.final.Lchown(".", w.lent.ToUID, w.lent.ToGID); err != nil {
			return &PathError{Field: "final", Path: final, Rule: "cannot be given to the program's user", Err: fsx.Cause(err)}
		}
	}
	return nil
}

// reopenFinal gives ./final the mode back that it had: a program may have shut us
// out of its own folder.
func (w *workspace) reopenFinal() error {
	if err := w.final.Chmod(".", w.mode); err != nil {
		return &PathError{Field: "final", Path: w.paths[RoleFinal], Rule: "cannot be opened again", Err: fsx.Cause(err)}
	}
	return nil
}

// handBack gives ./final and what is in it to whom it belonged.
func (w *workspace) handBack() error {
	if !w.lent.Granted || !w.emptied || w.final == nil {
		return nil
	}
	if err := fsx.ChownTree(w.final, w.lent.ToUID, w.lent.UID, w.lent.GID); err != nil {
		return &PathError{Field: "final", Path: w.paths[RoleFinal], Rule: "cannot be handed back entirely", Err: err}
	}
	return nil
}
