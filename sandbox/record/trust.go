package record

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/evalbox/evalbox/internal/fsx"
)

// Trusted refuses a state directory that another user owns or may change, or whose name another
// user may give to a directory of his own. Journals and locks decide what is removed and
// whom files are given to, so nobody else may write them. A directory that does not exist yet
// is judged by those above it.
func (s *Store) Trusted() error {
	real := fsx.RealPath(s.dir)
	for dir := real; ; dir = filepath.Dir(dir) {
		info, err := os.Lstat(dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return StateError(s.dir, "cannot be used", err)
		default:
			uid, gid, known := fsx.OwnerOf(info)
			if !known {
				return nil
			}
			if rule := distrust(info.Mode(), uid, gid, os.Geteuid(), dir == real); rule != "" {
				if dir != real {
					rule = fmt.Sprintf("lies in %q, which %s", dir, rule)
				}
				return StateError(s.dir, rule, nil)
			}
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}

// unmapped is the owner that Linux shows for files of a user that a user namespace does not have.
const unmapped = 65534

// distrust says why a directory is not safe from other users than me; empty if it is. itself
// means the state directory, in contrast to those above it.
func distrust(mode fs.FileMode, uid, gid, me int, itself bool) string {
	switch {
	case !mode.IsDir():
		return "is not a directory"
	case uid != me && itself, uid != me && uid != 0 && uid != unmapped:
		return fmt.Sprintf("belongs to the user with the ID %d; name one of your own with --state-dir", uid)
	case mode&fs.ModeSticky != 0 && !itself:
		return "" // only the owner of an entry may rename or remove it
	case mode.Perm()&0o002 != 0, mode.Perm()&0o020 != 0 && gid != uid:
		// A group with the number of its user is the user's own.
		return fmt.Sprintf("other users may change (mode %04o); take the permission away with chmod go-w", mode.Perm())
	}
	return ""
}

// checkLocks refuses a state directory on a file system without locks: two runs could use one
// ./final, and a live controller would count as dead.
func (s *Store) checkLocks() error {
	dir, err := os.Open(s.LocksDir())
	if err == nil {
		err = syscall.Flock(int(dir.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
			err = nil
		}
		err = errors.Join(err, dir.Close())
	}
	if err != nil {
		return StateError(s.dir, "is on a file system that cannot lock files; name a directory on another one with --state-dir", err)
	}
	return nil
}
