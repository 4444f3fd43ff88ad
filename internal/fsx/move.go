package fsx

import (
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Move moves an entry from one open directory to another one of the same mount, where it keeps its
// name. It replaces nothing: an entry of that name there is an [fs.ErrExist].
func Move(from, to *os.File, name string) error {
	err := renameExclusive(int(from.Fd()), int(to.Fd()), name)
	if err != nil {
		return &os.LinkError{Op: "move", Old: from.Name() + "/" + name, New: to.Name() + "/" + name, Err: err}
	}
	return nil
}

// renameChecked is for a system or a file system whose rename always replaces.
func renameChecked(from, to int, name string) error {
	var stat unix.Stat_t
	switch err := unix.Fstatat(to, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err {
	case nil:
		return fs.ErrExist
	case unix.ENOENT:
		return unix.Renameat(from, name, to, name)
	default:
		return err
	}
}
