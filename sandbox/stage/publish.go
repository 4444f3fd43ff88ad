package stage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/disk"
	"github.com/evalbox/evalbox/sandbox/record"
)

// supersededError says that the outputs of a run stay in the directory of the run, because another run
// has used its ./final since.
type supersededError struct {
	Final, Out string
	// By is the other run.
	By string
}

func (e *supersededError) Error() string {
	return fmt.Sprintf("run %s has used final %q since: the outputs are in %s", e.By, e.Final, e.Out)
}

// UnpublishedError says why outputs stay in the directory of their run, for now.
type UnpublishedError struct {
	RunID, Out string
	Err        error
}

func (e *UnpublishedError) Error() string {
	return fmt.Sprintf("%v: the outputs are in %s; move them with: sandbox adopt %s", e.Err, e.Out, e.RunID)
}

func (e *UnpublishedError) Unwrap() error { return e.Err }

// Hint names a way out.
func (e *UnpublishedError) Hint() string {
	return "make room for the outputs there, then: sandbox adopt " + e.RunID
}

// replacedError is an [fsx.ErrReplaced] of a ./final: only its owner can make room for the outputs.
type replacedError struct{ error }

func (e *replacedError) Is(target error) bool { return target == fsx.ErrReplaced }

func (e *replacedError) Unwrap() error { return e.error }

// publish moves the outputs of the run to its ./final, which stays the same directory. What lay there
// before is deleted if it is exactly what the run left that filled ./final last (EX-002). Anything
// else moves to a directory beside ./final, which the warning names. was is the identity of the
// outputs; nil if it is unknown.
//
// The note of ./final is the journal of this: a process that dies leaves what another call finishes.
// After an error the outputs that have not moved stay in the directory of the run.
func (f *final) publish(ctx context.Context, was *fsx.Identity) (warning string, err error) {
	if f.path == "" || f.state == published || f.root == nil {
		return "", nil
	}
	note := readNote(f.store, f.path)
	if note.Next != f.runID {
		names, err := entries(f.root)
		switch {
		case err != nil:
			return "", err
		case len(names) == 0: // its program may never have started
			return "", os.Remove(f.out)
		case note.RunID != "":
			f.state = superseded
			return "", &supersededError{Final: f.path, Out: f.out, By: note.usedBy()}
		}
	}
	warning, err = f.reopen()
	if err != nil {
		return "", err
	}
	aside := asideMove{final: f, ours: !note.Moving && f.leftByEarlierRun(ctx, note), note: note}
	if !note.Moving {
		if err := aside.all(); err != nil {
			return "", f.pathError("cannot be emptied", err)
		}
		note.Path, note.Next, note.Moving = f.path, f.runID, true
		if err := writeNote(f.store, note); err != nil {
			return "", err
		}
		f.mark()
	}
	if was, err = f.moveIn(ctx, &aside, was); err != nil {
		return "", f.pathError("does not have all outputs", err)
	}
	if err := os.Remove(f.out); err != nil {
		return "", f.pathError("has the outputs, but the directory of the run is left behind", err)
	}
	f.mark()
	if other := aside.settle(ctx); other != "" {
		warning = other
	}
	f.mark()
	left, err := fsx.Identify(ctx, f.dir, maxEntries)
	if err != nil || was == nil || left == nil || left.Moved != was.Moved {
		left = nil // somebody else had a hand in it
	}
	if err := writeNote(f.store, finalNote{Path: f.path, RunID: f.runID, Left: left}); err != nil {
		return "", err
	}
	f.state = published
	return warning, nil
}

// empty moves what lies in ./final aside, and forgets which run filled it.
func (f *final) empty(ctx context.Context) (warning string, err error) {
	if f.path == "" {
		return "", nil
	}
	note := readNote(f.store, f.path)
	aside := asideMove{final: f, ours: f.leftByEarlierRun(ctx, note), note: note}
	if err := aside.all(); err != nil {
		return "", f.pathError("cannot be emptied", err)
	}
	note.RunID, note.Left = "", nil
	if note.Next == "" {
		err = removeNote(f.store, f.path)
	} else {
		err = writeNote(f.store, note)
	}
	if err != nil {
		return "", err
	}
	return aside.settle(ctx), nil
}

// reopen makes ./final again if it was removed during the run. It refuses anything else in its place: who
// owns a directory above may have put it there.
func (f *final) reopen() (warning string, err error) {
	info, err := os.Lstat(f.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		warning = fmt.Sprintf("final %q was removed during the run, and is made again", f.path)
		if err := os.Mkdir(f.path, 0o755); err != nil {
			return "", f.pathError("was removed during the run, and cannot be made again", err)
		}
	case err != nil:
		return "", f.pathError("cannot be read", err)
	case !info.IsDir():
		return "", &replacedError{f.pathError("was replaced by "+fsx.Kind(info.Mode().Type()), nil)}
	case f.dir != nil:
		if opened, err := f.dir.Stat("."); err != nil || !os.SameFile(opened, info) {
			return "", &replacedError{f.pathError("was replaced by another directory", nil)}
		}
		return "", nil
	}
	if f.dir != nil {
		_ = f.dir.Close() // nothing was written
	}
	return warning, f.openDir()
}

// inside is the directory for the outputs in ./final itself.
func (f *final) inside() string { return record.OutputDirs("", f.path, f.runID)[2] }

// content lists what ./final holds, without the directories of runs.
func (f *final) content() (names, own []string, err error) {
	names, err = entries(f.dir)
	names = slices.DeleteFunc(names, func(name string) bool {
		ours := strings.HasPrefix(name, record.PartialIn) || name == beforeIn+f.runID
		if ours {
			own = append(own, name)
		}
		return ours
	})
	return names, own, err
}

