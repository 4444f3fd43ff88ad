package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// final is the outputs of one run on the host. The program, or what brings its files here, fills a
// directory of the run, which nobody else uses. At the end its entries move to the ./final of the
// caller, see publish. Until then nothing in ./final changes.
type final struct {
	store *record.Store
	runID string
	// out is the directory of the run, and root is this directory, opened.
	out  string
	root *os.Root
	// path is the ./final of the caller, dir is this directory, opened, and held is its locks. All are
	// zero if the outputs stay in the record.
	path string
	dir  *os.Root
	held []io.Closer
	// made says that this run made ./final.
	made bool
	// state says how far the outputs are on their way to ./final.
	state progress
	// before is the note of ./final before the note of this run.
	before finalNote
	// renamed are the outputs that unreserve renamed, by their old names.
	renamed []string
	// asideNamed says that a warning has named the directory of what was moved aside.
	asideNamed bool
	// step, for tests, is called behind each change on the disk.
	step func()
}

// progress is how far outputs are on their way to a ./final.
type progress int

const (
	// arriving outputs come to the directory of the run.
	arriving progress = iota
	// moving outputs were left in two places by a process that died.
	moving
	// published outputs are in ./final.
	published
	// superseded outputs stay in the directory of the run, because another run has used ./final since.
	superseded
	// dropped outputs never were: the program did not start.
	dropped
)

func (f *final) mark() {
	if f.step != nil {
		f.step()
	}
}

// openFinal locks ./final against other runs, and makes the directory of the run. The final that it
// returns with an error is only good for discard.
func openFinal(o Options, recordDir string) (*final, error) {
	f := &final{store: o.Store, runID: o.Plan.Job.RunID, path: o.Plan.Job.Final, out: filepath.Join(recordDir, record.OwnFinal)}
	if f.path != "" {
		if err := f.hold(); err != nil {
			return f, err
		}
		if err := f.mayFill(); err != nil {
			return f, err
		}
		f.out = f.place(recordDir)
	}
	if !o.mountedAhead() {
		mode := os.FileMode(0o755)
		if !fsx.Within(f.out, recordDir) {
			mode = 0o700 // others may see the directories above it
		}
		if err := os.Mkdir(f.out, mode); err != nil {
			return f, record.StateError(f.out, "cannot be made", err)
		}
	}
	var err error
	if f.root, err = fsx.OpenRealDir(f.out); err != nil {
		return f, record.StateError(f.out, "cannot be opened", err)
	}
	return f, f.give(o.Plan)
}

// hold makes ./final if it is missing, opens it, and takes its locks.
func (f *final) hold() error {
	lock, err := lockFinal(f.store, f.path)
	if err != nil {
		return err
	}
	f.held = append(f.held, lock)
	switch err := os.Mkdir(f.path, 0o755); {
	case err == nil:
		f.made = true
	case !errors.Is(err, fs.ErrExist):
		return f.pathError("cannot be made", err)
	}
	return f.openDir()
}

// openDir opens ./final and takes the lock of the directory itself.
func (f *final) openDir() error {
	if fsx.RealPath(f.path) != f.path { // another program may have had a directory above it
		return f.pathError("was replaced while the run was prepared", nil)
	}
	dir, err := fsx.OpenRealDir(f.path)
	if err != nil {
		return f.pathError("cannot be opened", err)
	}
	own, err := lockDir(f.path)
	if err != nil {
		// A run with another state directory has it.
		return errors.Join(fmt.Errorf("final %q: %w", f.path, err), dir.Close())
	}
	f.dir, f.held = dir, append(f.held, own)
	return nil
}

func (f *final) pathError(rule string, err error) error {
	return &spec.PathError{Field: "final", Path: f.path, Rule: rule, Err: fsx.Cause(err)}
}

// mayFill refuses a ./final that could not be filled at the end.
func (f *final) mayFill() error {
	if err := mayWriteIn(f.path); err != nil {
		return f.pathError("is not writable", err)
	}
	names, _, err := f.content()
	switch {
	case err != nil:
		return f.pathError("cannot be read", err)
	case len(names) > 0 && !f.hasRoomBeside() && !f.leftByEarlierRun(context.Background(), readNote(f.store, f.path)):
		return f.pathError("holds what no run left there, and it cannot be moved aside: its parent is not writable, or it is a mount point", nil)
	}
	return nil
}

// hasRoomBeside reports whether entries of ./final can be moved to a directory beside it.
func (f *final) hasRoomBeside() bool {
	parent := filepath.Dir(f.path)
	return fsx.SameMount(parent, f.path) && mayWriteIn(parent) == nil
}

// Names of the directories for what lay in ./final before: beside it, and in it if there is no room
// beside it.
const (
	beforeBeside = ".before-"
	beforeIn     = ".evalbox-before-"
)

