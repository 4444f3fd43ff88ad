package stage

import (
	"io/fs"
	"syscall"
	"time"

	"github.com/evalbox/evalbox/sandbox/engine/wire"
)

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
