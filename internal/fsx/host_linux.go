package fsx

import (
	"os"
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

// SameMount reports whether an entry can be moved from one directory to the other: both are of one
// mount. One that cannot be read is of none.
func SameMount(a, b string) bool {
	var at [2]unix.Statx_t
	for i, path := range []string{a, b} {
		if unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &at[i]) != nil {
			return false
		}
	}
	// Linux before 5.8 knows no mount by a number.
	return at[0].Dev_major == at[1].Dev_major && at[0].Dev_minor == at[1].Dev_minor && at[0].Mnt_id == at[1].Mnt_id
}

// Reserve allocates disk space for a file without writing it. A file system that cannot do
// that is not an error.
func Reserve(file *os.File, bytes int64) error {
	err := unix.Fallocate(int(file.Fd()), 0, 0, bytes)
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return nil
	}
	return err
}
