package sandbox

import (
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// freeBytes is what an unprivileged process may still write below path.
func freeBytes(path string) (int64, bool) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return 0, false
	}
	return int64(stat.Bavail) * stat.Bsize, true
}

// reserve sets disk space aside without writing it.
func reserve(file *os.File, bytes int64) error {
	err := unix.Fallocate(int(file.Fd()), 0, 0, bytes)
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return nil
	}
	return err
}

// mountsBelow lists mount points strictly below dir.
func mountsBelow(dir string) ([]string, error) {
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
		if point := mountEscapes.Replace(fields[4]); point != dir && within(point, dir) {
			below = append(below, point)
		}
	}
	return below
}

// hasSwap reports whether this machine has swap, or that it cannot be told. The
// first line of /proc/swaps is a heading.
func hasSwap() bool {
	text, err := os.ReadFile("/proc/swaps")
	return err != nil || strings.Count(string(text), "\n") > 1
}

// sameMount reports whether two paths lie on one mount; what cannot be told is not
// the same. One disk may be mounted in several places, so its number says nothing.
func sameMount(one, other string) bool {
	first, known := mountID(one)
	second, also := mountID(other)
	return known && also && first == second
}

// mountID is the kernel's number of the mount that a path lies on (statx(2), Linux
// 5.8).
func mountID(path string) (uint64, bool) {
	var stat unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_MNT_ID, &stat)
	return stat.Mnt_id, err == nil && stat.Mask&unix.STATX_MNT_ID != 0
}

// mountNamespace names what this process sees as its file system.
func mountNamespace() string {
	name, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return "" // without /proc; there is only one then, as far as we can tell
	}
	return name
}
