package fsx

import (
	"os"

	"golang.org/x/sys/unix"
)

// Reserve allocates disk space for a file without writing it. A file system that cannot do
// that is not an error.
func Reserve(file *os.File, bytes int64) error {
	err := unix.Fallocate(int(file.Fd()), 0, 0, bytes)
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return nil
	}
	return err
}
