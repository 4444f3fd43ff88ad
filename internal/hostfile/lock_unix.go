//go:build unix

package hostfile

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// LockFolder takes the lock of a folder, for as long as the answer is open. It does not
// wait: if somebody else has it, also in this process, the error is [ErrLocked]. A file
// system without locks gives none.
func LockFolder(folder *os.Root) (io.Closer, error) {
	dir, err := folder.Open(".")
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(ErrLocked, dir.Close())
	}
	return dir, nil
}
