package fsx

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// ErrLocked means that another process holds the lock of a directory.
var ErrLocked = errors.New("is locked by another process")

// Lock takes the lock of a directory and holds it until it is closed, or the process ends.
// It does not wait: a lock that is taken is [ErrLocked]. A file system without locks
// locks nothing, without an error.
func Lock(root *os.Root) (io.Closer, error) { return lock(root.Open(".")) }

// LockPath is [Lock] for a path.
func LockPath(dir string) (io.Closer, error) { return lock(os.Open(dir)) }

func lock(dir *os.File, err error) (io.Closer, error) {
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(ErrLocked, dir.Close())
	}
	return dir, nil
}
