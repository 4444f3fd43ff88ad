package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// final is ./final on the host: the directory of outputs. The caller's directory is
// locked, emptied right before the start, lent to the program's user, and given back.
type final struct {
	store *record.Store
	runID string
	path  string
	root  *os.Root
	// owner says whom ./final is given back to.
	owner record.Ownership
	lock  *finalLock
	// dir holds the lock of the directory itself, which runs of all state directories
	// share.
	dir  io.Closer
	mode fs.FileMode
	// made says that the run created the caller's ./final, granted that the program's user
	// was given it, noted that the run is on record as the one that fills it.
	made, granted, noted bool
	// backup is the directory with the earlier content, and foreign says that no earlier
	// run left that content.
	backup  string
	foreign bool
	// earlier is the note of the run that filled ./final before.
	earlier []byte
}

// openFinal finds or makes ./final, locks it against other runs and opens it. The final
// that it returns with an error is only good for discard.
func openFinal(store *record.Store, plan spec.Spec, recordDir string) (*final, error) {
	f := &final{store: store, runID: plan.Job.RunID, path: plan.Job.Final}
	if f.path == "" {
		f.path = filepath.Join(recordDir, record.OwnFinal)
		if err := os.Mkdir(f.path, 0o755); err != nil {
			return f, record.StateError(f.path, "cannot be made", err)
		}
	} else {
		var err error
		if f.lock, err = lockFinal(store, f.path); err != nil {
			return f, err
		}
		switch err := os.Mkdir(f.path, 0o755); {
		case err == nil:
			f.made = true
		case !errors.Is(err, fs.ErrExist):
			return f, f.pathError("cannot be made", err)
		}
	}
	if err := f.open(); err != nil {
		return f, err
	}
	return f, f.planGrant(plan.Class)
}

// open opens the directory, and takes the lock of the directory itself.
func (f *final) open() (err error) {
	if f.root, err = os.OpenRoot(f.path); err != nil {
		return f.pathError("cannot be opened", err)
	}
	if f.dir, err = lockDir(f.path); err != nil {
		// A run with another state directory has it.
		return fmt.Errorf("final %q: %w", f.path, err)
	}
	return nil
}

func (f *final) pathError(rule string, err error) error {
	return &spec.PathError{Field: "final", Path: f.path, Rule: rule, Err: fsx.Cause(err)}
}

// planGrant notes whom ./final belongs to if the program runs as another user.
func (f *final) planGrant(class spec.Class) error {
	info, err := f.root.Stat(".")
	if err != nil {
		return f.pathError("cannot be read", err)
	}
	f.mode = info.Mode().Perm()
	if class.Transfer == spec.TransferCopy {
		// The program writes elsewhere; this process writes here what it left.
		if err := mayWriteIn(f.path); err != nil {
			return f.pathError("is not writable", err)
		}
		return nil
	}
	uid, gid, ok := fsx.OwnerOf(info)
	toUID, toGID, err := numericUser(class.User)
	if !ok || err != nil {
		return err
	}
	if uid != toUID && os.Geteuid() == 0 {
		f.owner = record.Ownership{Path: f.path, Granted: true, UID: uid, GID: gid, ToUID: toUID, ToGID: toGID}
		uid, gid = toUID, toGID
	}
	if !permits(info.Mode(), uid == toUID, gid == toGID, mayWrite) {
		return f.pathError(fmt.Sprintf("is not writable for user %s of the program (mode %04o); leave --user out, or run as root",
			class.User, info.Mode().Perm()), nil)
	}
	return nil
}

// grant empties ./final and gives it to the program's user, who may then write it: nothing
// is moved in or out any more.
func (f *final) grant(ctx context.Context) error {
	f.granted = true
	if err := f.empty(ctx); err != nil {
		return err
	}
	if err := f.note(); err != nil {
		return err
	}
	if f.owner.Granted {
		if err := f.root.Lchown(".", f.owner.ToUID, f.owner.ToGID); err != nil {
			return f.pathError("cannot be given to the program's user", err)
		}
	}
	return nil
}

// reopen restores the mode of ./final: a program may have removed our access to its
// own directory.
func (f *final) reopen() error {
	if err := f.root.Chmod(".", f.mode); err != nil {
		return f.pathError("cannot be opened again", err)
	}
	return nil
}

// restore gives ./final and everything in it back to its owner.
func (f *final) restore() error {
	if !f.owner.Granted || !f.granted || f.root == nil {
		return nil
	}
	if err := fsx.ChownTree(f.root, f.owner.ToUID, f.owner.UID, f.owner.GID); err != nil {
		return &spec.PathError{Field: "final", Path: f.path, Rule: "cannot be handed back entirely", Err: err}
	}
	return nil
}

// discard undoes everything, for a run whose program never started.
func (f *final) discard() error {
	if f == nil {
		return nil
	}
	errs := []error{f.restore(), f.rollback()}
	if f.made {
		// Only if it is empty, which it is unless somebody else wrote to it.
		errs = append(errs, os.Remove(f.path))
	}
	return errors.Join(errs...)
}

// close frees locks and descriptors. The root stays set: a measurement may be about to use it.
func (f *final) close() error {
	if f == nil {
		return nil
	}
	var errs []error
	if f.root != nil {
		errs = append(errs, f.root.Close())
	}
	if f.lock != nil {
		errs = append(errs, f.lock.release())
	}
	if f.dir != nil {
		errs = append(errs, f.dir.Close())
	}
	return errors.Join(errs...)
}

// Reclaim cleans up after a run that will never finish and whose container is gone: it gives
// ./final back to its owner and frees the reserved space. It may be called again.
func Reclaim(store *record.Store, id string) (err error) {
	journal, err := store.Journal(id)
	if errors.Is(err, record.ErrNoRecord) {
		return nil
	}
	if err != nil {
		return err
	}
	dir := store.RecordDir(id)
	if err := os.Remove(filepath.Join(dir, record.ReserveFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return record.StateError(dir, "cannot be written", err)
	}
	for _, mounted := range record.MountedDirs {
		if err := os.RemoveAll(filepath.Join(dir, mounted)); err != nil {
			return record.StateError(dir, "cannot be written", err)
		}
	}
	owner := journal.Final
	if !owner.Granted {
		return nil
	}
	if !fsx.Within(owner.Path, dir) {
		lock, err := lockFinal(store, owner.Path)
		if err != nil {
			return fmt.Errorf("handing back final of run %s: %w", id, err)
		}
		defer func() { err = errors.Join(err, lock.release()) }()
	}
	root, err := os.OpenRoot(owner.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("handing back final %q of run %s: %w", owner.Path, id, fsx.Cause(err))
	}
	return errors.Join(fsx.ChownTree(root, owner.ToUID, owner.UID, owner.GID), root.Close())
}
