// Package fsx handles files that an untrusted program, or another user of the machine, may
// have made or may be changing: it opens, walks, copies, writes, deletes and locks them.
// Nothing here follows a link on the way, waits for another process (only LockWait does),
// or recurses deeper than a bounded number of descriptors.
package fsx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// OpenFlags keep an open from following a last link, waiting for the other end of a named
// pipe, or taking a terminal. An [os.Root] still follows links that stay below it, so
// compare the open file with the listed one, as [OpenListed] does.
const OpenFlags = syscall.O_NOFOLLOW | syscall.O_NONBLOCK | syscall.O_NOCTTY

// ErrReplaced means that something else took the place of a directory.
var ErrReplaced = errors.New("was replaced meanwhile")

// A NotRegularError is a name of something that is not a regular file.
type NotRegularError struct {
	// Mode is its type.
	Mode fs.FileMode
}

func (e *NotRegularError) Error() string { return "is not a regular file (" + Kind(e.Mode) + ")" }

// A NotDirectoryError is a name of something that is not a directory.
type NotDirectoryError struct {
	// Mode is its type.
	Mode fs.FileMode
}

func (e *NotDirectoryError) Error() string { return "is not a directory (" + Kind(e.Mode) + ")" }

// Kind is the type of a file in words.
func Kind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "a file"
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeSymlink != 0:
		return "a symbolic link"
	case mode&fs.ModeNamedPipe != 0:
		return "a named pipe"
	case mode&fs.ModeSocket != 0:
		return "a socket"
	case mode&fs.ModeDevice != 0:
		return "a device"
	}
	return "a special file"
}

