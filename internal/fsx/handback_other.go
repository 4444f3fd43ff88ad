//go:build !linux

package fsx

import "golang.org/x/sys/unix"

// No program writes to this machine's files here: containers run in a virtual machine or
// elsewhere, and files are copied. So there are no attributes of a program's either.

func letIn(string) error { return nil }

type entryFile struct{ of Visited }

func openEntry(v Visited) (entryFile, unix.Stat_t, error) {
	var stat unix.Stat_t
	err := unix.Fstatat(v.Dir, v.Name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	return entryFile{v}, stat, err
}

func (entryFile) close() {}

func (e entryFile) handBack(stat *unix.Stat_t, uid, gid int) error {
	dir, name := e.of.Dir, e.of.Name
	if mode := safeMode(uint32(stat.Mode)); stat.Mode&unix.S_IFMT != unix.S_IFLNK && mode != uint32(stat.Mode) {
		if err := unix.Fchmodat(dir, name, mode&0o7777, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return stepError("restricting it", err)
		}
	}
	if uid >= 0 {
		if err := unix.Fchownat(dir, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return stepError("changing its owner", err)
		}
	}
	return unix.Fstatat(dir, name, stat, unix.AT_SYMLINK_NOFOLLOW)
}

func removeAttributes(int) error { return nil }
