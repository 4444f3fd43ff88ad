//go:build unix

package fsx

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// Lock takes the lock of a folder and holds it until it is closed, or the process ends.
// It does not wait: a lock that is taken is [ErrLocked]. A file system without locks
// gives none.
func Lock(root *os.Root) (io.Closer, error) {
	dir, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(ErrLocked, dir.Close())
	}
	return dir, nil
}
