package stage

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/record"
)

// ErrBusy means that another run uses the same ./final.
var ErrBusy = errors.New("in use by another run")

// finalLock keeps two runs from writing one ./final, or one inside the other's: the
// directory itself is locked for this run alone. Every directory above it is shared with
// other runs below, so that none of those can become a ./final.
//
// The lock files are named after the paths and never deleted: deleting one would let two
// runs lock two files of one name. The kernel releases them when the process dies.
type finalLock struct{ held []*flock.Flock }

// lockFinal locks a cleaned, absolute path with links resolved.
func lockFinal(store *record.Store, final string) (*finalLock, error) {
	l := &finalLock{}
	for dir := filepath.Dir(final); dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if err := l.take(finalFile(store, dir, "lock"), (*flock.Flock).TryRLock); err != nil {
			return nil, errors.Join(fmt.Errorf("final %q lies in %q: %w", final, dir, err), l.release())
		}
	}
	if err := l.take(finalFile(store, final, "lock"), (*flock.Flock).TryLock); err != nil {
		return nil, errors.Join(fmt.Errorf("final %q: %w", final, err), l.release())
	}
	return l, nil
}

func (l *finalLock) take(path string, try func(*flock.Flock) (bool, error)) error {
	file := flock.New(path, flock.SetPermissions(0o600))
	switch got, err := try(file); {
	case err != nil:
		return record.StateError(path, "cannot be locked", err)
	case !got:
		return ErrBusy
	}
	l.held = append(l.held, file)
	return nil
}

func (l *finalLock) release() error {
	var errs []error
	for _, file := range l.held {
		errs = append(errs, file.Close())
	}
	l.held = nil
	return errors.Join(errs...)
}

// finalFile is a file of the state directory about one ./final.
func finalFile(store *record.Store, final, kind string) string {
	sum := sha256.Sum256([]byte(final))
	return filepath.Join(store.LocksDir(), "final-"+hex.EncodeToString(sum[:8])+"."+kind)
}

// lockDir takes the lock of a directory itself, which runs of all state directories share.
func lockDir(path string) (io.Closer, error) {
	lock, err := fsx.LockPath(path)
	if errors.Is(err, fsx.ErrLocked) {
		err = ErrBusy
	}
	return lock, err
}

// mayWriteIn reports whether this process may make files in a directory.
func mayWriteIn(dir string) error { return unix.Access(dir, unix.W_OK|unix.X_OK) }
