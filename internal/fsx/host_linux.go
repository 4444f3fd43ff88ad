package fsx

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// MountsBelow lists the mount points strictly below a directory.
func MountsBelow(dir string) ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	return mountPointsBelow(string(text), dir), nil
}

var mountEscapes = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// mountPointsBelow reads the fifth field of /proc/self/mountinfo (proc(5)).
func mountPointsBelow(mountinfo, dir string) []string {
	var below []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if point := mountEscapes.Replace(fields[4]); point != dir && Within(point, dir) {
			below = append(below, point)
		}
	}
	return below
}

// IsMountPoint reports whether something is mounted at a path, also another directory of the same file
// system.
func IsMountPoint(path string) (bool, error) {
	var stat unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, 0, &stat)
	if err == nil && stat.Attributes_mask&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return stat.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0, nil
	}
	points, err := MountsBelow(filepath.Dir(path)) // Linux before 5.8
	return slices.Contains(points, path), err
}

// DirFlags are the flags of a directory that chattr(1) sets and that another directory in its place
// would lack. A file system without flags has none.
func DirFlags(root *os.Root) (flags int, err error) {
	dir, err := root.Open(".")
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	flags, err = unix.IoctlGetInt(int(dir.Fd()), unix.FS_IOC_GETFLAGS)
	if err != nil {
		return 0, nil // the file system has none
	}
	return flags & settableFlags, nil
}

// settableFlags are those of chattr(1), of linux/fs.h: among them immutable, append only, no copy on
// write, and the project that new entries inherit. The others say how a directory is stored.
const settableFlags = 0x4 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x400 | 0x800 | 0x10000 | 0x800000 | 0x2000000 | 0x20000000 | 0x40000000

// Reserve allocates disk space for a file without writing it. A file system that cannot do
// that is not an error.
func Reserve(file *os.File, bytes int64) error {
	err := unix.Fallocate(int(file.Fd()), 0, 0, bytes)
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return nil
	}
	return err
}
