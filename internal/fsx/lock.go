package fsx

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ByteLocks is one file with many locks: each byte of it is one, also beyond its end. It takes
// the place of a file for each lock, which could never be deleted: somebody may be about to
// lock it, and two processes would then lock two files of one name.
//
// The locks belong to this opening of the file. So two openings exclude each other within one
// process, too, and the kernel frees all locks when they are closed, or the process dies.
// Methods may be called concurrently.
type ByteLocks struct{ file *os.File }

// OpenByteLocks opens a file of locks. It is created, for its owner alone, if it is missing. A
// link is refused.
func OpenByteLocks(path string) (*ByteLocks, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|OpenFlags, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = openError(path, &NotRegularError{info.Mode().Type()})
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &ByteLocks{file}, nil
}

// Lock takes the lock of a byte, which must not be negative, for this opening alone. It does not
// wait: a lock that is taken is [ErrLocked]. A file system without locks is an error.
func (l *ByteLocks) Lock(at int64) error { return l.set(at, unix.F_WRLCK) }

// RLock takes the lock of a byte together with others that take it so.
func (l *ByteLocks) RLock(at int64) error { return l.set(at, unix.F_RDLCK) }

// Unlock frees one lock.
func (l *ByteLocks) Unlock(at int64) error { return l.set(at, unix.F_UNLCK) }

// Close frees all locks, also while this process is starting another one, which shares its open
// files until it executes its program.
func (l *ByteLocks) Close() error {
	return errors.Join(l.setRange(0, 0, unix.F_UNLCK), l.file.Close())
}

func (l *ByteLocks) set(at int64, kind int16) error { return l.setRange(at, 1, kind) }

// setRange changes count locks; 0 means all from the first one on.
func (l *ByteLocks) setRange(first, count int64, kind int16) error {
	raw, err := l.file.SyscallConn()
	if err != nil {
		return err
	}
	lock := unix.Flock_t{Type: kind, Start: first, Len: count}
	var lockErr error
	err = raw.Control(func(fd uintptr) { lockErr = unix.FcntlFlock(fd, setByteLock, &lock) })
	switch {
	case err != nil:
		return err
	case errors.Is(lockErr, syscall.EAGAIN), errors.Is(lockErr, syscall.EACCES):
		return fmt.Errorf("lock %d of %q %w", first, l.file.Name(), ErrLocked)
	case lockErr != nil:
		return &fs.PathError{Op: "lock", Path: l.file.Name(), Err: lockErr}
	}
	return nil
}
