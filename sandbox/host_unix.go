//go:build unix

package sandbox

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// lockFolder takes the lock of a folder itself, which runs of all state folders
// share. The lock ends with the file. A file system without locks gives none.
func lockFolder(dir string) (*os.File, error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(ErrBusy, folder.Close())
	}
	return folder, nil
}

// mayWriteIn reports whether this process may make files in a folder.
func mayWriteIn(dir string) error {
	return unix.Access(dir, unix.W_OK|unix.X_OK)
}
