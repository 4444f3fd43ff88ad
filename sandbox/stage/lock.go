package stage

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"

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
// Each path has its byte in one file. The kernel frees the locks when the process dies.
type finalLock struct{ held *fsx.ByteLocks }

// lockFinal locks a cleaned, absolute path with links resolved.
func lockFinal(store *record.Store, final string) (*finalLock, error) {
	file := filepath.Join(store.LocksDir(), "finals")
	held, err := fsx.OpenByteLocks(file)
	if err != nil {
		return nil, record.StateError(file, "cannot be locked", err)
	}
	dir := final
	err = held.Lock(lockOf(final))
	for err == nil && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		err = held.RLock(lockOf(dir))
	}
	if err == nil {
		return &finalLock{held}, nil
	}
	err = errors.Join(lockError(file, err), held.Close())
	if dir == final {
		return nil, fmt.Errorf("final %q: %w", final, err)
	}
	return nil, fmt.Errorf("final %q lies in %q: %w", final, dir, err)
}

func lockError(file string, err error) error {
	if errors.Is(err, fsx.ErrLocked) {
		return ErrBusy
	}
	return record.StateError(file, "cannot be locked", err)
}

// Close frees the lock.
func (l *finalLock) Close() error { return l.held.Close() }

// lockOf is the number of a path's lock. Two paths of one number could only be locked one
// after the other; there are 2^63 numbers.
func lockOf(path string) int64 {
	sum := sha256.Sum256([]byte(path))
	return int64(binary.BigEndian.Uint64(sum[:8]) >> 1) // the top bit is gone
}

// finalFile is the note of the state directory about one ./final.
func finalFile(store *record.Store, final string) string {
	sum := sha256.Sum256([]byte(final))
	return filepath.Join(store.LocksDir(), notePrefix+hex.EncodeToString(sum[:8])+noteSuffix)
}

const (
	notePrefix = "final-"
	noteSuffix = ".json"
)

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
