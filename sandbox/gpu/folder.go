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
)

// folder is where leases are kept:
//
//	folder.lock            held for milliseconds by whoever looks or changes
//	counter                the number of the last arrival
//	gpu-POOL-INDEX.lock    locked, shared or alone, by the holders of a GPU
//	gpu-UUID.lock          the same, where its lasting name is known
//	gpu-POOL-all.lock      locked alone by a holder of all of an unknown number
//	queue/NUMBER.lock      locked as long as the process of a ticket lives
//	queue/NUMBER.json      the ticket
//
// The kernel takes locks from a process that dies. The lock files of the folder
// and of GPUs are never removed: removing one would let two processes lock two
// files of one name. Those of tickets are, since every look at one happens with
// the folder locked.
type leaseDir struct {
	dir string
	// mode is for files; it follows the folder's, so that the users who may
	// write to a common folder can lock each other's files.
	mode fs.FileMode
	lock *flock.Flock
}

// ErrStuck means that a process has kept the lease folder locked, which takes
// others milliseconds.
var errStuck = errors.New("the lease folder is kept locked by another process")

const (
	// lockPatience is how long the lock of the folder is waited for, and
	// lockPoll how often it is tried.
	lockPatience = 30 * time.Second
	lockPoll     = 15 * time.Millisecond
)

// openFolder makes the folder if need be and locks it.
func openLeaseDir(ctx context.Context, dir string) (*leaseDir, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	// What the group and others may do with the folder, they may do with its
	// files.
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
	if _, err := f.lock.TryLockContext(ctx, lockPoll); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, errors.Join(err, f.lock.Close())
	}
	return f, nil
}

// makeQueue makes the folder of tickets with the mode of the folder itself.
func (f *leaseDir) makeQueue(mode fs.FileMode) error {
	// What belongs to the folder's group goes on to do so.
	mode &= fs.ModePerm | fs.ModeSetgid
	err := os.Mkdir(f.queueDir(), mode.Perm())
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	// The process's mask may have taken rights that others need.
	return os.Chmod(f.queueDir(), mode)
}

// close unlocks the folder.
func (f *leaseDir) close() error { return f.lock.Close() }

// touch makes an empty file for locks, with the mode of the folder's files. A
// system that protects shared folders refuses to "create" another user's file,
// so one that is there is only opened.
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

// errLocked means that somebody else has the lock.
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

// A lockedError is a GPU that a process without a ticket has locked, such as
// flock(1) of somebody who wants it for himself.
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

// writeFile makes a file hold exactly this, or what it held before. The folder is
// locked, so that the name of the temporary file is free.
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
