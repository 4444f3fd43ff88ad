package sandbox

import (
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalbox/evalbox/internal/fsx"
	"github.com/evalbox/evalbox/sandbox/engine/wire"
)

// freeBytes returns the number of bytes that an unprivileged process may still write
// below path.
func freeBytes(path string) (int64, bool) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return 0, false
	}
	return int64(stat.Bavail) * stat.Bsize, true
}

// reserve allocates disk space without writing it.
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
		if point := mountEscapes.Replace(fields[4]); point != dir && fsx.Within(point, dir) {
			below = append(below, point)
		}
	}
	return below
}

// sameFile reports whether a container's init sees this file of the host. Another kernel
// than the host's has its own device and inode numbers. It passes on the mode and the
// time of the last change (ctime), which nobody can set.
func sameFile(ours fs.FileInfo, seen wire.Stat, sameKernel bool) bool {
	stat, ok := ours.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return false
	case sameKernel:
		return stat.Dev == seen.Dev && stat.Ino == seen.Ino
	}
	return stat.Mode == seen.Mode && time.Unix(stat.Ctim.Unix()).Equal(seen.Ctime)
}

// mountNamespace identifies this process's view of the file system.
func mountNamespace() string {
	name, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return "" // without /proc only one namespace is known
	}
	return name
}
