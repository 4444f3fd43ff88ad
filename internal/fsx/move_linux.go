package fsx

import "golang.org/x/sys/unix"

func renameExclusive(from, to int, name string) error {
	switch err := unix.Renameat2(from, name, to, name, unix.RENAME_NOREPLACE); err { //nolint:errorlint // it is not wrapped
	case unix.EINVAL, unix.ENOSYS: // the file system cannot
		return renameChecked(from, to, name)
	default:
		return err
	}
}
