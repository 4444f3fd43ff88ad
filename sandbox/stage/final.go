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
	dir io.Closer
	// made says that the run created the caller's ./final, granted that the program may
	// have written to it and it was not handed back since, noted that the run is on record
	// as the one that fills it.
	made, granted, noted bool
	// backup is the directory with the earlier content, and foreign says that no earlier
	// run left that content.
	backup  string
	foreign bool
	// earlier is the note of the run that filled ./final before; nil if there is none.
	earlier *finalNote
	// waiting is the directory that a container which has waited has mounted, until it is
	// ./final; empty if the container has ./final itself.
	waiting string
}

// openFinal finds or makes ./final, locks it against other runs and opens it. The final
// that it returns with an error is only good for discard.
func openFinal(o Options, recordDir string) (*final, error) {
	plan := o.Plan
	f := &final{store: o.Store, runID: plan.Job.RunID, path: plan.Job.Final}
	own := filepath.Join(recordDir, record.OwnFinal)
	switch {
	case f.path == "" && o.mountedAhead():
		f.path = own
	case f.path == "":
		f.path = own
		if err := os.Mkdir(f.path, 0o755); err != nil {
			return f, record.StateError(f.path, "cannot be made", err)
		}
	default:
		if o.mountedAhead() {
			f.waiting = own
		}
		var err error
		if f.lock, err = lockFinal(f.store, f.path); err != nil {
			return f, err
		}
		switch err := os.Mkdir(f.path, 0o755); {
		case err == nil:
			f.made = true
		case !errors.Is(err, fs.ErrExist):
			return f, f.pathError("cannot be made", err)
		}
		if fsx.RealPath(f.path) != f.path { // a program that ended meanwhile may have had a directory above it
			return f, f.pathError("was replaced while the run was prepared", nil)
		}
	}
	if err := f.open(); err != nil {
		return f, err
	}
	return f, f.planGrant(plan)
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
func (f *final) planGrant(plan spec.Spec) error {
	class := plan.Class
	info, err := f.root.Stat(".")
	if err != nil {
		return f.pathError("cannot be read", err)
	}
	if class.Transfer == spec.TransferCopy {
		// The program writes elsewhere; this process writes here what it left.
		if err := mayWriteIn(f.path); err != nil {
			return f.pathError("is not writable", err)
		}
		return nil
	}
	before, err := fsx.StateOf(f.root)
	if err != nil {
		return f.pathError("cannot be read", err)
	}
	uid, gid, ok := fsx.OwnerOf(info)
	toUID, toGID, err := numericUser(class.UserOnHost())
	if !ok || err != nil {
		return err
	}
	if plan.Job.DiskBound == spec.DiskLoop {
		toUID, toGID = os.Geteuid(), os.Getegid() // this process copies what the program left
	}
	f.owner = record.Ownership{Path: f.path, UID: uid, GID: gid, ToUID: toUID, ToGID: toGID, Dir: &before}
	if uid != toUID && os.Geteuid() == 0 {
		f.owner.Granted = true
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
	if err := f.empty(ctx); err != nil {
		return err
	}
	if err := f.replace(); err != nil {
		return err
	}
	if err := f.note(); err != nil {
		return err
	}
	f.granted = true
	if f.owner.Granted {
		if err := f.root.Lchown(".", f.owner.ToUID, f.owner.ToGID); err != nil {
			return f.pathError("cannot be given to the program's user", err)
		}
	}
	return nil
}

// handBack gives ./final and everything in it back to its owner. What is there then is on
// record as what this run left, unless somebody else had a hand in it. modes are the
// permissions of the files before. It does nothing the second time.
func (f *final) handBack() (modes map[fsx.ID]uint32, warning string, err error) {
	if !f.granted || f.root == nil || f.owner.Path == "" {
		return nil, "", nil
	}
	handed, err := handBack(f.root, f.owner)
	if err != nil {
		return handed.Modes, "", &spec.PathError{Field: "final", Path: f.path, Rule: "cannot be handed back entirely; repeat it with: sandbox gc", Err: err}
	}
	f.granted = false
	if handed.Unlisted > 0 {
		warning = fmt.Sprintf("final holds %d entries with more extended attributes than can be listed: they keep them", handed.Unlisted)
	}
	if f.owner.Dir != nil && errors.Is(f.owner.Dir.LetIn(f.path), fsx.ErrReplaced) {
		warning = fmt.Sprintf("final %q was moved or replaced during the run: the outputs are in the directory that the run had", f.path)
	}
	return handed.Modes, warning, f.leave(handed.Identity)
}

// handBack hands the ./final of a run back.
func handBack(root *os.Root, owner record.Ownership) (fsx.HandedBack, error) {
	if os.Geteuid() != 0 && os.Geteuid() != owner.ToUID {
		return fsx.HandedBack{}, nil // the files of another user, who keeps them
	}
	if owner.Dir != nil {
		// A directory that was moved is handed back where it is now, if it is still open.
		if err := owner.Dir.LetIn(owner.Path); err != nil && !(errors.Is(err, fsx.ErrReplaced) && owner.Dir.Is(root)) {
			return fsx.HandedBack{}, err
		}
	}
	back := fsx.Handback{From: owner.ToUID, UID: -1, GID: -1, Dir: owner.Dir, Most: maxEntries}
	if owner.Granted {
		back.UID, back.GID = owner.UID, owner.GID
	}
	return fsx.HandBack(root, back)
}

// discard undoes everything, for a run whose program never started.
func (f *final) discard() error {
	if f == nil {
		return nil
	}
	errs := []error{f.rollback()}
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
