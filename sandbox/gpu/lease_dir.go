package gpu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/evalbox/evalbox/internal/fsx"
)

// leaseDir is the locked directory of leases:
//
//	folder.lock            held for milliseconds by a process that reads or changes
//	counter                the number of the last arrival
//	gpu-POOL-INDEX.lock    locked, shared or alone, by the holders of a GPU
//	gpu-UUID.lock          the same, if its UUID is known
//	gpu-POOL-all.lock      locked alone by a holder of all of an unknown number
//	queue/NUMBER.lock      locked as long as the process of a ticket lives
//	queue/NUMBER.json      the ticket
//
// The kernel releases the locks of a process that dies. The lock files of the directory and
// of GPUs are never removed: after that, two processes could lock two files of one name.
// Those of tickets can be removed, because every access to one happens with the directory
// locked.
type leaseDir struct {
	dir string
	// mode is that of files. It follows the directory's, so that users who may write to
	// a common directory can lock each other's files.
	mode fs.FileMode
	lock *flock.Flock
}

// errStuck means that a process has kept the lease directory locked, which other processes
// do for milliseconds.
var errStuck = errors.New("the lease directory is kept locked by another process")

// lockPatience is how long to wait for the lock of the directory.
const lockPatience = 30 * time.Second

// openLeaseDir makes the directory if it is missing, and locks it.
func openLeaseDir(ctx context.Context, dir string) (*leaseDir, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	// The group and others have the same rights for the files as for the directory.
	f := &leaseDir{dir: dir, mode: 0o600 | info.Mode().Perm()&0o066}
	if err := f.makeQueue(info.Mode()); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "folder.lock")
	if err := f.touch(path); err != nil {
		return nil, err
	}
	f.lock = flock.New(path, flock.SetFlag(os.O_RDWR))
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience, errStuck)
	defer cancel()
	if err := fsx.Await(ctx, f.lock.Lock, f.lock); err != nil {
		return nil, err
	}
	return f, nil
}

// makeQueue makes the directory of tickets, with the mode of the lease directory.
func (f *leaseDir) makeQueue(mode fs.FileMode) error {
	// The set-group-ID bit gives new files the group of the directory.
	mode &= fs.ModePerm | fs.ModeSetgid
	err := os.Mkdir(f.queueDir(), mode.Perm())
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// The umask may have removed rights that others need.
	return os.Chmod(f.queueDir(), mode)
}

// close unlocks the directory.
func (f *leaseDir) close() error { return f.lock.Close() }

// touch makes an empty lock file if it is missing. It does not open an existing one with
// O_CREATE: a system that protects shared directories refuses that for another user's file.
func (f *leaseDir) touch(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, f.mode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(file.Chmod(f.mode), file.Close())
}

// errLocked means that another process has the lock.
var errLocked = errors.New("is locked")

// lockFile locks a file at once, or fails.
func (f *leaseDir) lockFile(path string, shared bool) (*flock.Flock, error) {
	if err := f.touch(path); err != nil {
		return nil, err
	}
	lock := flock.New(path, flock.SetFlag(os.O_RDWR))
	try := lock.TryLock
	if shared {
		try = lock.TryRLock
	}
	got, err := try()
	if err == nil && !got {
		err = errLocked
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), lock.Close())
	}
	return lock, nil
}

// isLocked reports whether a process has a file locked.
func (f *leaseDir) isLocked(path string) (bool, error) {
	lock, err := f.lockFile(path, false)
	if errors.Is(err, errLocked) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, lock.Close()
}

// A lockedError means that a process without a ticket, such as flock(1), has locked a GPU.
type lockedError struct{ id string }

func (e *lockedError) Error() string {
	return "GPU " + e.id + " is locked by a process without a ticket"
}

// gpuLock is one of the locks of a GPU.
type gpuLock struct {
	id, name string
	shared   bool
}

// lockGPU takes a lock of a GPU for a lease.
func (f *leaseDir) lockGPU(l gpuLock) (*flock.Flock, error) {
	lock, err := f.lockFile(filepath.Join(f.dir, "gpu-"+l.name+".lock"), l.shared)
	if errors.Is(err, errLocked) {
		err = &lockedError{l.id}
	}
	return lock, err
}

// writeFile replaces the content of a file in one step. The directory is locked, so the
// name of the temporary file is free.
func (f *leaseDir) writeFile(path string, text []byte) error {
	next := path + ".new"
	if err := removeFile(next); err != nil {
		return err
	}
	file, err := os.OpenFile(next, os.O_CREATE|os.O_EXCL|os.O_WRONLY, f.mode)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Chmod(f.mode), file.Close()); err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return errors.Join(err, removeFile(next))
	}
	return nil
}
