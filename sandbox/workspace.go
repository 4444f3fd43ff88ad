package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/evalbox/evalbox/sandbox/record"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/tree"

	"github.com/evalbox/evalbox/policy"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/spec"
)

const (
	// maxScript bounds a program file. Generated scripts have kilobytes.
	maxScript = 64 << 20
	// minFree is what the state folder's disk must have left: room for the
	// result and for what the program prints first.
	minFree = 64 << 20
	// resultReserve is set aside before the start, so that the result can be
	// written even when the program fills the disk.
	resultReserve = 4 << 20
)

// workspace is what one run has on the host's disk.
type workspace struct {
	record string
	paths  engine.Sources
	final  *os.Root
	// lent tells whom to give ./final back to.
	lent    record.Ownership
	lock    *finalLock
	trees   []*runTree
	mode    fs.FileMode
	made    bool // we made the caller's ./final
	emptied bool
	// aside is where what lay in ./final before is now, and keepAside says that
	// no earlier run of ours left it.
	aside     string
	keepAside bool
	// earlier is the note of the run that filled ./final before.
	earlier []byte
	folder  *os.File // holds the lock of the folder itself
	store   *record.Store
	runID   string
	reserve string
}

// openWorkspace makes the record folder and what the container mounts from it.
// Nothing of the caller's is changed yet. On an error nothing is left behind.
func openWorkspace(store *record.Store, spec Spec) (*workspace, error) {
	record, err := store.Create(spec.Job.RunID)
	if err != nil {
		return nil, err
	}
	w := &workspace{record: record, paths: engine.Sources{}, store: store, runID: spec.Job.RunID}
	if err := w.fill(store, spec); err != nil {
		return nil, errors.Join(err, w.discard())
	}
	return w, nil
}

// fill makes what the container mounts.
func (w *workspace) fill(store *record.Store, spec Spec) (err error) {
	if err := w.checkSpace(); err != nil {
		return err
	}
	if spec.Job.Script != "" {
		if w.paths[RoleProgram], err = copyScript(spec.Job.Script, filepath.Join(w.record, record.ProgramDir)); err != nil {
			return err
		}
	}
	w.paths[RoleInput] = spec.Job.Input
	switch {
	case spec.Class.Transfer == TransferCopy:
		// The program gets a copy, which it may read.
	case spec.Job.Input != "":
		if err := checkReadable(spec.Job.Input, spec.Class.User); err != nil {
			return err
		}
	default:
		w.paths[RoleInput] = filepath.Join(w.record, record.EmptyInput)
		if err := mkdirReadable(w.paths[RoleInput]); err != nil {
			return record.StateError(w.record, "cannot be written", err)
		}
	}
	if err := w.openMounts(spec); err != nil {
		return err
	}
	return w.openFinal(store, spec)
}

// openMounts makes what hides files, and what is mounted on in an empty input.
func (w *workspace) openMounts(plan Spec) error {
	for i, m := range plan.Job.Mounts {
		w.paths[mountRole(i)] = m.Source
		if plan.Class.Transfer == TransferCopy {
			continue
		}
		if err := checkMountReadable(m.Source, plan.Class.User); err != nil {
			return err
		}
	}
	var err error
	if len(plan.Class.Masks) > 0 {
		w.paths[spec.RoleEmpty] = filepath.Join(w.record, record.EmptyFile)
		// Readable whatever our umask is.
		err = errors.Join(os.WriteFile(w.paths[spec.RoleEmpty], nil, 0o444), os.Chmod(w.paths[spec.RoleEmpty], 0o444))
	}
	if err == nil && plan.Job.Input == "" && plan.Class.Transfer != TransferCopy {
		err = makePoints(w.paths[RoleInput], pointsOf(plan, InputDir))
	}
	if err != nil {
		return record.StateError(w.record, "cannot be written", err)
	}
	return nil
}