// place is the directory of the run: in the record, if its entries can be moved from there.
func (f *final) place(recordDir string) string {
	dirs := record.OutputDirs(recordDir, f.path, f.runID)
	switch {
	case fsx.SameMount(recordDir, f.path):
		return dirs[0]
	case f.hasRoomBeside():
		return dirs[1]
	}
	return dirs[2]
}

// InRecord reports whether the program of a run with this ./final, empty for none, fills a directory of the
// record. A container that waits has mounted such a directory.
func InRecord(store *record.Store, final string) bool {
	return final == "" || fsx.SameMount(existing(store.RunsDir()), existing(final))
}

// existing is the nearest directory above a path, or the path itself, that exists.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// give gives the directory to the program's user.
func (f *final) give(plan spec.Spec) error {
	if plan.Class.Transfer == spec.TransferCopy || plan.Job.DiskBound == spec.DiskLoop {
		return nil // this process fills it
	}
	uid, gid, err := numericUser(plan.Class.UserOnHost())
	if err != nil {
		return err
	}
	if os.Geteuid() == 0 {
		err = f.root.Lchown(".", uid, gid)
	} else if uid != os.Geteuid() {
		return &spec.PathError{Field: "final", Path: f.out, Rule: fmt.Sprintf("cannot be given to user %s of the program; leave --user out, or run as root", plan.Class.User)}
	}
	if err == nil {
		err = f.inherit()
	}
	if err != nil {
		return record.StateError(f.out, "cannot be given to the program's user", err)
	}
	return nil
}

// inherit gives new files the group that they would get in a ./final with a set-group-ID bit. Root
// sets the group at the end.
func (f *final) inherit() error {
	if f.dir == nil || os.Geteuid() == 0 {
		return nil
	}
	info, err := f.dir.Stat(".")
	if err != nil || info.Mode()&fs.ModeSetgid == 0 {
		return err
	}
	_, gid, _ := fsx.OwnerOf(info)
	return errors.Join(f.root.Lchown(".", -1, gid), f.root.Chmod(".", 0o755|fs.ModeSetgid))
}

// handBack takes the directory of the run and everything in it from the program, for the owner of
// ./final. It returns the permissions of the files before. It may be called again.
func (f *final) handBack() (fsx.HandedBack, error) {
	if f.root == nil {
		return fsx.HandedBack{}, nil
	}
	if err := fsx.LetIn(f.out); err != nil {
		return fsx.HandedBack{}, err
	}
	if err := f.unreserve(); err != nil {
		return fsx.HandedBack{}, err
	}
	info, err := f.root.Stat(".")
	if err != nil {
		return fsx.HandedBack{}, err
	}
	from, _, _ := fsx.OwnerOf(info)
	back := fsx.Handback{From: from, UID: -1, GID: -1, Most: maxEntries}
	if os.Geteuid() == 0 {
		back.UID, back.GID = 0, os.Getegid()
		if f.dir != nil {
			if info, err = f.dir.Stat("."); err != nil {
				return fsx.HandedBack{}, err
			}
			back.UID, back.GID, _ = fsx.OwnerOf(info)
		}
	}
	return fsx.HandBack(f.root, back)
}

// reserved is the beginning of the names that evalbox gives to directories in ./final.
const reserved = ".evalbox-"

// unreserve renames outputs that would be taken for directories of evalbox.
func (f *final) unreserve() error {
	if f.path == "" || f.state == moving {
		return nil
	}
	names, err := entries(f.root)
	for _, name := range names {
		if err != nil || !strings.HasPrefix(name, reserved) {
			continue
		}
		if err = f.root.Rename(name, "_"+name); err == nil {
			f.renamed = append(f.renamed, name)
		}
	}
	return err
}

// outputs is the directory that has the outputs.
func (f *final) outputs() *os.Root {
	if f.state == published {
		return f.dir
	}
	return f.root
}

// drop deletes the directory of a run whose program never started.
func (f *final) drop() error {
	if f == nil || f.state == published {
		return nil
	}
	f.state = dropped
	if f.path == "" {
		return fsx.Remove(f.out)
	}
	return errors.Join(f.unnote(), fsx.Remove(f.out))
}

// discard undoes everything, for a run whose program never started.
func (f *final) discard() error {
	if f == nil {
		return nil
	}
	errs := []error{f.drop()}
	if f.made {
		// Only if it is empty, which it is unless somebody else wrote to it.
		errs = append(errs, os.Remove(f.path))
	}
	return errors.Join(errs...)
}

// close frees locks and descriptors. The roots stay set: a measurement may be about to use them.
func (f *final) close() error {
	if f == nil {
		return nil
	}
	var errs []error
	for _, root := range []*os.Root{f.root, f.dir} {
		if root != nil {
			errs = append(errs, root.Close())
		}
	}
	for _, lock := range f.held {
		errs = append(errs, lock.Close())
	}
	return errors.Join(errs...)
}
