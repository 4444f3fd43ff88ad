package fsx

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// A NotRegularError is a name of something that is no regular file.
type NotRegularError struct {
	// Mode is the type of what is there.
	Mode fs.FileMode
}

func (e *NotRegularError) Error() string { return "is not a regular file (" + Kind(e.Mode) + ")" }

// Kind is the type of a file in words.
func Kind(mode fs.FileMode) string {
	switch {
	case mode.IsRegular():
		return "a file"
	case mode.IsDir():
		return "a folder"
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

// Open opens a regular file for reading, links followed. It never waits: anything else,
// such as a named pipe whose other end nobody has open, is a [*NotRegularError] in an
// [*fs.PathError].
func Open(path string) (*os.File, error) {
	// Not even opened: that has effects on some devices.
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, notRegular(path, info)
	}
	file, err := os.OpenFile(path, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, err
	}
	if err := check(file, path); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// OpenIn opens a regular file below root for reading, and never waits. A link is
// refused, and no link leads out of root.
func OpenIn(root *os.Root, name string) (*os.File, fs.FileInfo, error) {
	named, err := root.Lstat(name)
	if err != nil {
		return nil, nil, err
	}
	if !named.Mode().IsRegular() {
		return nil, nil, notRegular(name, named)
	}
	file, err := root.OpenFile(name, os.O_RDONLY|nonBlocking, 0)
	if err != nil {
		return nil, nil, err
	}
	stat, err := file.Stat()
	if err == nil && !os.SameFile(named, stat) {
		err = &fs.PathError{Op: "open", Path: name, Err: errors.New("was replaced meanwhile")}
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return file, stat, nil
}

// Read reads a regular file of at most limit bytes; a longer one is an error.
func Read(path string, limit int64) ([]byte, error) {
	file, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = &fs.PathError{Op: "read", Path: path, Err: fmt.Errorf("has more than %d bytes", limit)}
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}

func check(file *os.File, path string) error {
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(path, info)
	}
	return err
}

func notRegular(path string, info fs.FileInfo) error {
	return &fs.PathError{Op: "open", Path: path, Err: &NotRegularError{Mode: info.Mode().Type()}}
}