// makePoints makes what something is mounted on in a folder of ours.
func makePoints(dir string, points map[string]bool) error {
	for _, name := range tree.SortedKeys(points) {
		full := filepath.Join(dir, filepath.FromSlash(name))
		folder := full
		if !points[name] {
			folder = filepath.Dir(full)
		}
		for at := folder; at != dir; at = filepath.Dir(at) {
			if err := errors.Join(os.MkdirAll(at, 0o755), os.Chmod(at, 0o755)); err != nil {
				return err
			}
		}
		if !points[name] {
			if err := os.WriteFile(full, nil, 0o444); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *workspace) checkSpace() error {
	if free, ok := freeBytes(w.record); ok && free < minFree {
		return fmt.Errorf("state folder %q: %w: %v free, a run needs %v", filepath.Dir(w.record), record.ErrNoSpace,
			policy.Size(free), policy.Size(minFree))
	}
	w.reserve = filepath.Join(w.record, record.ReserveFile)
	file, err := os.OpenFile(w.reserve, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err == nil {
		err = errors.Join(reserve(file, resultReserve), file.Close())
	}
	if err != nil {
		return record.StateError(w.record, "cannot be written", err)
	}
	return nil
}

// checkReadable refuses an input folder that the program could not even list. A
// program of root's runs as another user, and would fail in a puzzling way.
func checkReadable(dir, user string) error { return checkReadableAs("input", dir, user) }

// checkMountReadable does the same for a further mount, which may be a file.
func checkMountReadable(source, user string) error { return checkReadableAs("mount", source, user) }

func checkReadableAs(field, dir, user string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return &PathError{Field: field, Path: dir, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	need := mayRead
	if !info.IsDir() {
		need = mayReadFile
	}
	owner, group, ok := fsx.OwnerOf(info)
	uid, gid, err := numericUser(user)
	if !ok || err != nil {
		return err
	}
	if !permits(info.Mode(), uid == owner, gid == group, need) {
		return &PathError{Field: field, Path: dir,
			Rule: fmt.Sprintf("cannot be read by user %s of the program (mode %04o); chmod it, or choose another --user", user, info.Mode().Perm())}
	}
	return nil
}

// numericUser splits the uid:gid of a Spec.
func numericUser(user string) (uid, gid int, err error) {
	if _, err := fmt.Sscanf(user, "%d:%d", &uid, &gid); err != nil {
		return 0, 0, fmt.Errorf("user %q is not numeric uid:gid: %w", user, err)
	}
	return uid, gid, nil
}

// mkdirReadable makes a folder that every user may read, whatever our umask is.
func mkdirReadable(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, 0o755)
}

// copyScript copies the program into the record: an editor may save over the
// original while the run goes on, and the record shall hold what really ran.
func copyScript(from, toDir string) (string, error) {
	source, err := os.OpenFile(from, os.O_RDONLY|fsx.OpenFlags, 0)
	if err != nil {
		return "", &PathError{Field: "script", Path: from, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	defer source.Close()
	// Links were followed when the run was planned; one that is there now is new.
	opened, err := source.Stat()
	if err == nil && !opened.Mode().IsRegular() {
		err = errors.New("is not a regular file")
	}
	if err != nil {
		return "", &PathError{Field: "script", Path: from, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	if err := (pinned{field: "script", path: from, info: opened}).check(); err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(source, maxScript+1))
	if err != nil {
		return "", &PathError{Field: "script", Path: from, Rule: "cannot be read", Err: fsx.Cause(err)}
	}
	if len(text) > maxScript {
		return "", &PathError{Field: "script", Path: from, Rule: fmt.Sprintf("has more than %d bytes", maxScript)}
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return "", &PathError{Field: "script", Path: from, Rule: "is empty"}
	}
	if err := mkdirReadable(toDir); err != nil {
		return "", record.StateError(toDir, "cannot be made", err)
	}
	to := filepath.Join(toDir, filepath.Base(from))
	// Readable for whatever user the program runs as, whatever our umask is.
	if err := errors.Join(os.WriteFile(to, text, 0o444), os.Chmod(to, 0o444)); err != nil {
		return "", record.StateError(to, "cannot be written", err)
	}
	return to, nil
}

// release frees the lock and descriptors; the record stays.
func (w *workspace) release() error {
	var errs []error
	if w.reserve != "" {
		if err := os.Remove(w.reserve); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if w.final != nil {
		errs = append(errs, w.final.Close())
	}
	errs = append(errs, w.closeTrees())
	if w.lock != nil {
		errs = append(errs, w.lock.release())
	}
	if w.folder != nil {
		errs = append(errs, w.folder.Close())
	}
	return errors.Join(errs...)
}

// discard takes back all that openWorkspace made.
func (w *workspace) discard() error {
	errs := []error{w.handBack(), w.putBack()}
	if w.made {
		// Only if it is empty, which it is unless somebody else was there.
		errs = append(errs, os.Remove(w.paths[RoleFinal]))
	}
	errs = append(errs, w.release(), fsx.Remove(w.record))
	return errors.Join(errs...)
}