// Cause is the reason of a file error without its path, for messages that already name the
// path.
func Cause(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// Open opens a regular file for reading, links followed. It never waits: anything else,
// such as a named pipe without a writer, is a [*NotRegularError] in an
// [*fs.PathError].
func Open(path string) (*os.File, error) {
	// Not even opened: that has effects on some devices.
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		return nil, openError(path, &NotRegularError{info.Mode().Type()})
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err = file.Stat(); err == nil && !info.Mode().IsRegular() {
		err = openError(path, &NotRegularError{info.Mode().Type()})
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// OpenIn opens a regular file below root for reading, and never waits. A link at the end
// of name is refused, and no link leads out of root.
func OpenIn(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	listed, err := root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !listed.Mode().IsRegular() {
		return nil, nil, openError(name, &NotRegularError{listed.Mode().Type()})
	}
	return OpenListed(root, name, listed)
}

// OpenListed is [OpenIn] for a file that Lstat found already; another file in its place is
// [ErrChanged].
func OpenListed(root *os.Root, name string, listed fs.FileInfo) (*os.File, fs.FileInfo, error) {
	file, err := root.OpenFile(name, os.O_RDONLY|OpenFlags, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || !os.SameFile(info, listed)) {
		err = &fs.PathError{Op: "read", Path: name, Err: ErrChanged}
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, info, nil
}

// OpenBelow is [OpenIn] that does not follow a link on the way to the file either: a link
// among its directories is a [*NotDirectoryError].
func OpenBelow(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	dir, last, closeDir, err := OpenParent(root, name)
	if err != nil {
		return nil, nil, err
	}
	defer closeDir()
	return OpenIn(dir, last)
}

// LstatBelow is Lstat that follows links no more than [OpenBelow] does.
func LstatBelow(root *os.Root, name string) (fs.FileInfo, error) {
	dir, last, closeDir, err := OpenParent(root, name)
	if err != nil {
		return nil, err
	}
	defer closeDir()
	return dir.Lstat(last)
}

// OpenParent opens the directory that holds a name, and follows no link on the way. last
// is the last part of the name. closeDir must be called in the end. Errors name the
// path below root of the directory that cannot be opened.
func OpenParent(root *os.Root, name string) (dir *os.Root, last string, closeDir func(), err error) {
	parts := strings.Split(filepath.Clean(name), string(filepath.Separator))
	dir, closeDir = root, func() {}
	for i, part := range parts[:len(parts)-1] {
		below, err := openDir(dir, part)
		closeDir()
		if err != nil {
			return nil, "", nil, openError(filepath.Join(parts[:i+1]...), Cause(err))
		}
		dir, closeDir = below, func() { _ = below.Close() } // was only read
	}
	return dir, parts[len(parts)-1], closeDir, nil
}

// openDir opens a directory of another one. Anything else, such as a link, is a
// [*NotDirectoryError]; a directory that is replaced while it is opened is [ErrReplaced].
func openDir(dir *os.Root, name string) (*os.Root, error) {
	return openListed(name, dir.Lstat, dir.OpenRoot)
}

// OpenRealDir opens a directory, and nothing that a link in its place leads to. Links on the way are
// followed. Anything else is a [*NotDirectoryError]; a directory that is replaced while it is opened is
// [ErrReplaced].
func OpenRealDir(path string) (*os.Root, error) { return openListed(path, os.Lstat, os.OpenRoot) }

func openListed(name string, list func(string) (fs.FileInfo, error), open func(string) (*os.Root, error)) (*os.Root, error) {
	listed, err := list(name)
	if err != nil {
		return nil, err
	}
	if !listed.IsDir() {
		return nil, openError(name, &NotDirectoryError{listed.Mode().Type()})
	}
	opened, err := open(name)
	if err != nil {
		return nil, err
	}
	info, err := opened.Stat(".")
	if err == nil && !os.SameFile(listed, info) {
		err = openError(name, ErrReplaced)
	}
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return opened, nil
}

// OpenRoot opens a directory, links to it followed. It never waits: anything else, such as
// a named pipe, is not opened, and is a [*NotDirectoryError] in an [*fs.PathError].
func OpenRoot(dir string) (*os.Root, error) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = &NotDirectoryError{info.Mode().Type()}
	}
	if err != nil {
		return nil, openError(dir, Cause(err))
	}
	// A file that takes the place of the directory meanwhile has no name of this form, so
	// it is not opened.
	root, err := os.OpenRoot(dir + string(filepath.Separator) + ".")
	if err != nil {
		return nil, openError(dir, Cause(err))
	}
	return root, nil
}

// InRoot opens a directory for do.
func InRoot(dir string, do func(*os.Root) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(do(root), root.Close())
}

// Read reads a regular file of at most limit bytes; a longer one is an error.
func Read(path string, limit int64) ([]byte, error) {
	file, err := Open(path)
	if err != nil {
		return nil, err
	}
	return read(file, path, limit)
}

// ReadIn is [Read] for a file that [OpenIn] opens.
func ReadIn(root *os.Root, name string, limit int64) ([]byte, error) {
	file, _, err := OpenIn(root, name)
	if err != nil {
		return nil, err
	}
	return read(file, name, limit)
}

// read reads a file and closes it.
func read(file *os.File, name string, limit int64) ([]byte, error) {
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = &fs.PathError{Op: "read", Path: name, Err: fmt.Errorf("has more than %d bytes", limit)}
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}

func openError(path string, err error) error { return &fs.PathError{Op: "open", Path: path, Err: err} }

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
	if err := flock(dir, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return lockedDir{dir}, nil
}

// LockWait takes the lock of a directory, as [LockPath] does, but waits while another holder has it,
// at most until ctx ends. It is for locks that are held for a few writes only.
func LockWait(ctx context.Context, dir string) (io.Closer, error) {
	opened, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = flock(opened, syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, ErrLocked) {
		if err := Await(ctx, func() error { return flock(opened, syscall.LOCK_EX) }, lockedDir{opened}); err != nil {
			return nil, &fs.PathError{Op: "lock", Path: dir, Err: Cause(err)}
		}
		return lockedDir{opened}, nil
	}
	if err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return lockedDir{opened}, nil
}

// Await takes a lock with a call that waits in the kernel, which gives a lock to waiting processes in turn.
// If ctx ends first, the error is its cause. The kernel cannot abandon the wait: the lock is closed when it
// is taken. After an error of the call it is closed too.
func Await(ctx context.Context, take func() error, lock io.Closer) error {
	taken := make(chan error, 1)
	go func() {
		err := take()
		for errors.Is(err, syscall.EINTR) {
			err = take()
		}
		taken <- err
	}()
	select {
	case err := <-taken:
		if err != nil {
			return errors.Join(err, lock.Close())
		}
		return nil
	case <-ctx.Done():
		go func() {
			<-taken
			_ = lock.Close() // nobody has it
		}()
		return context.Cause(ctx)
	}
}

// flock takes the lock of an open directory. If the lock is taken, the error is [ErrLocked]. A file
// system without locks locks nothing, without an error.
func flock(dir *os.File, how int) error {
	for {
		switch err := syscall.Flock(int(dir.Fd()), how); {
		case err == nil, errors.Is(err, syscall.ENOLCK), errors.Is(err, syscall.ENOSYS), errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.EOPNOTSUPP):
			return nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrLocked
		case !errors.Is(err, syscall.EINTR):
			return &fs.PathError{Op: "lock", Path: dir.Name(), Err: err}
		}
	}
}

// lockedDir frees the lock before it closes the directory. Closing alone does not free it at
// once if this process is starting another one, which shares its open files until it executes
// its program.
type lockedDir struct{ *os.File }

func (d lockedDir) Close() error {
	_ = syscall.Flock(int(d.Fd()), syscall.LOCK_UN) // nothing was locked on a file system without locks
	return d.File.Close()
}