// moveIn moves the outputs to ./final. It returns their identity, which a copy changes.
func (f *final) moveIn(ctx context.Context, aside *asideMove, was *fsx.Identity) (*fsx.Identity, error) {
	err := f.moveAll(aside)
	if !errors.Is(err, unix.EXDEV) {
		return was, err
	}
	// They are of one mount, but the file system moves nothing, such as between two projects.
	if f.out == f.inside() {
		return was, err
	}
	f.mark()
	if was, err = f.copyIn(ctx); err != nil {
		return was, err
	}
	return was, f.moveAll(aside)
}

// copyIn copies the outputs to a directory in ./final. The copy is the directory of the run from then on.
func (f *final) copyIn(ctx context.Context) (*fsx.Identity, error) {
	making, old, was := f.inside()+".copy", f.out, f.root
	if err := fsx.Remove(making); err != nil { // a process may have died here
		return nil, err
	}
	if err := os.Mkdir(making, 0o700); err != nil {
		return nil, err
	}
	to, err := fsx.OpenRealDir(making)
	if err != nil {
		return nil, err
	}
	f.root, f.out = to, making
	var handed fsx.HandedBack
	if err = disk.CopyOut(ctx, was, to); err == nil {
		handed, err = f.handBack()
	}
	f.mark()
	if err == nil {
		err = os.Rename(making, f.inside()) // from here on, this is what another process finds first
	}
	if err != nil {
		f.root, f.out = was, old
		return nil, errors.Join(err, to.Close(), fsx.Remove(making))
	}
	f.out = f.inside()
	f.mark()
	return handed.Identity, errors.Join(was.Close(), fsx.Remove(old))
}

func (f *final) moveAll(aside *asideMove) error {
	names, err := entries(f.root)
	if err != nil {
		return err
	}
	return between(f.root, f.dir, func(from, to *os.File) error {
		for _, name := range names {
			err := fsx.Move(from, to, name)
			if errors.Is(err, fs.ErrExist) { // it has come meanwhile
				if err = aside.some([]string{name}); err == nil {
					err = fsx.Move(from, to, name)
				}
			}
			if err != nil {
				return err
			}
			f.mark()
		}
		return nil
	})
}

// between opens two directories.
func between(from, to *os.Root, do func(from, to *os.File) error) error {
	a, err := from.Open(".")
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := to.Open(".")
	if err != nil {
		return err
	}
	defer b.Close()
	return do(a, b)
}

// asideMove moves what lies in ./final aside.
type asideMove struct {
	*final
	note finalNote
	// ours says that it is what the run of the note left. to is where it is now.
	ours bool
	to   string
}

// all moves everything. What appears meanwhile was left by no run.
func (m *asideMove) all() error {
	for first := true; ; first = false {
		names, _, err := m.content()
		if err != nil || len(names) == 0 {
			return err
		}
		m.ours = m.ours && first
		if err := m.some(names); err != nil {
			return err
		}
	}
}

func (m *asideMove) some(names []string) error {
	if m.to == "" {
		to := m.path + beforeBeside + m.runID
		if !m.hasRoomBeside() {
			to = filepath.Join(m.path, beforeIn+m.runID)
		}
		if err := os.Mkdir(to, 0o700); err != nil && !errors.Is(err, fs.ErrExist) { // a process may have died here
			return err
		}
		m.to = to
	}
	to, err := fsx.OpenRealDir(m.to)
	if err != nil {
		return err
	}
	defer to.Close()
	if info, err := to.Stat("."); err != nil || !isOwn(info) {
		return errors.Join(fmt.Errorf("%s belongs to another user", m.to), err)
	}
	return between(m.dir, to, func(from, to *os.File) error {
		for _, name := range names {
			if err := fsx.Move(from, to, name); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%w (some of it may be in %s)", err, m.to)
			}
			m.mark()
		}
		return nil
	})
}

// isOwn reports whether a directory belongs to this process's user.
func isOwn(info os.FileInfo) bool {
	uid, _, known := fsx.OwnerOf(info)
	return known && uid == os.Geteuid()
}

// settle deletes what was moved aside if it is what the earlier run left. Otherwise it says where it is,
// once. A process that died may have moved it.
func (m *asideMove) settle(ctx context.Context) (warning string) {
	for _, to := range []string{m.path + beforeBeside + m.runID, filepath.Join(m.path, beforeIn+m.runID)} {
		if fsx.IsRealDir(to) && !m.asideNamed {
			m.to = to
		}
	}
	if m.to == "" {
		return ""
	}
	still := false
	if m.ours {
		_ = fsx.InRoot(m.to, func(root *os.Root) error {
			now, err := fsx.Identify(ctx, root, maxEntries)
			still = err == nil && now != nil && now.Moved == m.note.Left.Moved // somebody may have come between
			return nil
		}) // one that cannot be read stays
	}
	m.asideNamed = !still
	if !still {
		return fmt.Sprintf("files were in final before that no run had left there: they are now in %s", m.to)
	}
	if err := fsx.Remove(m.to); err != nil {
		return fmt.Sprintf("what the earlier run left in final could not be deleted: it is in %s: %v", m.to, fsx.Cause(err))
	}
	return ""
}

// leftByEarlierRun reports whether ./final holds exactly what the run left that filled it last: nothing
// was added or changed since. Without a finished record of that run it does not.
func (f *final) leftByEarlierRun(ctx context.Context, note finalNote) bool {
	if note.Left == nil {
		return false
	}
	if state, err := f.store.State(note.RunID); err != nil || state != record.Finished {
		return false
	}
	_, own, err := f.content()
	if err != nil {
		return false
	}
	now, err := fsx.Identify(ctx, f.dir, maxEntries, own...)
	return err == nil && now != nil && *now == *note.Left
}

func entries(root *os.Root) ([]string, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}
