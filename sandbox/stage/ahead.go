package stage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/archive"
	"github.com/evalbox/evalbox/sandbox/engine"
	"github.com/evalbox/evalbox/sandbox/record"
	"github.com/evalbox/evalbox/sandbox/spec"
)

// OpenAhead makes the files of a container that is prepared before its run exists, with the ID that
// the run gets: an empty program, an empty ./final, and what is mounted beside them. [Open] takes
// them over. Files that are copied come with the run. The stage that it returns is only good for
// [Stage.SendAhead] and [Stage.CheckMounted]. After an error nothing is left behind.
func OpenAhead(o Options) (*Stage, error) {
	id := o.Plan.Job.RunID
	dir, err := o.Store.Reserve(id)
	if err != nil {
		return nil, err
	}
	s := newStage(o, dir)
	if err := s.fillAhead(); err != nil {
		return nil, errors.Join(err, o.Store.Unreserve(id))
	}
	return s, nil
}

// SendAhead makes everything that the container mounts available to the engine, empty, and returns its
// paths on the engine's machine. After an error the volume of the run may be there, unless its name
// is taken: [engine.ErrNameTaken].
func (s *Stage) SendAhead(ctx context.Context, labels map[string]string) (engine.Sources, error) {
	if !s.Copied() {
		return s.Sources, nil
	}
	to, err := copier(s.Engine)
	if err != nil {
		return nil, err
	}
	root, err := to.CreateVolume(context.WithoutCancel(ctx), s.Plan, labels)
	if err != nil {
		return nil, err
	}
	points, err := packAhead(s)
	if err == nil {
		err = to.FillVolume(ctx, s.Plan.Job.RunID, points)
	}
	return archive.Sources(root, s.Plan), err
}

func (s *Stage) fillAhead() (err error) {
	if s.Copied() {
		return nil
	}
	if s.Plan.Job.Script != "" {
		if s.Sources[spec.RoleProgram], err = s.writeProgram(nil); err != nil {
			return err
		}
	}
	if err := s.checkSources(); err != nil {
		return err
	}
	if err := s.openSources(); err != nil {
		return err
	}
	final := filepath.Join(s.Dir, record.OwnFinal)
	if err := fsx.MkdirReadable(final); err != nil {
		return record.StateError(final, "cannot be made", err)
	}
	s.Sources[spec.RoleFinal] = final
	return nil
}

// CanReplace says why the directory of a waiting container cannot become a ./final by rename; it is
// empty if it can.
func CanReplace(store *record.Store, final string) (reason string) {
	if final == "" {
		return ""
	}
	if err := os.MkdirAll(store.PoolDir(), 0o700); err != nil {
		return "the state directory is not writable"
	}
	parent := filepath.Dir(final)
	var at, above, pool unix.Stat_t
	if unix.Stat(parent, &above) != nil || unix.Stat(store.PoolDir(), &pool) != nil || above.Dev != pool.Dev {
		return "its ./final is on another file system than the state directory"
	}
	if unix.Access(parent, unix.R_OK|unix.W_OK|unix.X_OK) != nil {
		return "the directory of its ./final is not readable and writable"
	}
	err := unix.Lstat(final, &at)
	switch {
	case errors.Is(err, unix.ENOENT):
		return probeReplace(store, parent)
	case err != nil:
		return "its ./final cannot be read"
	case at.Dev != above.Dev:
		return "its ./final is on another file system than the state directory"
	case os.Geteuid() != 0 && (int(at.Uid) != os.Geteuid() || !isMember(int(at.Gid))):
		return "its ./final belongs to another user or group"
	}
	if mounted, err := fsx.IsMountPoint(final); err != nil || mounted {
		return "its ./final is a mount point"
	}
	if fsx.InRoot(final, func(root *os.Root) error {
		now, err := fsx.StateOf(root)
		flags, flagsErr := fsx.DirFlags(root)
		if err != nil || flagsErr != nil || len(now.Attributes) > 0 || flags != 0 {
			return errors.New("not a plain directory")
		}
		return nil
	}) != nil {
		return "its ./final cannot be read, or has an ACL or attributes"
	}
	return probeReplace(store, parent)
}

// isMember reports whether this process may give files to a group.
func isMember(group int) bool {
	groups, err := os.Getgroups()
	return group == os.Getegid() || err == nil && slices.Contains(groups, group)
}

// probeReplace tries to move a directory beside ./final: a mount may have the same device and refuse
// it nevertheless.
func probeReplace(store *record.Store, parent string) (reason string) {
	probe, err := os.MkdirTemp(store.PoolDir(), ".evalbox-probe-*")
	if err != nil {
		return "the state directory is not writable"
	}
	beside := filepath.Join(parent, filepath.Base(probe))
	moved := os.Rename(probe, beside)
	if moved == nil {
		probe = beside
	}
	if err := os.Remove(probe); err != nil || moved != nil {
		return "no directory can be moved from the state directory to its ./final"
	}
	return ""
}

// replace makes the directory that the container has mounted ./final, which is empty, with the owner
// and permissions of the old one. The new one is locked before anybody can find it.
func (f *final) replace() error {
	if f.waiting == "" {
		return nil
	}
	rule := "cannot be replaced by the directory of the container that waited"
	opened, err := f.root.Stat(".")
	if err != nil {
		return f.pathError(rule, err)
	}
	// Who owns a directory above may replace it by a link, also between the next two steps.
	parent, err := os.Open(filepath.Dir(f.path))
	if err != nil {
		return f.pathError(rule, err)
	}
	defer parent.Close()
	above, name := int(parent.Fd()), filepath.Base(f.path)
	var named unix.Stat_t
	err = unix.Fstatat(above, name, &named, unix.AT_SYMLINK_NOFOLLOW)
	if now, ok := opened.Sys().(*syscall.Stat_t); err != nil || !ok || now.Dev != named.Dev || now.Ino != named.Ino {
		return f.pathError(rule, errors.New("it was replaced by something else"))
	}
	root, err := os.OpenRoot(f.waiting)
	if err != nil {
		return f.pathError(rule, err)
	}
	lock, err := lockDir(f.waiting)
	if err == nil {
		err = f.adjust(root, opened)
	}
	if err == nil {
		err = unix.Renameat(unix.AT_FDCWD, f.waiting, above, name) // os.Rename refuses a directory that exists
	}
	if err != nil {
		err = f.pathError(rule, err)
		if lock != nil {
			err = errors.Join(err, lock.Close())
		}
		return errors.Join(err, root.Close())
	}
	err = errors.Join(f.root.Close(), f.dir.Close())
	f.root, f.dir, f.waiting = root, lock, ""
	return err
}

// adjust gives a new ./final the owner and permissions of the old one, and notes that it is the one
// that is handed back.
func (f *final) adjust(root *os.Root, old os.FileInfo) error {
	if uid, gid, ok := fsx.OwnerOf(old); ok {
		if err := root.Lchown(".", uid, gid); err != nil {
			return err
		}
	}
	if err := root.Chmod(".", old.Mode()); err != nil {
		return err
	}
	now, err := fsx.StateOf(root)
	f.owner.Dir.Device, f.owner.Dir.Inode = now.Device, now.Inode
	return err
}
